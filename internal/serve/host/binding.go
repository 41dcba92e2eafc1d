package host

import (
	"context"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/action"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/serve/login"
)

// binding carries out an agent's calls for its gateway. Tools on servers wait while these are being
// proven.
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

func (b binding) wait(ctx context.Context) (*toolserver.Manager, error) {
	if !waitFor(ctx, b.of.up) {
		return nil, call.Refuse("act", call.ServerUnavailable, "the agent's tool servers are still starting").Again()
	}
	if f := b.of.trouble(); f != nil {
		return nil, f.Refusal
	}
	return b.of.servers, nil
}

// Forward sends another request to a server. Under GPARS, where only a policy grants, an exposed
// request also needs a permit: to the rules it is a tool with the method's name, such as
// resources/read.
func (b binding) Forward(ctx context.Context, f *call.Forward) (jsontext.Value, error) {
	s, err := b.wait(ctx)
	if err != nil {
		return nil, err
	}
	if who := b.of.who(); who.Dialect == agent.GPARS {
		t := &agent.Tool{Name: f.Method, SideEffect: agent.Read, Binding: agent.OnServer{Alias: f.Server}}
		c := &call.Call{Tool: f.Method, Principal: f.Principal, Arguments: f.Params}
		if !gate.Decide(ctx, who, b.of.name, t, c, b.of.options.Rules).Allowed {
			return nil, call.Refuse(gate.Stage, call.PolicyDenied, "%s on %s is not permitted", f.Method, f.Server)
		}
	}
	return s.Forward(ctx, f)
}

// definition returns the definition that a tool's server was proven with, or the manifest's. It is
// nil if the tool is not served.
func (a *Agent) definition(t *agent.Tool) []byte {
	if _, ok := t.Binding.(agent.OnServer); !ok {
		if a.options.Credentials != nil && !a.options.Credentials.Serves(a.manifest.Agent(), t) {
			return nil
		}
		return action.Definition(a.manifest.Agent(), t)
	}
	if s := a.manager(); s != nil {
		return s.Definition(t)
	}
	return nil
}

// Tokens are the tokens of the person's sign-ins.
type Tokens interface {
	// Token returns the token for a server, if a sign-in covers its address.
	Token(ctx context.Context, address string) (token string, found bool, err error)
	// Given returns the issued tokens, except those that expired long ago.
	Given() []string
}

// Authorize returns a function that identifies the caller to an agent's remote servers, with the
// token of the sign-in that covers the server's host. An agent that requires a sign-in is not
// called without one. It returns nil for nil tokens.
func Authorize(a *agent.Agent, tokens Tokens) func(context.Context, *agent.Server, http.Header) (string, error) {
	if tokens == nil {
		return nil
	}
	required := a.Hosted() && a.Delivery.Auth == "oauth-device"
	return func(ctx context.Context, s *agent.Server, h http.Header) (string, error) {
		token, found, err := tokens.Token(ctx, s.Endpoint)
		switch {
		case err != nil:
			r := call.Refuse("act", call.CredentialMissing, "the sign-in for server %s is unusable: %v", s.Alias, err)
			r.Hint = "sign in again: ambit login"
			return "", r
		case !found && required:
			r := call.Refuse("act", call.CredentialMissing, "server %s requires a sign-in, and no sign-in covers it", s.Alias)
			if host, err := login.At(s.Endpoint); err == nil {
				r.Hint = "if you trust it with your identity, sign in: ambit login --host " + host
			}
			return "", r
		case found:
			h.Set("Authorization", "Bearer "+token)
		}
		return token, nil
	}
}

// known returns the credentials that no result may contain.
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
	return known, nil
}

// wantedSecrets caches the secrets that an agent needs. An agent with required servers
// needs more once they are resolved.
type wantedSecrets struct {
	of  *agent.Agent
	all []credential.Wanted
}

// wantedSecrets is called by every scan, so the result is cached.
func (a *Agent) wantedSecrets() []credential.Wanted {
	who := a.who()
	if w := a.wanted.Load(); w != nil && w.of == who {
		return w.all
	}
	w := &wantedSecrets{who, credential.Wants(who)}
	a.wanted.Store(w)
	return w.all
}

var (
	_ call.Binding   = binding{}
	_ call.Forwarder = binding{}
)
