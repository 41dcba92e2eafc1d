package host

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/books"
	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/dispatch"
	"github.com/ambit-run/ambit/internal/front"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/grant"
	"github.com/ambit-run/ambit/internal/limit"
	"github.com/ambit-run/ambit/internal/memory"
)

// open makes the door.
func (a *Agent) open() {
	defer close(a.opened)
	b := a.options.Books
	if b == nil {
		if a.options.OpenBooks == nil {
			a.shut = errors.New("there is no store")
			return
		}
		if b, a.shut = a.options.OpenBooks(a.ctx); a.shut != nil {
			return
		}
		a.books = b
	}
	if a.doorOptions, a.shut = a.outfit(b); a.shut != nil {
		return
	}
	a.door = gateway.New(a.manifest.Agent(), a.doorOptions)
}

// outfit is what every door of the agent is made of: whichever a call comes to, it
// is judged by the same rules, and the same is left out of its record.
func (a *Agent) outfit(b *books.Books) (gateway.Options, error) {
	ttl, err := memory.TTL(a.options.Home)
	if err != nil {
		return gateway.Options{}, err
	}
	a.memory = memory.Of(b, ttl)
	quotas, err := limit.ReadQuotas(a.options.Home)
	if err != nil {
		return gateway.Options{}, err
	}
	rules := a.options.Rules
	if rules.Grants == nil {
		rules.Grants = grant.Of(b).For(a.manifest.Agent().ID)
	}
	rules.Lacks = a.lacks
	return gateway.Options{
		Name: a.name, Binding: binding{of: a}, Books: b, Rules: rules, Expose: a.options.Expose, Operator: a.options.Operator, Known: a.known, Quotas: quotas,
		Participants: a.participants(b), Approvals: a.options.Approvals,
		OnAsk: func(message string) { a.options.Log("approvals", message) },
	}, nil
}

// participants take part in the calls of a program; other agents have none.
func (a *Agent) participants(b *books.Books) []gateway.Participant {
	who := a.manifest.Agent()
	if !dispatch.TakesIntents(who) {
		return nil
	}
	return []gateway.Participant{
		dispatch.Participant(b, who, a.options.Unconfined), memory.Participant{Memory: a.memory, Agent: who},
	}
}

// currentDoor is the agent's door, after open.
func (a *Agent) currentDoor() *gateway.Gateway {
	if a.lazy != nil {
		if g := a.lazy.door.Load(); g != nil {
			return g
		}
	}
	return a.door
}

// remembered is the memory of an agent's program, which is asked for behind the
// door, so when that is open.
type remembered struct{ of *Agent }

func (r remembered) Lines(ctx context.Context, agentID string) ([]byte, int, error) {
	<-r.of.opened
	return r.of.memory.Lines(ctx, agentID)
}

// door is the agent's gateway to its front, which may ask before it is there.
type door struct{ of *Agent }

func (d door) Agent() *agent.Agent { return d.of.who() }

// Open waits for the agent's gateway, or returns the refusal of every call.
func (a *Agent) Open(ctx context.Context) (*gateway.Gateway, error) {
	if !came(ctx, a.opened) {
		return nil, call.Refuse("record", call.TimedOut, "the store was not open in time").Again()
	}
	if a.door == nil {
		return nil, call.Refuse("record", call.StoreUnavailable, "%v", a.shut)
	}
	if a.lazy != nil && !came(ctx, a.up) {
		return nil, call.Refuse("resolve", call.TimedOut, "it was not found out in time what the agent's servers are").Again()
	}
	return a.currentDoor(), nil
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

// Call makes a call, once the door is there.
func (d door) Call(ctx context.Context, c *call.Call) (call.Result, error) {
	g, err := d.of.Open(ctx)
	if err != nil {
		return call.Result{}, err
	}
	return g.Call(ctx, c)
}

// Forward takes a request to a server, once the door is there.
func (d door) Forward(ctx context.Context, f *call.Forward) (jsontext.Value, error) {
	g, err := d.of.Open(ctx)
	if err != nil {
		return nil, err
	}
	return g.Forward(ctx, f)
}

var _ front.Door = door{}
