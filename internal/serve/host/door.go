package host

import (
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

// outfit is what every gateway of the agent is made of: whichever a call comes to, it
// is judged by the same rules, and the same is left out of its record.
func (a *Agent) outfit() (gateway.Options, error) {
	b := a.options.Books
	if b == nil {
		err := a.options.NoBooks
		if err == nil {
			err = errors.New("there is no store")
		}
		return gateway.Options{NoBooks: err}, err
	}
	ttl, err := memory.TTL(a.options.Home)
	if err != nil {
		return gateway.Options{NoBooks: err}, err
	}
	a.memory = memory.New(b, ttl)
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
		Name: a.name, Binding: binding{of: a}, Books: b, Rules: rules, Expose: a.options.Expose, Operator: a.options.Operator, Known: a.known, Quotas: quotas,
		Participants: a.participants(b), Approvals: a.options.Approvals, Learned: a.learned,
		OnAsk: func(message string) { a.options.Log("approvals", message) },
	}, nil
}

// participants take part in the calls of a program; other agents have none.
func (a *Agent) participants(b *store.Store) []gateway.Participant {
	who := a.manifest.Agent()
	if !dispatch.TakesIntents(who) {
		return nil
	}
	return []gateway.Participant{
		dispatch.Participant(b, who, a.options.Unconfined), memory.Participant{Memory: a.memory, Agent: who},
	}
}

// remembered is the memory of an agent's program, which is read behind the gateway.
type remembered struct{ of *Agent }

func (r remembered) Lines(ctx context.Context, agentID string) ([]byte, int, error) {
	return r.of.memory.Lines(ctx, agentID)
}

// who is the agent as it is known now.
func (a *Agent) who() *agent.Agent {
	if r := a.resolved.Load(); r != nil {
		return r.Agent()
	}
	return a.manifest.Agent()
}

// learned is who, for calls: it waits until the servers were looked up.
func (a *Agent) learned(ctx context.Context) (*agent.Agent, *call.Refusal) {
	if !came(ctx, a.lookedUp) {
		return a.who(), call.Refuse("resolve", call.TimedOut, "the agent's servers were not looked up in time").Again()
	}
	return a.who(), nil
}

// came waits for something that happens once, and reports whether it has before
// ctx ended. Once it has, that costs nothing.
func came(ctx context.Context, happened <-chan struct{}) bool {
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

// lacks is the refusal of a request whose credential is not there; nil if it is, or
// if the tool needs none.
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

// spend records that something that is good once was used, for every process that
// shares the store, and reports whether this was the first time.
func (a *Agent) spend(ctx context.Context, id string, until time.Time) (first bool, err error) {
	if a.options.Books == nil {
		return false, call.Refuse("record", call.StoreUnavailable, "%v", a.shut)
	}
	return a.options.Books.Spend(ctx, id, until)
}

// recoverEvery is how often calls of dead processes are looked for.
const recoverEvery = 15 * time.Second

// recover takes over calls that other processes left when they died, for as long
// as the agent lives.
func (a *Agent) recover() {
	ticker := time.NewTicker(recoverEvery)
	defer ticker.Stop()
	for {
		// Calls that are sent again need servers that are up.
		if a.trouble() == nil {
			if err := a.gateway.Recover(a.ctx); err != nil && a.ctx.Err() == nil {
				a.options.Log("store", "calls of ended processes cannot be looked for: "+err.Error())
			}
		}
		select {
		case <-ticker.C:
		case <-a.ctx.Done():
			return
		}
	}
}

// Closed is the gateway of an agent that is not started: it judges and records calls as
// the agent's own would, and refuses those that pass with why. A nil why says that the
// agent was not started for this call. The options have books and the resolved agent.
func Closed(m *manifest.Manifest, o Options, why *call.Refusal) (*gateway.Gateway, error) {
	a := asleep(m, o)
	made, err := a.outfit()
	if err != nil {
		return nil, err
	}
	if made.Shut = why; why == nil {
		made.Binding = notStarted{} // limits and people may have their say first
	}
	return gateway.New(a.who(), made), nil
}

// notStarted is behind the gateway of an agent that was not started.
type notStarted struct{}

// Act refuses a call.
func (notStarted) Act(context.Context, *agent.Tool, *call.Call) (call.Result, error) {
	const why = "the agent was not started, since the call was to be refused"
	return call.Result{}, call.Unsent(call.Refuse("act", call.ServerUnavailable, why).Again())
}

// refuseTime bounds the recording of a call that was not made.
const refuseTime = 30 * time.Second

// Refuse has a call refused at the agent's gateway for a reason that lies before it. A
// repeated call gets its answer.
func (a *Agent) Refuse(ctx context.Context, c *call.Call, why *call.Refusal) (call.Result, error) {
	// The caller may have gone, which may be the reason.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refuseTime)
	defer cancel()
	c.Refused = why
	return a.gateway.Call(ctx, c)
}
