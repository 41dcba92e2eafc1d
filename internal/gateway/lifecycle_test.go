package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// world is a binding that records the calls that reach it. The first word of the tool's name selects the behavior
// of the binding.
type world struct {
	mu      sync.Mutex
	sent    []string      // ids of the calls that reached the binding
	began   chan string   // receives the id of each call that begins to wait
	release chan struct{} // closed to let the waiting calls continue
}

func newWorld() *world {
	return &world{began: make(chan string, 8), release: make(chan struct{})}
}

func (w *world) Act(ctx context.Context, t *agent.Tool, c *call.Call) (call.Result, error) {
	w.mu.Lock()
	w.sent = append(w.sent, c.ID)
	w.mu.Unlock()
	answer := call.Result{Raw: jsontext.Value(`{"content":[],"was":"` + c.ID + `"}`)}
	verb, _, _ := strings.Cut(t.Name, "_")
	switch verb {
	case "fail":
		answer.IsError = true
	case "unreachable":
		return call.Result{}, call.Refuse("act", call.ServerUnavailable, "not sent").Again()
	case "vanish":
		return call.Result{}, call.Uncertain("act", call.ServerUnavailable, "went away")
	case "odd":
		return call.Result{}, io.ErrUnexpectedEOF
	case "withheld":
		r := call.Refuse("guard out", call.SecretLeak, "withheld")
		r.Effect = call.EffectDone
		return call.Result{}, r
	case "wait":
		w.began <- c.ID
		select {
		case <-w.release:
		case <-ctx.Done():
			return call.Result{}, call.Uncertain("act", call.TimedOut, "cancelled")
		}
	}
	return answer, nil
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.sent)
}

// behaviorAgent returns an agent whose tools are named <behavior>_<class>. The behavior is what the binding does, and
// the class is the tool's side effect or policy.
func behaviorAgent() *agent.Agent {
	a := &agent.Agent{
		Name: "Clerk", ID: "matrix://agent/clerk", Digest: "sha256:d1",
		SideEffects: agent.SideEffectPolicy{Restricted: true, Allowed: []agent.SideEffect{agent.Read, agent.Write}},
		Servers:     []agent.Server{{Alias: "s"}},
	}
	for _, name := range []string{"do", "fail", "unreachable", "vanish", "odd", "withheld", "wait"} {
		for class, policy := range map[string]agent.ToolPolicy{
			"read": {}, "write": {}, "idempotent": {Idempotent: true},
			"capped": {Spend: &agent.Cap{PerCall: "60", PerDay: "100.00"}},
			"rated":  {Rate: &agent.Rate{Count: 2, Per: time.Hour}},
		} {
			t := agent.Tool{Name: name + "_" + class, SideEffect: agent.Write, Policy: policy, Binding: agent.OnServer{Alias: "s"}}
			if class == "read" {
				t.SideEffect = agent.Read
			}
			a.Tools = append(a.Tools, t)
		}
	}
	a.Tools = append(a.Tools, agent.Tool{Name: "do_shell", SideEffect: agent.Shell, Binding: agent.OnServer{Alias: "s"}})
	return a
}

// open returns a store in db, with new keys.
func open(t testing.TB, db state.DB) *store.Store {
	t.Helper()
	keys, err := identity.OpenKeys(t.TempDir() + "/root")
	if err != nil {
		t.Fatal(err)
	}
	return store.New(db, keys, nil)
}

// newGateway makes a gateway with a new store.
func newGateway(t testing.TB, w call.Binding) *Gateway {
	t.Helper()
	return New(behaviorAgent(), Options{Binding: w, Store: open(t, statetest.Open(t))})
}

// kept describes the calls, keys and journal records that are in the store.
func kept(t testing.TB, g *Gateway) string {
	t.Helper()
	var rows []string
	ctx := context.Background()
	err := g.store.DB.Read(ctx, func(tx state.Tx) error {
		rows = nil
		err := tx.Query(`SELECT state FROM calls ORDER BY started`, nil, func(row state.Row) error {
			var s string
			err := row.Scan(&s)
			rows = append(rows, "call "+s)
			return err
		})
		return errors.Join(err, tx.Query(`SELECT sealed, done FROM answers ORDER BY idem`, nil, func(row state.Row) error {
			var sealed []byte
			var done int64
			err := row.Scan(&sealed, &done)
			switch {
			case done == 0:
				rows = append(rows, "key claimed")
			case sealed == nil:
				rows = append(rows, "key done")
			default:
				rows = append(rows, "key answered")
			}
			return err
		}))
	})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := g.store.Journal.Show(ctx, journal.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(entries) // oldest first
	for _, e := range entries {
		rows = append(rows, "leaf "+string(e.Record.Decision))
	}
	return strings.Join(rows, ", ")
}

// TestLifecycle checks what the store contains after each possible end of a call, as docs/call-lifecycle.md
// describes.
func TestLifecycle(t *testing.T) {
	tests := []struct {
		tool, key, args string
		code            call.Code // empty if the call is answered
		stage           string
		effect          call.Effect
		kept            string
		sent            int
	}{
		{tool: "do_read", kept: "leaf allow", sent: 1},
		{tool: "fail_read", kept: "leaf failed", sent: 1},
		{tool: "do_write", kept: "leaf allow", sent: 1},
		{tool: "do_write", key: "k", kept: "key answered, leaf allow", sent: 1},
		{tool: "do_read", key: "k", kept: "key answered, leaf allow", sent: 1},
		{tool: "fail_write", key: "k", kept: "key answered, leaf failed", sent: 1},

		{tool: "do_write", args: `[]`, code: call.InputInvalid, stage: "admit", effect: call.NoEffect, kept: "leaf deny"},
		{tool: "do_write", key: "a\x00b", code: call.InputInvalid, stage: "remember", effect: call.NoEffect, kept: "leaf deny"},
		{tool: "do_write", key: strings.Repeat("k", 257), code: call.InputInvalid, stage: "remember", effect: call.NoEffect, kept: "leaf deny"},
		{tool: "nothing", code: call.UnknownTool, stage: "resolve", effect: call.NoEffect, kept: "leaf deny"},
		{tool: "do_shell", key: "k", code: call.SideEffectDenied, stage: "gate", effect: call.NoEffect, kept: "leaf deny"},
		{tool: "do_capped", args: `{"amount":60.01}`, key: "k", code: call.AmountExceeded, stage: "limit", effect: call.NoEffect, kept: "leaf deny"},

		{tool: "unreachable_read", code: call.ServerUnavailable, stage: "act", effect: call.NoEffect, kept: "leaf deny", sent: 1},
		{tool: "unreachable_write", key: "k", code: call.ServerUnavailable, stage: "act", effect: call.NoEffect, kept: "leaf deny", sent: 1},
		{tool: "vanish_write", code: call.ServerUnavailable, stage: "act", effect: call.EffectUnknown, kept: "call unknown, leaf unknown", sent: 1},
		{tool: "vanish_idempotent", key: "k", code: call.ServerUnavailable, stage: "act", effect: call.EffectUnknown, kept: "call unknown, key claimed, leaf unknown", sent: 1},
		{tool: "odd_write", code: call.ServerUnavailable, stage: "act", effect: call.EffectUnknown, kept: "call unknown, leaf unknown", sent: 1},
		{tool: "withheld_write", key: "k", code: call.SecretLeak, stage: "guard out", effect: call.EffectDone, kept: "key done, leaf deny", sent: 1},
	}
	for _, tt := range tests {
		t.Run(tt.tool+" "+tt.key+tt.args, func(t *testing.T) {
			w := newWorld()
			g := newGateway(t, w)
			_, err := g.Call(t.Context(), &call.Call{Tool: tt.tool, Arguments: jsontext.Value(tt.args), IdempotencyKey: tt.key, Principal: "me"})
			if tt.code == "" && err != nil {
				t.Fatal(err)
			}
			if r, _ := errors.AsType[*call.Refusal](err); tt.code != "" && (r == nil || r.Code != tt.code || r.Stage != tt.stage || r.Effect != tt.effect) {
				t.Errorf("the call ended with %v (%+v), want %s at %s with effect %s", err, r, tt.code, tt.stage, tt.effect)
			}
			if got := kept(t, g); got != tt.kept {
				t.Errorf("the store has: %s\nwant: %s", got, tt.kept)
			}
			if w.count() != tt.sent {
				t.Errorf("sent %d times, want %d", w.count(), tt.sent)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	const same, other = `{"a":1,"b":[2]}`, `{"a":1.0,"b":[2]}`
	tests := []struct {
		name, first, second string // tools
		args                string // arguments of the second call
		principal           string // principal of the second call
		code                call.Code
		replayed            bool
	}{
		{name: "same", first: "do_write", second: "do_write", args: ` { "b" : [2], "a":1 } `, replayed: true},
		{name: "an error result of the tool", first: "fail_write", second: "fail_write", args: same, replayed: true},
		{name: "other digits", first: "do_write", second: "do_write", args: other, code: call.InputInvalid},
		{name: "other tool", first: "do_write", second: "do_idempotent", args: same, code: call.InputInvalid},
		{name: "other principal", first: "do_write", second: "do_write", args: other, principal: "you"},
		{name: "certainly not carried out", first: "unreachable_write", second: "do_write", args: other},
		{name: "unknown", first: "vanish_write", second: "vanish_write", args: same, code: call.OutcomeUnknown},
		{name: "withheld", first: "withheld_write", second: "withheld_write", args: same, code: call.OutcomeUnknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			g := newGateway(t, w)
			first := &call.Call{Tool: tt.first, Arguments: jsontext.Value(same), IdempotencyKey: "k", Principal: "me"}
			before, _ := g.Call(t.Context(), first)
			sent := w.count()
			if tt.principal == "" {
				tt.principal = "me"
			}
			after, err := g.Call(t.Context(), &call.Call{Tool: tt.second, Arguments: jsontext.Value(tt.args), IdempotencyKey: "k", Principal: tt.principal})
			r, _ := errors.AsType[*call.Refusal](err)
			switch {
			case tt.code != "":
				if r == nil || r.Code != tt.code || r.Effect != call.NoEffect {
					t.Errorf("the call ended with %v, want %s", err, tt.code)
				}
			case err != nil:
				t.Error(err)
			case tt.replayed && (string(after.Raw) != string(before.Raw) || after.IsError != before.IsError):
				t.Errorf("replayed %s, want %s", after.Raw, before.Raw)
			}
			if again := w.count() > sent; again != (tt.code == "" && !tt.replayed) {
				t.Errorf("the second call was sent: %t", again)
			}
			if tt.replayed {
				entries, err := g.store.Journal.Show(t.Context(), journal.Filter{Limit: 1})
				if err != nil || entries[0].Record.Replay != first.ID {
					t.Errorf("the journal does not name the call that the answer belongs to: %+v, %v", entries, err)
				}
			}
		})
	}
}

// TestKeyWaits makes concurrent calls with the same key. One call must be sent, and all calls must get its answer.
func TestKeyWaits(t *testing.T) {
	w := newWorld()
	g := newGateway(t, w)
	const n = 8
	answers := make(chan string, n)
	for range n {
		go func() {
			r, err := g.Call(context.Background(), &call.Call{Tool: "wait_write", IdempotencyKey: "k", Principal: "me"})
			answers <- fmt.Sprint(string(r.Raw), err)
		}()
	}
	<-w.began
	close(w.release)
	first := <-answers
	for range n - 1 {
		if again := <-answers; again != first {
			t.Errorf("got the different answers %s and %s", first, again)
		}
	}
	if w.count() != 1 || !strings.Contains(first, `"was"`) {
		t.Errorf("sent %d times: %s", w.count(), first)
	}
}

// TestLateAnswer checks that a late answer settles a call that timed out.
func TestLateAnswer(t *testing.T) {
	w := newWorld()
	g := newGateway(t, w)
	_, err := g.Call(t.Context(), &call.Call{Tool: "wait_write", IdempotencyKey: "k", Principal: "me", Timeout: time.Millisecond})
	if r, _ := errors.AsType[*call.Refusal](err); r == nil || r.Code != call.TimedOut || r.Effect != call.EffectUnknown || r.Retryable {
		t.Fatalf("the call ended with %v", err)
	}
	if got := kept(t, g); got != "call unknown, key claimed, leaf unknown" {
		t.Errorf("the store has: %s", got)
	}
	close(w.release)
	g.Close()
	if got := kept(t, g); got != "key answered, leaf unknown, leaf allow" {
		t.Errorf("the store has: %s", got)
	}
}

// TestCancelled checks that a call ends with an unknown outcome if its caller cancels it.
func TestCancelled(t *testing.T) {
	w := newWorld()
	g := newGateway(t, w)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := g.Call(ctx, &call.Call{Tool: "wait_write", Principal: "me"})
		ended <- err
	}()
	<-w.began
	cancel()
	if r, _ := errors.AsType[*call.Refusal](<-ended); r == nil || r.Effect != call.EffectUnknown {
		t.Errorf("the call ended with %+v", r)
	}
	if got := kept(t, g); got != "call unknown, leaf unknown" {
		t.Errorf("the store has: %s", got)
	}
}

func TestSettle(t *testing.T) {
	for _, tt := range []struct {
		done bool
		kept string
		sent int // number of calls sent after a second call with the same key
	}{
		{true, "key done, leaf unknown, leaf allow", 1},
		{false, "leaf unknown, leaf deny", 2},
	} {
		t.Run(fmt.Sprint(tt.done), func(t *testing.T) {
			w := newWorld()
			g := newGateway(t, w)
			c := &call.Call{Tool: "vanish_write", IdempotencyKey: "k", Principal: "me"}
			_, _ = g.Call(t.Context(), c)
			if err := Settle(t.Context(), g.store, c.ID, tt.done, "me@local"); err != nil {
				t.Fatal(err)
			}
			if got := kept(t, g); got != tt.kept {
				t.Errorf("the store has: %s, want %s", got, tt.kept)
			}
			if err := Settle(t.Context(), g.store, c.ID, tt.done, "me@local"); !errors.Is(err, ErrNotUnknown) {
				t.Errorf("settling the call twice returned %v, want ErrNotUnknown", err)
			}
			_, _ = g.Call(t.Context(), &call.Call{Tool: "vanish_write", IdempotencyKey: "k", Principal: "me"})
			if w.count() != tt.sent {
				t.Errorf("sent %d times, want %d", w.count(), tt.sent)
			}
		})
	}
}

// brokenStore fails all writes after a number of successful writes.
type brokenStore struct {
	state.DB
	mu     sync.Mutex
	writes int
}

func (b *brokenStore) Write(ctx context.Context, f func(state.Tx) error) error {
	b.mu.Lock()
	b.writes--
	broken := b.writes < 0
	b.mu.Unlock()
	if broken {
		return errors.New("disk full")
	}
	return b.DB.Write(ctx, f)
}

func (b *brokenStore) repair() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writes = 1 << 30
}

// TestRecordedLater checks a call whose outcome could not be recorded. The process settles the call as soon as
// the store works again. No other process recovers such a call while this process is running.
func TestRecordedLater(t *testing.T) {
	g := newGateway(t, newWorld())
	broken := &brokenStore{DB: g.store.DB, writes: 1}
	g.store.DB = broken
	_, err := g.Call(t.Context(), &call.Call{Tool: "do_write", Principal: "me"})
	if codeOf(err) != call.OutcomeUnknown {
		t.Fatal(err)
	}
	broken.repair()
	for kept(t, g) != "call unknown, leaf unknown" {
		g.waitForChange(t.Context())
	}
	g.Close()
}

// TestNothingDoneRecordedLater checks that a call without an effect can be repeated after its outcome was recorded. The
// record releases the call's idempotency key, and the call no longer counts toward its limits.
func TestNothingDoneRecordedLater(t *testing.T) {
	g := newGateway(t, absent{})
	broken := &brokenStore{DB: g.store.DB, writes: 1}
	g.store.DB = broken
	pay := func() error {
		_, err := g.Call(t.Context(), &call.Call{Tool: "do_capped", Arguments: jsontext.Value(`{"amount":60}`), IdempotencyKey: "k", Principal: "me"})
		return err
	}
	if r, _ := errors.AsType[*call.Refusal](pay()); r == nil || r.Code != call.StoreUnavailable || !r.Retryable {
		t.Fatalf("the call ended with %+v", r)
	}
	broken.repair()
	if err := pay(); codeOf(err) != call.ServerUnavailable { // the repeated call waits until the first call is recorded
		t.Errorf("the repeated call ended with %v", err)
	}
	if got := kept(t, g); got != "leaf deny, leaf deny" {
		t.Errorf("the store has: %s", got)
	}
	g.Close()
}

// TestStoreFails checks that a call with an effect is not made if its intent cannot be stored. It also checks
// that an answer is not returned if the answer cannot be recorded.
func TestStoreFails(t *testing.T) {
	tests := []struct {
		tool   string
		writes int // how many writes succeed before the store fails
		code   call.Code
		effect call.Effect
		sent   int
	}{
		{"do_read", 0, call.StoreUnavailable, call.NoEffect, 1},
		{"do_write", 0, call.StoreUnavailable, call.NoEffect, 0},
		{"do_write", 1, call.OutcomeUnknown, call.EffectUnknown, 1},
		{"unreachable_write", 1, call.StoreUnavailable, call.NoEffect, 1},
		{"nothing", 0, call.StoreUnavailable, call.NoEffect, 0},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.tool, tt.writes), func(t *testing.T) {
			w := newWorld()
			g := newGateway(t, w)
			g.store.DB = &brokenStore{DB: g.store.DB, writes: tt.writes}
			g.store.Journal.Through(g.store.DB)
			result, err := g.Call(t.Context(), &call.Call{Tool: tt.tool, Principal: "me"})
			r, _ := errors.AsType[*call.Refusal](err)
			if r == nil || r.Code != tt.code || r.Effect != tt.effect || result.Raw != nil {
				t.Errorf("the call ended with %+v and %s", r, result.Raw)
			}
			if w.count() != tt.sent {
				t.Errorf("sent %d times", w.count())
			}
			g.Close()
		})
	}
}
