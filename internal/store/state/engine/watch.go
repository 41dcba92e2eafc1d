package engine

import (
	"context"
	"sync"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
)

// WaitTime bounds a wait: see state.DB. Tests make it longer to see that a wait ends
// because of a commit.
var WaitTime = time.Second

// Watch wakes waiters after commits. Commits of this process wake them at once; to find
// commits of other processes, Watch polls while there are waiters.
type Watch struct {
	// Look returns a string that changes with every commit. One goroutine at a time calls
	// it.
	Look func() (string, error)
	// First is the time between two polls. It grows to Longest while there are no
	// commits.
	First, Longest time.Duration

	mu      sync.Mutex
	waiters map[chan error]bool
	running chan struct{} // closed when polling ends; nil while nothing polls
	closed  bool
	seen    string
}

// Wait returns when something may have been committed.
func (w *Watch) Wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	waiter := make(chan error, 1)
	if !w.join(waiter) {
		return state.ErrClosed
	}
	timer := time.NewTimer(WaitTime)
	defer timer.Stop()
	select {
	case err := <-waiter:
		return err
	case <-timer.C:
		w.leave(waiter)
		return nil
	case <-ctx.Done():
		w.leave(waiter)
		return ctx.Err()
	}
}

func (w *Watch) join(waiter chan error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	if w.waiters == nil {
		w.waiters = map[chan error]bool{}
	}
	w.waiters[waiter] = true
	if w.running == nil {
		w.running = make(chan struct{})
		go w.poll()
	}
	return true
}

func (w *Watch) leave(waiter chan error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiters, waiter)
}

// Wake ends every wait.
func (w *Watch) Wake() { w.end(nil) }

func (w *Watch) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for waiter := range w.waiters {
		waiter <- err // never blocks: the buffer holds one, and the waiter is removed below
	}
	clear(w.waiters)
}

// poll runs while there are waiters. Commits made while there were none wake the first
// waiter.
func (w *Watch) poll() {
	pause := w.First
	for !w.idle() {
		now, err := w.Look()
		if err != nil || now != w.seen {
			w.end(err)
			w.seen, pause = now, w.First
		}
		time.Sleep(pause)
		pause = min(pause*3/2, w.Longest)
	}
}

// idle ends the polling when there are no waiters.
func (w *Watch) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiters) > 0 && !w.closed {
		return false
	}
	close(w.running)
	w.running = nil
	return true
}

// Close ends every wait. It returns when Look is no longer called.
func (w *Watch) Close() {
	w.mu.Lock()
	w.closed = true
	running := w.running
	w.mu.Unlock()
	w.end(state.ErrClosed)
	if running != nil {
		<-running
	}
}
