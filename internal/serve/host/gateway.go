package host

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/dispatch"
	"github.com/ambit-run/ambit/internal/exec/memory"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/grant"
	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/manifest"
)

// gatewayOptions are the same for every gateway of the agent: the same rules apply to a call, and
// the same secrets are redacted in its record.
func (a *Agent) gatewayOptions() (gateway.Options, error) {
	b := a.options.Books
	if b == nil {
		err := cmp.Or(a.options.NoBooks, errors.New("no store is available"))
		return gateway.Options{NoBooks: err}, err
	}
	ttl, err := memory.TTL(a.options.Home)
	if err != nil {
		return gateway.Options{NoBooks: err}, err
	}
	a.memory = memory.Of(b, ttl)
	quotas, err := limit.ReadQuotas(a.options.Home)
	if err != nil {
		return gateway.Options{NoBooks: err}, err
	}
	rules := a.options.Rules
	if rules.Grants == nil {
		rules.Grants = grant.Of(b).For(a.manifest.Agent().ID)
	}
	rules.Lacks = a.lacks
	return gateway.Options{
		Name: a.name, Binding: binding{of: a}, Books: b, Rules: rules, Expose: a.options.Expose,
		Operator: a.options.Operator, Known: a.known, Quotas: quotas,
		Participants: a.participants(b), Approvals: a.options.Approvals, Learned: a.learned,
		OnAsk: func(message string) { a.options.Log("approvals", message) },
	}, nil
}

// participants take part in the transactions of a program's calls; other agents have none.
func (a *Agent) participants(b *store.Store) []gateway.Participant {
	who := a.manifest.Agent()
	if !dispatch.TakesIntents(who) {
		return nil
	}
	return []gateway.Participant{
		dispatch.Participant(b, who, a.options.Unconfined), memory.Participant{Memory: a.memory, Agent: who},
	}
}

// remembered is the memory of the agent's program.
type remembered struct{ of *Agent }

func (r remembered) Lines(ctx context.Context, agentID string) ([]byte, int, error) {
	return r.of.memory.Lines(ctx, agentID)
}

// who returns the agent with the servers and tools that are known now.
func (a *Agent) who() *agent.Agent {
	if r := a.resolved.Load(); r != nil {
		return r.Agent()
	}
	return a.manifest.Agent()
}

// learned is who for calls: it waits until the servers are resolved.
func (a *Agent) learned(ctx context.Context) (*agent.Agent, *call.Refusal) {
	if !waitFor(ctx, a.lookedUp) {
		return a.who(), call.Refuse("resolve", call.TimedOut, "the agent's servers were not resolved in time").Again()
	}
	return a.who(), nil
}

// waitFor waits for an event and reports whether it came before ctx ended. The first select makes
// past events cheap.
func waitFor(ctx context.Context, happened <-chan struct{}) bool {
	select {
	case <-happened:
		return true
	default:
	}
	select {
	case <-happened:
		return true
	case <-ctx.Done():
		return false
	}
}

// lacks returns the refusal of a tool whose credential is missing, or nil.
func (a *Agent) lacks(t *agent.Tool) *call.Refusal {
	h, ok := t.Binding.(agent.HTTP)
	if !ok || h.AuthRef == "" {
		return nil
	}
	slot := a.manifest.Agent().Slot(h.AuthRef)
	if slot == nil {
		return nil
	}
	_, err := a.options.Credentials.Slot(a.manifest.Agent(), slot)
	r, _ := errors.AsType[*call.Refusal](err)
	return r
}

// spend uses up an id in the store, for every process that shares it, and reports whether it was
// unused.
func (a *Agent) spend(ctx context.Context, id string, until time.Time) (first bool, err error) {
	if a.options.Books == nil {
		return false, call.Refuse("record", call.StoreUnavailable, "%v", a.noStore)
	}
	return a.options.Books.Spend(ctx, id, until)
}

// recoverEvery is how often calls of dead processes are searched.
const recoverEvery = 15 * time.Second

// recover takes over calls of processes that died, until the agent is closed.
func (a *Agent) recover() {
	ticker := time.NewTicker(recoverEvery)
	defer ticker.Stop()
	for {
		// Calls that are repeated need servers that are up.
		if a.trouble() == nil {
			if err := a.gateway.Recover(a.ctx); err != nil && a.ctx.Err() == nil {
				a.options.Log("store", "cannot search for calls of ended processes: "+err.Error())
			}
		}
		select {
		case <-ticker.C:
		case <-a.ctx.Done():
			return
		}
	}
}

// Closed returns the gateway of an agent that is not started. It decides and records calls like the
// agent's own, and refuses permitted calls with why. A nil why means that the agent was not started
// for this call. The options must have a store and the resolved agent.
func Closed(m *manifest.Manifest, o Options, why *call.Refusal) (*gateway.Gateway, error) {
	a := newAgent(m, o)
	made, err := a.gatewayOptions()
	if err != nil {
		return nil, err
	}
	if made.Shut = why; why == nil {
		made.Binding = notStarted{} // limits and approvals are checked first
	}
	return gateway.New(a.who(), made), nil
}

// notStarted is the binding of an agent that was not started.
type notStarted struct{}

func (notStarted) Act(context.Context, *agent.Tool, *call.Call) (call.Result, error) {
	const why = "the agent was not started, because the call was expected to be refused"
	return call.Result{}, call.Unsent(call.Refuse("act", call.ServerUnavailable, why).Again())
}

// refuseTime bounds the recording of a refused call.
const refuseTime = 30 * time.Second

// Refuse refuses a call at the agent's gateway for a reason outside the gateway. A repeated call
// gets its stored answer.
func (a *Agent) Refuse(ctx context.Context, c *call.Call, why *call.Refusal) (call.Result, error) {
	// The caller may have disconnected, which may be the reason.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refuseTime)
	defer cancel()
	c.Refused = why
	return a.gateway.Call(ctx, c)
}
