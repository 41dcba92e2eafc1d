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

// gatewayOptions returns the options for the agent's gateway. [Start] and [Closed] use the same options, so that the
// same rules apply to every call and the same secrets are redacted in every record.
func (a *Agent) gatewayOptions() (gateway.Options, error) {
	b := a.options.Store
	if b == nil {
		err := cmp.Or(a.options.StoreErr, errors.New("no store is available"))
		return gateway.Options{StoreErr: err}, err
	}
	ttl, err := memory.TTL(a.options.Home)
	if err != nil {
		return gateway.Options{StoreErr: err}, err
	}
	a.memory = memory.New(b, ttl)
	quotas, err := limit.ReadQuotas(a.options.Home)
	if err != nil {
		return gateway.Options{StoreErr: err}, err
	}
	rules := a.options.Rules
	if rules.Grants == nil {
		rules.Grants = grant.Of(b).For(a.manifest.Agent().ID)
	}
	rules.Lacks = a.missingCredential
	return gateway.Options{
		Name: a.name, Binding: binding{of: a}, Store: b, Rules: rules, Expose: a.options.Expose,
		Operator: a.options.Operator, Known: a.known, Quotas: quotas,
		Participants: a.participants(b), Approvals: a.options.Approvals, Learned: a.resolvedAgent,
		Flow:  a.options.Flow,
		OnAsk: func(message string) { a.options.Log("approvals", message) },
		OnPanic: func(description string) {
			a.options.Log("gateway", "warning: ambit failed while it handled a call: "+description)
		},
	}, nil
}

// participants returns the gateway participants of a program: its intent queue and its memory. They add rows to the
// transactions of the program's calls. Other agents have no participants.
func (a *Agent) participants(b *store.Store) []gateway.Participant {
	who := a.manifest.Agent()
	if !dispatch.TakesIntents(who) {
		return nil
	}
	return []gateway.Participant{
		dispatch.Participant(b, who, a.options.Unconfined), memory.Participant{Memory: a.memory, Agent: who},
	}
}

// who returns the agent with the servers and tools that are known so far.
func (a *Agent) who() *agent.Agent {
	if r := a.resolved.Load(); r != nil {
		return r.Agent()
	}
	return a.manifest.Agent()
}

// resolvedAgent waits until the servers are resolved and then returns the agent with its servers. If the context ends
// first, it returns a refusal.
func (a *Agent) resolvedAgent(ctx context.Context) (*agent.Agent, *call.Refusal) {
	if !waitFor(ctx, a.lookedUp) {
		return a.who(), call.Refuse("resolve", call.TimedOut, "the agent's servers were not resolved in time").Again()
	}
	return a.who(), nil
}

// waitFor waits until the channel is closed and returns true. If the context ends first, it returns false. If the
// channel is already closed at the start, it returns true even if the context has ended.
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

// missingCredential returns a refusal if the credential of a tool is missing, and nil in all other cases.
func (a *Agent) missingCredential(t *agent.Tool) *call.Refusal {
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

// spend marks an id as used, so that no process that shares the store accepts it again. The first result is true if
// the id was not used before.
func (a *Agent) spend(ctx context.Context, id string, until time.Time) (first bool, err error) {
	if a.options.Store == nil {
		return false, call.Refuse("record", call.StoreUnavailable, "%v", a.noStore)
	}
	return a.options.Store.Spend(ctx, id, until)
}

// recoverEvery is how often ambit searches for calls of processes that died.
const recoverEvery = 15 * time.Second

// recover takes over the calls of processes that died. It returns when the agent is closed.
func (a *Agent) recover() {
	ticker := time.NewTicker(recoverEvery)
	defer ticker.Stop()
	for {
		a.Recover()
		select {
		case <-ticker.C:
		case <-a.ctx.Done():
			return
		}
	}
}

// Recover takes over the calls of processes that died. It does nothing if the agent could not start.
func (a *Agent) Recover() {
	// A call may be sent again. For this, the servers must be running.
	if a.manager() == nil || a.noStore != nil || a.trouble() != nil {
		return
	}
	if err := a.gateway.Recover(a.ctx); err != nil && a.ctx.Err() == nil {
		a.options.Log("store",
			"warning: cannot search for unfinished calls of processes that have exited: "+err.Error())
	}
}

// Closed returns a gateway for an agent that is not started. The gateway checks and records calls like the gateway of a
// started agent, but carries out no calls. If a call passes all checks, the gateway answers with the given refusal. If
// the given refusal is nil, the answer is that the agent was not started. The options must contain a store and the
// resolved agent.
func Closed(m *manifest.Manifest, o Options, why *call.Refusal) (*gateway.Gateway, error) {
	a := newAgent(m, o)
	made, err := a.gatewayOptions()
	if err != nil {
		return nil, err
	}
	if made.Closed = why; why == nil {
		made.Binding = notStarted{} // The gateway checks limits and approvals before a call reaches this binding.
	}
	return gateway.New(a.who(), made), nil
}

// notStarted is the binding of an agent that was not started.
type notStarted struct{}

func (notStarted) Act(context.Context, *agent.Tool, *call.Call) (call.Result, error) {
	const why = "the agent was not started, because the call was expected to be refused"
	return call.Result{}, call.Unsent(call.Refuse("act", call.ServerUnavailable, why).Again())
}

// refuseTime is the time limit for recording a refused call.
const refuseTime = 30 * time.Second

// Refuse makes the agent's gateway refuse a call and record the refusal. If the call repeats an earlier call, the
// gateway returns the stored answer instead.
func (a *Agent) Refuse(ctx context.Context, c *call.Call, why *call.Refusal) (call.Result, error) {
	// The refusal must be recorded even if the context has ended because the caller disconnected.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refuseTime)
	defer cancel()
	c.Refused = why
	return a.gateway.Call(ctx, c)
}
