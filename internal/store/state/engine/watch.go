package engine

import (
	"context"
	"sync"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
)

// WaitTime is the maximum duration of Wait; see the method Changed of state.DB. Tests make WaitTime longer, so that
// only a commit can make Wait return.
var WaitTime = time.Second

// Watch lets goroutines wait for commits. This process calls Wake after each of its own commits. Watch detects the
// commits of other processes by polling. It polls only while a goroutine waits.
type Watch struct {
	// Look returns a string that changes with every commit. Only one goroutine at a time calls Look.
	Look func() (string, error)
	// First is the initial pause between polls. The pause grows up to Longest. When a poll detects a commit, the pause
	// becomes First again.
	First, Longest time.Duration

	mu      sync.Mutex
	waiters map[chan error]bool
	running chan struct{} // a channel that is closed when polling stops; nil while no goroutine polls
	closed  bool
	seen    string // the last result of Look
}

// Wait returns nil when something may have been committed, and after WaitTime at the latest. It fails if ctx is done,
// Look fails, or the Watch is closed.
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

// Wake makes all pending calls to Wait return nil.
func (w *Watch) Wake() { w.end(nil) }

func (w *Watch) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for waiter := range w.waiters {
		waiter <- err // this never blocks, because each waiter receives one value and the channel buffers it
	}
	clear(w.waiters)
}

// poll calls Look repeatedly while there are waiters. It wakes the waiters if there was a commit since the last call of
// Look.
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

// idle reports whether polling can stop, because there are no waiters or the Watch is closed. If so, idle also marks
// polling as stopped.
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

// Close makes all calls of Wait return ErrClosed. It waits until the last call of Look has returned.
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
