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

// world is a binding that does what the tool's name says, and remembers.
type world struct {
	mu      sync.Mutex
	sent    []string      // ids of the calls that reached it
	began   chan string   // receives calls of tools that wait
	release chan struct{} // lets those go on
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

// clerk is an agent whose tools are named after what they do and how they are
// held: <verb>_<class>.
func clerk() *agent.Agent {
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

// open opens a store.
func open(t testing.TB, db state.DB) *store.Store {
	t.Helper()
	keys, err := identity.OpenKeys(t.TempDir() + "/root")
	if err != nil {
		t.Fatal(err)
	}
	return &store.Store{DB: db, Keys: keys, Journal: journal.New(db, keys.Signer(), "test")}
}

// newGateway makes a gateway with a store of its own.
func newGateway(t testing.TB, w call.Binding) *Gateway {
	t.Helper()
	return New(clerk(), Options{Binding: w, Books: open(t, statetest.Open(t))})
}

// kept is what the store holds after a call.
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

// TestLifecycle holds the code to docs/call-lifecycle.md: what each end of a
// call leaves in the store.
func TestLifecycle(t *testing.T) {
	tests := []struct {
		tool, key, args string
		code            call.Code // empty: it is answered
		stage           string
		effect          call.Effect
		kept            string
		sent            int
	}{
		{tool: "do_read", kept: "leaf allow", sent: 1},
		{tool: "fail_read", kept: "leaf allow", sent: 1},
		{tool: "do_write", kept: "leaf allow", sent: 1},
		{tool: "do_write", key: "k", kept: "key answered, leaf allow", sent: 1},
		{tool: "do_read", key: "k", kept: "key answered, leaf allow", sent: 1},
		{tool: "fail_write", key: "k", kept: "key answered, leaf allow", sent: 1},

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
				t.Errorf("it ended with %v (%+v), want %s at %s with effect %s", err, r, tt.code, tt.stage, tt.effect)
			}
			if got := kept(t, g); got != tt.kept {
				t.Errorf("kept: %s\nwant: %s", got, tt.kept)
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
		args                string // of the second
		principal           string // of the second
		code                call.Code
		replayed            bool
	}{
		{name: "same", first: "do_write", second: "do_write", args: ` { "b" : [2], "a":1 } `, replayed: true},
		{name: "a tool's own failure", first: "fail_write", second: "fail_write", args: same, replayed: true},
		{name: "other digits", first: "do_write", second: "do_write", args: other, code: call.InputInvalid},
		{name: "other tool", first: "do_write", second: "do_idempotent", args: same, code: call.InputInvalid},
		{name: "other principal", first: "do_write", second: "do_write", args: other, principal: "you"},
		{name: "surely not carried out", first: "unreachable_write", second: "do_write", args: other},
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
					t.Errorf("it ended with %v, want %s", err, tt.code)
				}
			case err != nil:
				t.Error(err)
			case tt.replayed && (string(after.Raw) != string(before.Raw) || after.IsError != before.IsError):
				t.Errorf("replayed %s for %s", after.Raw, before.Raw)
			}
			if again := w.count() > sent; again != (tt.code == "" && !tt.replayed) {
				t.Errorf("sent again: %t", again)
			}
			if tt.replayed {
				entries, err := g.store.Journal.Show(t.Context(), journal.Filter{Limit: 1})
				if err != nil || entries[0].Record.Replay != first.ID {
					t.Errorf("the journal does not say whose answer it was: %+v, %v", entries, err)
				}
			}
		})
	}
}

// TestKeyWaits has many calls of one key at once: one is made, all get its
// answer.
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
			t.Errorf("got %s and %s", first, again)
		}
	}
	if w.count() != 1 || !strings.Contains(first, `"was"`) {
		t.Errorf("sent %d times: %s", w.count(), first)
	}
}

// TestLateAnswer settles a call whose time was over.
func TestLateAnswer(t *testing.T) {
	w := newWorld()
	g := newGateway(t, w)
	_, err := g.Call(t.Context(), &call.Call{Tool: "wait_write", IdempotencyKey: "k", Principal: "me", Timeout: time.Millisecond})
	if r, _ := errors.AsType[*call.Refusal](err); r == nil || r.Code != call.TimedOut || r.Effect != call.EffectUnknown || r.Retryable {
		t.Fatalf("it ended with %v", err)
	}
	if got := kept(t, g); got != "call unknown, key claimed, leaf unknown" {
		t.Errorf("kept %s", got)
	}
	close(w.release)
	g.Close()
	if got := kept(t, g); got != "key answered, leaf unknown, leaf allow" {
		t.Errorf("kept %s", got)
	}
}

// TestCancelled has a caller that cancels: the call ends, and its outcome is unknown.
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
		t.Errorf("it ended with %+v", r)
	}
	if got := kept(t, g); got != "call unknown, leaf unknown" {
		t.Errorf("kept %s", got)
	}
}

func TestSettle(t *testing.T) {
	for _, tt := range []struct {
		done bool
		kept string
		sent int // by a second call of the same key
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
				t.Errorf("kept %s, want %s", got, tt.kept)
			}
			if err := Settle(t.Context(), g.store, c.ID, tt.done, "me@local"); !errors.Is(err, ErrNotUnknown) {
				t.Errorf("settled twice: %v", err)
			}
			_, _ = g.Call(t.Context(), &call.Call{Tool: "vanish_write", IdempotencyKey: "k", Principal: "me"})
			if w.count() != tt.sent {
				t.Errorf("sent %d times, want %d", w.count(), tt.sent)
			}
		})
	}
}

// brokenStore fails from some write on.
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

func (b *brokenStore) mend() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writes = 1 << 30
}

// TestRecordedLater: a call whose outcome could not be recorded is settled once the store
// works again. Its process still lives, so no other process would recover it.
func TestRecordedLater(t *testing.T) {
	g := newGateway(t, newWorld())
	broken := &brokenStore{DB: g.store.DB, writes: 1}
	g.store.DB = broken
	_, err := g.Call(t.Context(), &call.Call{Tool: "do_write", Principal: "me"})
	if codeOf(err) != call.OutcomeUnknown {
		t.Fatal(err)
	}
	broken.mend()
	for kept(t, g) != "call unknown, leaf unknown" {
		g.waitForChange(t.Context())
	}
	g.Close()
}

// TestNothingDoneRecordedLater: a call without effect may be repeated once its outcome can
// be recorded. Its key is then free, and it is returned to its limits.
func TestNothingDoneRecordedLater(t *testing.T) {
	g := newGateway(t, absent{})
	broken := &brokenStore{DB: g.store.DB, writes: 1}
	g.store.DB = broken
	pay := func() error {
		_, err := g.Call(t.Context(), &call.Call{Tool: "do_capped", Arguments: jsontext.Value(`{"amount":60}`), IdempotencyKey: "k", Principal: "me"})
		return err
	}
	if r, _ := errors.AsType[*call.Refusal](pay()); r == nil || r.Code != call.StoreUnavailable || !r.Retryable {
		t.Fatalf("it ended with %+v", r)
	}
	broken.mend()
	if err := pay(); codeOf(err) != call.ServerUnavailable { // which waits for the first
		t.Errorf("the call that was to be made again ended with %v", err)
	}
	if got := kept(t, g); got != "leaf deny, leaf deny" {
		t.Errorf("kept: %s", got)
	}
	g.Close()
}

// TestStoreFails shows that nothing happens that cannot be kept, and that no
// answer is released.
func TestStoreFails(t *testing.T) {
	tests := []struct {
		tool   string
		writes int // that succeed
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
				t.Errorf("it ended with %+v and %s", r, result.Raw)
			}
			if w.count() != tt.sent {
				t.Errorf("sent %d times", w.count())
			}
			g.Close()
		})
	}
}
