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

// stranded returns a daemon with a waiting intent in process. A reload has removed the
// intent's agent, and then the intent's turn has come.
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
		t.Errorf("before its turn: %v %+v", err, got)
	}
	close(end)
	if got := r.wait(first.ID); got.State != Done {
		t.Errorf("the running intent is %s", got.State)
	}
	return r, i
}

// TestServedAgain adds the agent again: the intent runs once.
func TestServedAgain(t *testing.T) {
	t.Parallel()
	r, i := stranded(t)
	until(t, "the intent is shown as no_worker", func() bool { got, err := r.Get(t.Context(), i.ID); return err == nil && got.State == NoWorker })
	r.away.Store(false)
	if got := r.wait(i.ID); got.State != Done || got.Attempts != 1 {
		t.Errorf("%+v", got)
	}
}

// TestNeverServedAgain leaves the agent out: waiting callers see no_worker, and a
// caller that stops waiting cancels the intent.
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
		t.Errorf("%v %+v", err, got)
	}
	if err := r.Cancel(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	if got := r.wait(i.ID); got.State != Cancelled || got.Attempts != 0 {
		t.Errorf("%+v", got)
	}
}

// TestOthersWait: an intent that waits in another live process is neither an orphan nor
// without a worker for a daemon that does not serve its agent.
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
			t.Errorf("%v: %d orphans", err, len(orphans))
		}
		if got, err := r.Get(t.Context(), i.ID); err != nil || got.State != Queued {
			t.Errorf("%v %+v", err, got)
		}
	}
	close(end)
	if got := daemon.wait(i.ID); got.State != Done || got.Attempts != 1 {
		t.Errorf("%+v", got)
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

// TestNewIsReserved polls for orphans at the moment an intent is written: it must not be
// taken over from the process that is about to run it.
func TestNewIsReserved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := asker(t, filepath.Join(dir, "state.db"), dir)
	db, polls := r.store.DB, 0
	r.store.DB = nosy{db, func() {
		polls++
		if orphans, err := r.orphans(t.Context()); err != nil || len(orphans) != 0 {
			t.Errorf("%v: %d orphans", err, len(orphans))
		}
	}}
	r.submit("x", "")
	r.store.DB = db // it may begin when the turn is given back
	if polls != 1 {
		t.Errorf("%d writes", polls)
	}
}
