package gateway

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

const unspoken = "the content of a message"

func crash() { panic("cannot handle " + unspoken) }

// crashing is a binding that panics, or runs a function before it answers.
type crashing struct{ before func() }

func (c *crashing) Act(context.Context, *agent.Tool, *call.Call) (call.Result, error) {
	if c.before != nil {
		c.before()
	}
	return call.Result{Raw: jsontext.Value(`{"content":[]}`)}, nil
}

func (c *crashing) Forward(context.Context, *call.Forward) (jsontext.Value, error) {
	crash()
	return nil, nil
}

// TestPanic makes a call during which ambit panics. The call is refused and recorded, and further calls work.
func TestPanic(t *testing.T) {
	const early, inAct, inGuard, inRecord, inObserve = "early", "act", "guard out", "guard out and record", "observe"
	for _, tt := range []struct {
		where, tool, key, stage string
		effect                  call.Effect
		unsent                  bool
		kept                    string
	}{
		{early, "do_write", "k", "resolve", call.NoEffect, true, "leaf deny"},
		{inAct, "do_read", "", stageAct, call.NoEffect, false, "leaf deny"},
		{inAct, "do_write", "", stageAct, call.EffectUnknown, false, "call unknown, leaf unknown"},
		{inAct, "do_idempotent", "k", stageAct, call.EffectUnknown, false, "call unknown, key claimed, leaf unknown"},
		{inGuard, "do_read", "", guard.StageOut, call.NoEffect, false, "leaf deny"},
		{inGuard, "do_write", "k", guard.StageOut, call.EffectDone, false, "key done, leaf deny"},
		{inRecord, "do_read", "", guard.StageOut, call.NoEffect, false, ""},
		{inObserve, "do_read", "", stageFlow, call.NoEffect, false, "leaf allow"},
		{inObserve, "do_write", "k", stageFlow, call.EffectDone, false, "key answered, leaf allow"},
	} {
		t.Run(tt.where+" "+tt.tool, func(t *testing.T) {
			var panics []string
			left, acted := 1, false // how often ambit still panics, and whether the binding has run
			if tt.where == inRecord {
				left = 2
			}
			at := func(where ...string) {
				if left > 0 && slices.Contains(where, tt.where) {
					left--
					crash()
				}
			}
			a, flow := behaviorAgent(), NewFlow()
			memories := flow.memories
			g := New(a, Options{
				Store: open(t, statetest.Open(t)), Flow: flow,
				Binding: &crashing{before: func() {
					acted = true
					if at(inAct); tt.where == inObserve {
						flow.memories = nil
					}
				}},
				Learned: func(context.Context) (*agent.Agent, *call.Refusal) { at(early); return a, nil },
				Known: func() ([]guard.Known, error) {
					if acted {
						at(inGuard, inRecord)
					}
					return nil, nil
				},
				OnPanic: func(description string) { panics = append(panics, description) },
			})
			result, err := g.Call(t.Context(), &call.Call{Tool: tt.tool, IdempotencyKey: tt.key, Principal: "me"})
			r, _ := errors.AsType[*call.Refusal](err)
			if r == nil || r.Code != call.ServerUnavailable || r.Stage != tt.stage || r.Effect != tt.effect || r.Unsent != tt.unsent ||
				r.Retryable || result.Raw != nil {
				t.Errorf("the call ended with %s, %v (%+v)", result.Raw, err, r)
			}
			if got := kept(t, g); got != tt.kept {
				t.Errorf("the store has %q, want %q", got, tt.kept)
			}
			if left != 0 && tt.where != inObserve || len(panics) == 0 || !strings.Contains(panics[0], "gateway.(*Gateway).") || strings.Contains(panics[0], unspoken) {
				t.Errorf("the panics are described as %q", panics)
			}
			flow.memories, tt.where = memories, ""
			if _, err := g.Call(t.Context(), &call.Call{Tool: "do_write", Principal: "me"}); err != nil {
				t.Errorf("the next call ended with %v", err)
			}
			g.Close()
		})
	}
}

// badParticipant panics while it records the outcome of a call, but not after that.
type badParticipant struct{ records int }

func (*badParticipant) Begin(state.Tx, *call.Call) (*call.Refusal, error) { return nil, nil }

func (b *badParticipant) Record(state.Tx, *call.Call, call.Outcome) error {
	if b.records++; b.records == 1 {
		crash()
	}
	return nil
}

// until waits until the store has the given content, as described by kept.
func until(t *testing.T, g *Gateway, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for kept(t, g) != want {
		if ctx.Err() != nil {
			t.Fatalf("the store has %q, want %q", kept(t, g), want)
		}
		g.waitForChange(ctx)
	}
}

// If ambit panics while it records the outcome of a call that may have had an effect, the outcome becomes unknown while
// this process runs. A call that was not sent is refused, and its key is free again.
func TestPanicInRecord(t *testing.T) {
	for _, tt := range []struct {
		tool   string
		effect call.Effect
		kept   string
	}{
		{"do_write", call.EffectUnknown, "call unknown, key claimed, leaf unknown"},
		{"do_idempotent", call.EffectUnknown, "call unknown, key claimed, leaf unknown"},
		{"unreachable_write", call.NoEffect, "leaf deny"},
	} {
		t.Run(tt.tool, func(t *testing.T) {
			var panics []string
			g := New(behaviorAgent(), Options{
				Store: open(t, statetest.Open(t)), Binding: newWorld(), Participants: []Participant{&badParticipant{}},
				OnPanic: func(description string) { panics = append(panics, description) },
			})
			defer g.Close()
			_, err := g.Call(t.Context(), &call.Call{Tool: tt.tool, IdempotencyKey: "k", Principal: "me"})
			if r, _ := errors.AsType[*call.Refusal](err); r == nil || r.Stage != stageRecord || r.Effect != tt.effect || len(panics) != 1 {
				t.Errorf("the call ended with %v (%+v); panics %q", err, r, panics)
			}
			until(t, g, tt.kept)
		})
	}
}

// If the outcome of a call cannot be recorded because of a second panic, it becomes unknown while this process runs.
func TestPanicAgainInRecord(t *testing.T) {
	panics, left, acted := 0, 2, false
	g := New(behaviorAgent(), Options{
		Store: open(t, statetest.Open(t)), Binding: &crashing{before: func() { acted = true }},
		Known: func() ([]guard.Known, error) {
			if acted && left > 0 {
				left--
				crash()
			}
			return nil, nil
		},
		OnPanic: func(string) { panics++ },
	})
	defer g.Close()
	_, err := g.Call(t.Context(), &call.Call{Tool: "do_write", IdempotencyKey: "k", Principal: "me"})
	if codeOf(err) != call.ServerUnavailable || left != 0 || panics != 2 {
		t.Errorf("the call ended with %v after %d panics", err, panics)
	}
	until(t, g, "call unknown, key claimed, leaf unknown")
}

// A panic during recovery affects one call: its outcome becomes unknown, and the next call is sent again.
func TestPanicInRecovery(t *testing.T) {
	for _, where := range []string{"resolve", "guard out", "record"} {
		t.Run(where, func(t *testing.T) {
			var panics []string
			left := 1
			at := func(here string) {
				if left > 0 && here == where {
					left--
					crash()
				}
			}
			a, w := behaviorAgent(), newWorld()
			g := New(a, Options{
				Store: open(t, statetest.Open(t)), Binding: w,
				Learned: func(context.Context) (*agent.Agent, *call.Refusal) { return a, nil },
				Known: func() ([]guard.Known, error) {
					if w.count() > 0 {
						at("guard out")
					}
					return nil, nil
				},
				OnPanic: func(description string) { panics = append(panics, description) },
			})
			defer g.Close()
			orphaned(t, g)
			orphaned(t, g)
			g.options.Learned = func(context.Context) (*agent.Agent, *call.Refusal) { at("resolve"); return a, nil }
			g.store.DB = &panickingStore{DB: g.store.DB, write: func() {
				if w.count() > 0 {
					at("record")
				}
			}}
			if err := g.Recover(t.Context()); err != nil {
				t.Errorf("the recovery ended with %v", err)
			}
			if got, want := kept(t, g), "call unknown, leaf unknown, leaf allow"; got != want {
				t.Errorf("the store has %q, want %q", got, want)
			}
			if len(panics) != 1 || !strings.Contains(panics[0], "gateway.(*Gateway).resend") {
				t.Errorf("the panics are described as %q", panics)
			}
		})
	}
}

// panickingStore calls a function before each write. If alive is set, it panics when it is asked for an owner.
type panickingStore struct {
	state.DB
	write func()
	alive bool
}

func (p *panickingStore) Write(ctx context.Context, f func(state.Tx) error) error {
	p.write()
	return p.DB.Write(ctx, f)
}

func (p *panickingStore) Alive(ctx context.Context, owner string) (bool, error) {
	if p.alive {
		crash()
	}
	return p.DB.Alive(ctx, owner)
}

// If ambit panics again while it gives up a call, or outside of single calls, recovery ends with an error.
func TestRecoveryThatKeepsPanicking(t *testing.T) {
	panics := 0
	g := newGateway(t, newWorld())
	defer g.Close()
	g.options.OnPanic = func(string) { panics++ }
	orphaned(t, g)
	orphaned(t, g)
	db := &panickingStore{DB: g.store.DB, write: crash}
	g.store.DB = db
	if err := g.Recover(t.Context()); !errors.Is(err, errBroken) || panics != 4 || kept(t, g) != "call sending, call sending" {
		t.Errorf("the recovery ended with %v after %d panics; the store has %q", err, panics, kept(t, g))
	}
	db.alive = true
	if err := g.Recover(t.Context()); err == nil || panics != 5 {
		t.Errorf("the recovery ended with %v after %d panics", err, panics)
	}
}

// A refused call stays refused with the same effect if ambit panics while it remembers the text of the refusal.
func TestPanicAfterRefusal(t *testing.T) {
	flow := NewFlow()
	var panics []string
	w := newWorld()
	g := New(behaviorAgent(), Options{
		Store: open(t, statetest.Open(t)), Flow: flow, Binding: w,
		OnPanic: func(description string) { panics = append(panics, description) },
		Known:   func() ([]guard.Known, error) { flow.memories = nil; return nil, nil }, // the refusal of the binding is scanned
	})
	_, err := g.Call(t.Context(), &call.Call{Tool: "vanish_write", Principal: "me"})
	if r, _ := errors.AsType[*call.Refusal](err); r == nil || r.Effect != call.EffectUnknown || r.Stage != stageFlow || len(panics) != 1 {
		t.Errorf("the call ended with %v (%+v); panics %q", err, r, panics)
	}
	if got, want := kept(t, g), "call unknown, leaf unknown"; got != want {
		t.Errorf("the store has %q, want %q", got, want)
	}
}

// If ambit panics while it handles a late answer, the outcome stays unknown.
func TestPanicInLateAnswer(t *testing.T) {
	var panics []string
	late := false
	w := newWorld()
	g := New(behaviorAgent(), Options{
		Store: open(t, statetest.Open(t)), Binding: w,
		OnPanic: func(description string) { panics = append(panics, description) },
		Known: func() ([]guard.Known, error) {
			if late {
				crash()
			}
			return nil, nil
		},
	})
	_, err := g.Call(t.Context(), &call.Call{Tool: "wait_write", Principal: "me", Timeout: time.Millisecond})
	if codeOf(err) != call.TimedOut {
		t.Errorf("the call ended with %v", err)
	}
	late = true
	close(w.release)
	g.Close()
	if got, want := kept(t, g), "call unknown, leaf unknown"; got != want || len(panics) != 1 {
		t.Errorf("the store has %q, want %q; panics %q", got, want, panics)
	}
}

// A request during which ambit panics is recorded and refused.
func TestPanicInForward(t *testing.T) {
	broken := NewFlow()
	broken.memories = nil
	for decision, o := range map[journal.Decision]Options{
		journal.Unknown: {Binding: &crashing{}},
		journal.Allow:   {Binding: &server{answer: jsontext.Value(`{}`)}, Flow: broken},
	} {
		var panics []string
		o.Store, o.Expose = open(t, statetest.Open(t)), Exposed{Resources}
		o.OnPanic = func(description string) { panics = append(panics, description) }
		g := New(railed(agent.Guardrails{}), o)
		answer, err := g.Forward(t.Context(), &call.Forward{Server: "s", Method: "resources/read", Params: jsontext.Value(`{"uri":"a"}`), Principal: "me"})
		if r, _ := errors.AsType[*call.Refusal](err); r == nil || r.Code != call.ServerUnavailable || answer != nil || len(panics) != 1 {
			t.Errorf("the request ended with %s, %v; panics %q", answer, err, panics)
		}
		entries, err := g.store.Journal.Show(t.Context(), journal.Filter{})
		if err != nil || len(entries) != 1 || entries[0].Decision != decision {
			t.Errorf("the journal has %+v, %v; want the decision %s", entries, err, decision)
		}
	}
}
