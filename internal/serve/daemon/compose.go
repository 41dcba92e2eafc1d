package daemon

import (
	"context"
	"sync/atomic"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// Neighbours lets the agents of a daemon call each other through the callee's own gateway. Agents
// are created before the daemon, which sets itself later.
type Neighbours struct{ of atomic.Pointer[Daemon] }

// CallAgent calls another agent. The installation of both agents permitted this call; the callee's
// manifest and guardrails apply, and the principal stays the same.
func (n *Neighbours) CallAgent(ctx context.Context, name string, c *call.Call) (call.Result, error) {
	d := n.of.Load()
	if d == nil {
		return call.Result{}, call.Unsent(call.Refuse("act", call.ServerUnavailable, "the agent %s is still starting", name).Again())
	}
	v, trouble := d.fleet.enter(name, &identity.Principal{Name: c.Principal, Everywhere: true})
	if trouble != nil {
		return call.Result{}, call.Unsent(call.Refuse("act", call.ServerUnavailable, "%s", trouble.Message))
	}
	defer v.leave()
	return v.running.Call(ctx, c)
}
