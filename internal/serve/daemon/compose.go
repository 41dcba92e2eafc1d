package daemon

import (
	"context"
	"sync/atomic"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// Neighbours lets the agents of a daemon call each other, each through the
// other's own door. They are started before the daemon is there, so it is filled
// in later.
type Neighbours struct{ of atomic.Pointer[Daemon] }

// CallAgent makes a call at the door of another agent. Who may use that agent
// was decided when both were installed: the callee's manifest and rails hold,
// and the principal stays who it was.
func (n *Neighbours) CallAgent(ctx context.Context, name string, c *call.Call) (call.Result, error) {
	d := n.of.Load()
	if d == nil {
		return call.Result{}, call.Unsent(call.Refuse("act", call.ServerUnavailable, "the agent %s is not up yet", name).Again())
	}
	v, trouble := d.fleet.enter(name, &identity.Principal{Name: c.Principal, Everywhere: true})
	if trouble != nil {
		return call.Result{}, call.Unsent(call.Refuse("act", call.ServerUnavailable, "%s", trouble.Message))
	}
	defer v.leave()
	return v.running.Call(ctx, c)
}
