package daemon

import (
	"context"
	"sync/atomic"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/dispatch"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// Served gives access to the agents of a daemon. It is used by the intent queue and by agents that call other agents.
// A Served is created before its daemon. No agent is available until [New] sets the daemon.
type Served struct{ of atomic.Pointer[Daemon] }

// CallAgent calls another agent on behalf of the same principal. The call goes through the gateway of the called
// agent, whose manifest and guardrails apply. CallAgent does not check the scope of the principal's key, because the
// user permitted the call by installing both agents.
func (s *Served) CallAgent(ctx context.Context, name string, c *call.Call) (call.Result, error) {
	d := s.of.Load()
	if d == nil {
		refusal := call.Refuse("act", call.ServerUnavailable, "the agent %s is still starting", name)
		return call.Result{}, call.Unsent(refusal.Again())
	}
	// The principal keeps its kind, so an API key does not turn into a sign-in.
	kind := c.Attributes.AuthenticatedBy()
	v, trouble := d.fleet.enter(name, &identity.Principal{Kind: kind, Name: c.Principal, Everywhere: true})
	if trouble != nil {
		refusal := call.Refuse("act", call.ServerUnavailable, "%s", trouble.Message)
		refusal.Hint = trouble.Hint
		return call.Result{}, call.Unsent(refusal)
	}
	defer v.leave()
	return v.running.Call(ctx, c)
}

// Digests returns the digests of the served agents that accept intents (queued calls).
func (s *Served) Digests() []string {
	var digests []string
	if d := s.of.Load(); d != nil {
		for _, e := range d.fleet.current.Load().all {
			if a := e.program(); a != nil {
				digests = append(digests, a.Digest)
			}
		}
	}
	return digests
}

// Open returns the gateway of the program with this digest. The second result is a function that releases the gateway.
// The last result is false if the program is not served.
func (s *Served) Open(digest string) (dispatch.Gateway, func(), bool) {
	d := s.of.Load()
	if d == nil {
		return nil, nil, false
	}
	for _, e := range d.fleet.current.Load().all {
		a := e.program()
		if a == nil || a.Digest != digest {
			continue
		}
		if running, leave, ok := e.enter(); ok {
			return programGateway{running, a}, leave, true
		}
	}
	return nil, nil, false
}

// program returns the entry's agent. It returns nil if the agent cannot be served or does not accept intents.
func (e *entry) program() *agent.Agent {
	if a := e.agent(); a != nil && !e.rejected() && dispatch.TakesIntents(a) {
		return a
	}
	return nil
}

type programGateway struct {
	Running
	agent *agent.Agent
}

func (g programGateway) Agent() *agent.Agent { return g.agent }
