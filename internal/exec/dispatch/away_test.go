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

// stranded is a daemon with an intent in process whose agent a reload took away
// while it waited, and whose turn has come.
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
		t.Errorf("what was under way is %s", got.State)
	}
	return r, i
}

// TestServedAgain brings the agent back: the intent is done, once.
func TestServedAgain(t *testing.T) {
	t.Parallel()
	r, i := stranded(t)
	until(t, "it is told that nobody can do it", func() bool { got, err := r.Get(t.Context(), i.ID); return err == nil && got.State == NoWorker })
	r.away.Store(false)
	if got := r.wait(i.ID); got.State != Done || got.Attempts != 1 {
		t.Errorf("%+v", got)
	}
}

// TestNeverServedAgain leaves the agent away: whoever waits is told, and whoever
// gives up has it cancelled.
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
	if err := r.tidy(t.Context()); err != nil {
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

// TestOthersWait looks from a daemon that does not serve it at what a process that
// lives has waiting: that is not nobody's.
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
		if left, err := r.left(t.Context()); err != nil || len(left) != 0 {
			t.Errorf("%v: %d are taken for left", err, len(left))
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

// nosy is a store that tells of what was committed before whoever wrote it goes on.
type nosy struct {
	state.DB
	wrote func()
}

func (n nosy) Write(ctx context.Context, f func(state.Tx) error) error {
	err := n.DB.Write(ctx, f)
	n.wrote()
	return err
}

// TestNewIsInHand looks for what was left the moment an intent is written: it must
// not be taken over from whoever is about to begin it.
func TestNewIsInHand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := asker(t, filepath.Join(dir, "state.db"), dir)
	db, looks := r.books.DB, 0
	r.books.DB = nosy{db, func() {
		looks++
		if left, err := r.left(t.Context()); err != nil || len(left) != 0 {
			t.Errorf("%v: %d are taken for left", err, len(left))
		}
	}}
	r.submit("x", "")
	r.books.DB = db // it may begin when the turn is given back
	if looks != 1 {
		t.Errorf("%d writes", looks)
	}
}
