package host

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/action"
	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/guard"
	"github.com/ambit-run/ambit/internal/toolserver"
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
		return call.Result{}, err
	}
	return s.Act(ctx, t, c)
}

func (b binding) wait(ctx context.Context) (*toolserver.Manager, error) {
	select {
	case <-b.of.up:
	case <-ctx.Done():
		return nil, call.Refuse("act", call.ServerUnavailable, "the agent's tool servers are still being started").Again()
	}
	if b.of.failure != nil {
		return nil, b.of.failure.Refusal
	}
	return b.of.servers, nil
}

// Forward takes another request to a server.
func (b binding) Forward(ctx context.Context, f *call.Forward) (jsontext.Value, error) {
	s, err := b.wait(ctx)
	if err != nil {
		return nil, err
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

// known are the credentials that no result may hold.
func (a *Agent) known() ([]guard.Known, error) {
	secrets, err := a.options.Credentials.Known(a.manifest.Agent())
	if err != nil {
		return nil, err
	}
	known := make([]guard.Known, len(secrets))
	for i, s := range secrets {
		known[i] = guard.Known{Name: "credential", Value: s.Reveal()}
	}
	return known, nil
}

var (
	_ call.Binding   = binding{}
	_ call.Forwarder = binding{}
)
