package dispatch

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/state"
)

// stranded returns a daemon with an in-process queue, and an intent that the daemon could not run.
// A reload had removed the agent before the intent's turn.
func stranded(t *testing.T) (*rig, *Intent) {
	t.Helper()
	begun, end := make(chan struct{}), make(chan struct{})
	dir := t.TempDir()
	r := newRig(t, filepath.Join(dir, "state.db"), dir, echo(agent.NetworkOff, 0), func(ctx context.Context, c *call.Call) (call.Result, error) {
		if strings.HasPrefix(textOf(c), "first") {
			close(begun)
			<-end
		}
		return answer(ctx, c)
	}, Options{Concurrency: 1, Daemon: true})
	first := r.submit("first", "")
	<-begun
	i := r.submit("second", "")
	r.away.Store(true)
	if got, err := r.Get(t.Context(), i.ID); err != nil || got.State != Queued {
		t.Errorf("before the intent's turn: error %v, intent %+v; want queued", err, got)
	}
	close(end)
	if got := r.wait(first.ID); got.State != Done {
		t.Errorf("the running intent is %s, want done", got.State)
	}
	return r, i
}

// TestServedAgain checks that the intent runs once if the agent is added again.
func TestServedAgain(t *testing.T) {
	t.Parallel()
	r, i := stranded(t)
	until(t, "the intent is shown as no_worker", func() bool { got, err := r.Get(t.Context(), i.ID); return err == nil && got.State == NoWorker })
	r.away.Store(false)
	if got := r.wait(i.ID); got.State != Done || got.Attempts != 1 {
		t.Errorf("intent = %+v, want done after 1 attempt", got)
	}
}

// TestNeverServedAgain checks an intent whose agent is not added again. Waiting callers see
// no_worker, and the intent can be canceled.
func TestNeverServedAgain(t *testing.T) {
	t.Parallel()
	r, i := stranded(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := r.Wait(ctx, i.ID, func(i *Intent) {
		if i.State == NoWorker {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := r.cleanUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Get(t.Context(), i.ID); err != nil || got.State != NoWorker {
		t.Errorf("error %v, intent %+v; want no_worker", err, got)
	}
	if err := r.Cancel(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	if got := r.wait(i.ID); got.State != Cancelled || got.Attempts != 0 {
		t.Errorf("intent = %+v, want cancelled without an attempt", got)
	}
}

// TestOthersWait checks an intent that waits in another live process. A daemon without the intent's
// agent must ignore the intent. The intent is not an orphan and is not shown as no_worker.
func TestOthersWait(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	dir := t.TempDir()
	place := filepath.Join(dir, "state.db")
	owner := newRig(t, place, dir, echo(agent.NetworkOff, 0), func(ctx context.Context, c *call.Call) (call.Result, error) {
		if strings.HasPrefix(textOf(c), "first") {
			close(begun)
			<-end
		}
		return answer(ctx, c)
	}, Options{Concurrency: 1})
	owner.submit("first", "")
	<-begun
	i := owner.submit("second", "")
	daemon := newRig(t, place, dir, echo(agent.NetworkFull, 0), answer, Options{Daemon: true})
	for _, r := range []*rig{owner, daemon} {
		if orphans, err := r.orphans(t.Context()); err != nil || len(orphans) != 0 {
			t.Errorf("error %v, %d orphans; want 0", err, len(orphans))
		}
		if got, err := r.Get(t.Context(), i.ID); err != nil || got.State != Queued {
			t.Errorf("error %v, intent %+v; want queued", err, got)
		}
	}
	close(end)
	if got := daemon.wait(i.ID); got.State != Done || got.Attempts != 1 {
		t.Errorf("intent = %+v, want done after 1 attempt", got)
	}
}

// nosy is a store that calls a function after each commit, before the writer continues.
type nosy struct {
	state.DB
	wrote func()
}

func (n nosy) Write(ctx context.Context, f func(state.Tx) error) error {
	err := n.DB.Write(ctx, f)
	n.wrote()
	return err
}

// TestNewIsReserved searches for orphans right after an intent was written. The new intent
// must not be an orphan, because this process is about to run it.
func TestNewIsReserved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := asker(t, filepath.Join(dir, "state.db"), dir)
	db, polls := r.store.DB, 0
	r.store.DB = nosy{db, func() {
		polls++
		if orphans, err := r.orphans(t.Context()); err != nil || len(orphans) != 0 {
			t.Errorf("error %v, %d orphans; want 0", err, len(orphans))
		}
	}}
	r.submit("x", "")
	r.store.DB = db // the intent may begin when the test releases its turn
	if polls != 1 {
		t.Errorf("Submit wrote %d times, want once", polls)
	}
}
