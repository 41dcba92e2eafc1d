package host

import (
	"context"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/manifest"
)

// Closed is the door of an agent that is not brought to life: it judges and records
// calls as the agent's own would, and what passes is refused with why. Without why,
// nobody has tried to start it. The agent is told with all that is known of its
// servers. The options have books.
func Closed(m *manifest.Manifest, who *agent.Agent, o Options, why *call.Refusal) (*gateway.Gateway, error) {
	a := asleep(m, o)
	if a.lazy != nil {
		a.lazy.snapshot.Store(who)
	}
	made, err := a.outfit(o.Books)
	if err != nil {
		return nil, err
	}
	if made.Shut = why; why == nil {
		made.Binding = notStarted{} // limits and people may have their say first
	}
	return gateway.New(who, made), nil
}

// notStarted is behind the door of an agent that nobody tried to start.
type notStarted struct{}

// Act refuses a call.
func (notStarted) Act(context.Context, *agent.Tool, *call.Call) (call.Result, error) {
	return call.Result{}, call.Unsent(call.Refuse("act", call.ServerUnavailable, "the agent was not started, since the call was to be refused").Again())
}

// refuseTime bounds the recording of a call that was not made.
const refuseTime = 30 * time.Second

// Refuse has a call refused at the agent's door for a reason that lies before it. One
// that is repeated gets its answer.
func (a *Agent) Refuse(ctx context.Context, c *call.Call, why *call.Refusal) (call.Result, error) {
	g, err := a.Open(ctx)
	if err != nil {
		return call.Result{}, err
	}
	// Whoever called may have gone, which may be the reason.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refuseTime)
	defer cancel()
	c.Refused = why
	return g.Call(ctx, c)
}
