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

// binding is what does an agent's work, to its gateway. Tools on servers wait
// while those are being proven; if the agent is not up, it says why.
type binding struct{ of *Agent }

// Act carries out a call.
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
	if !came(ctx, b.of.up) {
		return nil, call.Refuse("act", call.ServerUnavailable, "the agent's tool servers are still being started").Again()
	}
	if f := b.of.trouble(); f != nil {
		return nil, f.Refusal
	}
	return b.of.servers, nil
}

// Forward takes another request to a server. Where only a policy grants, what an operator
// exposes needs its permit too: to rules the request is a tool named after the method,
// such as resources/read.
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

// definition is a tool's definition: the one that its server was proven with,
// or what its manifest says of it. Nil if the tool is not served.
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

// Tokens are those of the person's sign-ins.
type Tokens interface {
	// Token is the one for a server at an address, if a sign-in is meant for it.
	Token(ctx context.Context, address string) (token string, found bool, err error)
	// Given are those that were given out, but for ones that are long over.
	Given() []string
}

// Authorize says to an agent's remote servers who calls: with the token of the
// sign-in that is meant for the server's host, and for no other. An agent that
// wants a sign-in is not asked without one. Nil tokens are none.
func Authorize(a *agent.Agent, tokens Tokens) func(context.Context, *agent.Server, http.Header) (string, error) {
	if tokens == nil {
		return nil
	}
	wanted := a.Hosted() && a.Delivery.Auth == "oauth-device"
	return func(ctx context.Context, s *agent.Server, h http.Header) (string, error) {
		token, found, err := tokens.Token(ctx, s.Endpoint)
		switch {
		case err != nil:
			r := call.Refuse("act", call.CredentialMissing, "the sign-in for server %s cannot be used: %v", s.Alias, err)
			r.Hint = "sign in again: ambit login"
			return "", r
		case !found && wanted:
			r := call.Refuse("act", call.CredentialMissing, "server %s wants to know who you are, and no sign-in is meant for it", s.Alias)
			if host, err := login.At(s.Endpoint); err == nil {
				r.Hint = "if you trust it with who you are, sign in: ambit login --host " + host
			}
			return "", r
		case found:
			h.Set("Authorization", "Bearer "+token)
		}
		return token, nil
	}
}

// known are the credentials that no result may hold.
func (a *Agent) known() ([]guard.Known, error) {
	var known []guard.Known
	if wants := a.wanted(); len(wants) > 0 {
		secrets, err := a.options.Credentials.Known(a.who(), wants)
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

// wants are the secrets that an agent asks for. A manifest that names no servers
// of its own asks for others once they are found.
type wants struct {
	of  *agent.Agent
	all []credential.Wanted
}

// wanted are the agent's wants. Every scan asks, so they are found once.
func (a *Agent) wanted() []credential.Wanted {
	who := a.who()
	if w := a.wants.Load(); w != nil && w.of == who {
		return w.all
	}
	w := &wants{who, credential.Wants(who)}
	a.wants.Store(w)
	return w.all
}

var (
	_ call.Binding   = binding{}
	_ call.Forwarder = binding{}
)
