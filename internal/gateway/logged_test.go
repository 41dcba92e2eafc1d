package gateway

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/sqlite"
)

// twoProcesses returns two stores in one home, as two processes have them. The first process has a write-ahead log that
// only the second one posts, because the first one cannot write to the store.
func twoProcesses(t *testing.T) (first, second *store.Store) {
	t.Helper()
	dir := t.TempDir()
	connect := func() state.DB {
		db, err := sqlite.Open(t.Context(), filepath.Join(dir, "state.db"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return db
	}
	first = open(t, connect())
	second = store.New(connect(), first.Keys, nil)
	for _, b := range []*store.Store{first, second} {
		b.Journal.SetWALDir(filepath.Join(dir, "daybooks"))
	}
	first.Journal.StartWAL()
	first.Journal.Through(&brokenStore{DB: first.DB})
	return first, second
}

// during is a server that runs a function while it handles a call.
type during func()

func (d during) Act(context.Context, *agent.Tool, *call.Call) (call.Result, error) {
	d()
	return call.Result{Raw: jsontext.Value(`{"content":[]}`)}, nil
}

// TestLoggedIntent checks that the intent of a call is on disk before the call is sent, although no transaction has
// stored it. Another process finds the intent, and leaves the call alone while the first process lives.
func TestLoggedIntent(t *testing.T) {
	first, second := twoProcesses(t)
	other := New(behaviorAgent(), Options{Binding: newWorld(), Store: second})
	g := New(behaviorAgent(), Options{Store: first, Binding: during(func() {
		if err := other.Recover(t.Context()); err != nil {
			t.Error(err)
		}
		if got := kept(t, other); got != "call sending" {
			t.Errorf("while the call runs, the store has: %s", got)
		}
	})})
	if _, err := g.Call(t.Context(), &call.Call{Tool: "do_write", Principal: "me"}); err != nil {
		t.Fatal(err)
	}
	if got := kept(t, other); got != "leaf allow" {
		t.Errorf("after the call, the store has: %s", got)
	}
}

// TestLoggedOutcomeOfDeadProcess checks that recovery reads the outcomes in the write-ahead log of a dead process before
// it decides that the outcome of a call is unknown.
func TestLoggedOutcomeOfDeadProcess(t *testing.T) {
	first, second := twoProcesses(t)
	other := New(behaviorAgent(), Options{Binding: newWorld(), Store: second})
	g := New(behaviorAgent(), Options{Store: first, Binding: during(func() { _ = second.Journal.Post(t.Context()) })})
	if _, err := g.Call(t.Context(), &call.Call{Tool: "do_write", Principal: "me"}); err != nil {
		t.Fatal(err)
	}
	owner := first.DB.Owner()
	if err := first.DB.Close(); err != nil {
		t.Fatal(err)
	}
	if err := other.inherit(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	if got := kept(t, other); got != "leaf allow" {
		t.Errorf("after recovery, the store has: %s", got)
	}
}

// TestLoggedIntentOfDeadProcess checks that the outcome of a call is unknown if its process died without an outcome.
func TestLoggedIntentOfDeadProcess(t *testing.T) {
	first, second := twoProcesses(t)
	other := New(behaviorAgent(), Options{Binding: newWorld(), Store: second})
	g := New(behaviorAgent(), Options{Store: first})
	p := &inflight{Call: &call.Call{ID: NewID(), Tool: "do_write", Principal: "me"}}
	if stopped := resolveStage(g, t.Context(), p); stopped != nil || !g.logIntent(p) {
		t.Fatalf("the intent was not written: %v", stopped)
	}
	if err := first.DB.Close(); err != nil {
		t.Fatal(err)
	}
	if err := other.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := kept(t, other); got != "call unknown, leaf unknown" {
		t.Errorf("after recovery, the store has: %s", got)
	}
}

// twice allows a call at the first check and denies it at the second check.
type twice struct {
	gate.Policy
	meanwhile func()
	checks    int
}

func (p *twice) Judge(context.Context, *agent.Agent, string, *agent.Tool, *call.Call) []call.Reason {
	if p.checks++; p.checks == 1 {
		return []call.Reason{{Allowed: true}}
	}
	p.meanwhile()
	return []call.Reason{{Stage: gate.Stage, Code: call.PolicyDenied}}
}

// TestRevokedAfterLoggedIntent checks that a call is not sent if it is denied after its intent was written.
func TestRevokedAfterLoggedIntent(t *testing.T) {
	first, second := twoProcesses(t)
	other, w := New(behaviorAgent(), Options{Store: second}), newWorld()
	policy := &twice{meanwhile: func() {
		if got := kept(t, other); got != "call sending" {
			t.Errorf("during the second check, the store has: %s", got)
		}
	}}
	g := New(behaviorAgent(), Options{Store: first, Binding: w, Rules: gate.Rules{Policy: policy}})
	_, err := g.Call(t.Context(), &call.Call{Tool: "do_write", Principal: "me"})
	r, _ := errors.AsType[*call.Refusal](err)
	if r == nil || r.Code != call.PolicyDenied || !r.Unsent || r.Effect != call.NoEffect || w.count() != 0 {
		t.Errorf("the call ended with %+v, and %d calls were sent", r, w.count())
	}
	if got := kept(t, other); got != "leaf deny" {
		t.Errorf("after the call, the store has: %s", got)
	}
}

// TestLoggedIntentAfterRotation checks that a process with a write-ahead log sends nothing after a rotation.
func TestLoggedIntentAfterRotation(t *testing.T) {
	first, second := twoProcesses(t)
	w := newWorld()
	g := New(behaviorAgent(), Options{Store: first, Binding: w})
	write := func() error {
		_, err := g.Call(t.Context(), &call.Call{Tool: "do_write", Principal: "me"})
		return err
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	handOver(t, second, second.DB)
	refusedAfterRotation(t, "the call", write())
	if w.count() != 1 {
		t.Errorf("%d calls were sent, want 1", w.count())
	}
}

// TestLateOutcomeOfLoggedIntent checks a logged call whose outcome the write-ahead log cannot take.
func TestLateOutcomeOfLoggedIntent(t *testing.T) {
	b := newGateway(t, nil).store
	g := New(behaviorAgent(), Options{Store: b, Binding: during(func() {
		if err := b.Journal.Close(context.Background()); err != nil { // closes the log, but not the store
			t.Error(err)
		}
	})})
	if _, err := g.Call(t.Context(), &call.Call{Tool: "do_write", Principal: "me"}); err != nil {
		t.Fatal(err)
	}
	if got := kept(t, g); got != "leaf allow" {
		t.Errorf("the store has: %s", got)
	}
}
