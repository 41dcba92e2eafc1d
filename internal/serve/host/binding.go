package host

import (
	"context"
	"net/http"
	"path/filepath"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/action"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/signin"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/manifest"
)

// binding carries out the calls that the agent's gateway has permitted. A call to a tool server waits until the
// servers have been verified.
type binding struct{ of *Agent }

func (b binding) Act(ctx context.Context, t *agent.Tool, c *call.Call) (call.Result, error) {
	switch t.Binding.(type) {
	case agent.OnServer:
	case agent.RunProgram:
		return b.of.programs.Act(ctx, t, c)
	default:
		return b.of.actions.Act(ctx, t, c)
	}
	s, err := b.wait(ctx)
	if err != nil {
		return call.Result{}, call.Unsent(err)
	}
	return s.Act(ctx, t, c)
}

// Prepare starts the server that provides a tool.
func (b binding) Prepare(ctx context.Context, t *agent.Tool, principal string) error {
	if _, ok := t.Binding.(agent.OnServer); !ok {
		return nil
	}
	s, err := b.wait(ctx)
	if err != nil {
		return err
	}
	return s.Prepare(ctx, t, principal)
}

func (b binding) wait(ctx context.Context) (*toolserver.Manager, error) {
	if !waitFor(ctx, b.of.up) {
		return nil, call.Refuse("act", call.ServerUnavailable, "the agent's tool servers are still starting").Again()
	}
	if f := b.of.trouble(); f != nil {
		return nil, f.Refusal
	}
	return b.of.servers, nil
}

// Forward sends a request other than a tool call to a server.
func (b binding) Forward(ctx context.Context, f *call.Forward) (jsontext.Value, error) {
	s, err := b.wait(ctx)
	if err != nil {
		return nil, err
	}
	return s.Forward(ctx, f)
}

// definition returns the definition of a tool, or nil if the tool is not served. For a tool on a server, it is the
// verified definition that the server sent. Other tools are defined in the manifest.
func (a *Agent) definition(t *agent.Tool) []byte {
	if _, ok := t.Binding.(agent.OnServer); !ok {
		return action.Definition(a.manifest.Agent(), t)
	}
	if s := a.manager(); s != nil {
		return s.Definition(t)
	}
	return nil
}

// Tokens provides tokens from the sign-ins of the person who runs ambit.
type Tokens interface {
	// Token returns the token for the server at this address. The second result is false if no sign-in covers the
	// address.
	Token(ctx context.Context, address string) (token string, found bool, err error)
	// Given returns the tokens that Token has returned. Tokens that expired long ago may be missing.
	Given() []string
}

// Authorize returns a function that adds an authorization header to requests to an agent's remote servers. The header
// contains the token of a sign-in, and the function also returns this token. If no sign-in covers the server's host,
// the function adds no header, or returns a refusal if the agent requires a sign-in. If tokens is nil, Authorize
// returns nil.
func Authorize(a *agent.Agent, tokens Tokens) func(context.Context, *agent.Server, http.Header) (string, error) {
	if tokens == nil {
		return nil
	}
	required := a.Hosted() && a.Delivery.Auth == "oauth-device"
	return func(ctx context.Context, s *agent.Server, h http.Header) (string, error) {
		token, found, err := tokens.Token(ctx, s.Endpoint)
		switch {
		case err != nil:
			r := call.Refuse("act", call.CredentialMissing, "the sign-in for server %s cannot be used: %v", s.Alias, err)
			r.Hint = "to sign in again, run: ambit login"
			return "", r
		case !found && required:
			r := call.Refuse("act", call.CredentialMissing,
				"server %s requires a sign-in, and you are not signed in for its host", s.Alias)
			if host, err := egress.AudienceAt(s.Endpoint); err == nil {
				r.Hint = "if you trust this server with your identity, run: ambit login --host " + host
			}
			return "", r
		case found:
			h.Set("Authorization", "Bearer "+token)
		}
		return token, nil
	}
}

// SignIn returns a function that returns the sign-in for a remote server of an agent. The sign-in belongs to the person
// who runs ambit. If each caller of a daemon signs in to the server separately, the function returns a sign-in without
// a token. The agent runs under the given name. If k is nil, SignIn returns nil.
func SignIn(
	k *signin.Keeper, h home.Home, m *manifest.Manifest, name string,
) func(*agent.Server) toolserver.SignIn {
	if k == nil {
		return nil
	}
	return func(s *agent.Server) toolserver.SignIn {
		t := SignInTarget(h, m, name, s)
		if byCaller, err := k.ByCaller(s.Endpoint); byCaller || err != nil {
			return k.Anonymous(t)
		}
		return k.Session(t, nil)
	}
}

// callers provides the sign-ins of a daemon's callers.
type callers struct{ of *Agent }

// callersOf returns the sign-ins of the agent's callers. It returns nil if the caller is always the person who runs
// ambit.
func (a *Agent) callersOf() toolserver.Callers {
	if k := a.options.SignIns; k == nil || !k.ServesCallers() {
		return nil
	}
	return callers{a}
}

func (c callers) ByCaller(s *agent.Server) (bool, error) {
	return c.of.options.SignIns.ByCaller(s.Endpoint)
}

func (c callers) Of(s *agent.Server, principal string) (toolserver.SignIn, string, error) {
	in, id, err := c.of.options.SignIns.CallerSession(c.of.target(s, principal))
	return in, id, err
}

func (c callers) Missing(s *agent.Server, principal string) *call.Refusal {
	t := c.of.target(s, principal)
	return t.NotSignedIn()
}

// target returns the key under which the sign-in of a principal to a remote server is stored.
func (a *Agent) target(s *agent.Server, principal string) signin.Target {
	t := SignInTarget(a.options.Home, a.manifest, a.options.Credentials.Agent, s)
	return a.options.SignIns.For(t, principal)
}

// SignInTarget returns the key under which the sign-in of a principal to a remote server is stored. The second result
// is false if the agent has no such server.
func (a *Agent) SignInTarget(server, principal string) (signin.Target, bool) {
	s := a.who().Server(server)
	if s == nil || s.Transport != agent.StreamableHTTP || s.SendsAuthorization() || a.options.SignIns == nil {
		return signin.Target{}, false
	}
	return a.target(s, principal), true
}

// signInPage returns the page at which the principal signs in to a remote server. See [front.Agent.SignInPage].
func (a *Agent) signInPage(principal, server string) (page, id string) {
	t, found := a.SignInTarget(server, principal)
	if !found {
		return "", ""
	}
	return a.options.SignIns.Page(t)
}

// listing is the gateway that lists tools for clients. It also hides the tools that a server does not offer to the
// caller.
type listing struct {
	*gateway.Gateway
	of *Agent
}

func (l listing) Listed(c *call.Call) (*agent.Agent, []bool) {
	who, hidden := l.Gateway.Listed(c)
	servers := l.of.manager()
	if servers == nil || l.of.callersOf() == nil {
		return who, hidden
	}
	all := make([]bool, len(who.Tools))
	copy(all, hidden)
	for i := range who.Tools {
		all[i] = all[i] || servers.Hides(c.Principal, &who.Tools[i])
	}
	return who, all
}

// wakeFor starts the servers that the principal has signed in to.
func (a *Agent) wakeFor(ctx context.Context, principal string) {
	if s := a.manager(); s != nil && a.callersOf() != nil {
		s.WakeFor(ctx, principal)
	}
}

// SignInTarget returns the key under which the sign-in for a remote server of an agent is stored.
func SignInTarget(h home.Home, m *manifest.Manifest, name string, s *agent.Server) signin.Target {
	t := signin.Target{
		Agent: name, ID: m.Agent().ID, Manifest: m.Path, Server: s.Alias, Endpoint: s.Endpoint,
		Principal: identity.LocalName(),
	}
	if installed, err := filepath.Rel(h.Agents(), m.Path); err == nil && filepath.IsLocal(installed) {
		t.Manifest = name
	}
	return t
}

// known returns the credentials and tokens that the gateway must redact in results.
func (a *Agent) known() ([]guard.Known, error) {
	var known []guard.Known
	if wanted := a.wantedSecrets(); len(wanted) > 0 {
		secrets, err := a.options.Credentials.Known(a.who(), wanted)
		if err != nil {
			return nil, err
		}
		for _, s := range secrets {
			known = append(known, guard.Known{Name: "credential", Value: s.Reveal()})
		}
	}
	if a.options.Tokens != nil {
		for _, token := range a.options.Tokens.Given() {
			known = append(known, guard.Known{Name: "login", Value: token})
		}
	}
	if a.options.SignIns != nil {
		for _, token := range a.options.SignIns.Given() {
			known = append(known, guard.Known{Name: "signin", Value: token})
		}
	}
	return known, nil
}

// wantedSecrets caches the references to the secrets that one version of an agent needs. When required servers are
// resolved, the agent gets a new version, which may need more secrets.
type wantedSecrets struct {
	of  *agent.Agent
	all []credential.Reference
}

// wantedSecrets returns references to the secrets that the agent needs. Every scan of a result calls wantedSecrets,
// so the references are cached.
func (a *Agent) wantedSecrets() []credential.Reference {
	who := a.who()
	if w := a.wanted.Load(); w != nil && w.of == who {
		return w.all
	}
	w := &wantedSecrets{who, credential.References(who)}
	a.wanted.Store(w)
	return w.all
}

var (
	_ call.Binding   = binding{}
	_ call.Preparer  = binding{}
	_ call.Forwarder = binding{}
)
