package engine

import (
	"context"
	"sync"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
)

// WaitTime bounds a wait: see state.DB. A test makes it longer to see that waits
// end for a better reason.
var WaitTime = time.Second

// Watch tells those who wait about commits. Commits of this opening wake them
// at once; for those of others it looks again and again while somebody waits.
type Watch struct {
	// Look returns a word that differs from the last one if something was
	// committed in between. It is called by one goroutine at a time.
	Look func() (string, error)
	// First is the time between two looks. It grows to Longest while nothing
	// happens.
	First, Longest time.Duration

	mu      sync.Mutex
	waiters map[chan error]bool
	running chan struct{} // closed when the looking ends; nil when nobody looks
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
		go w.run()
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
		waiter <- err // there is room for one, and it leaves with it
	}
	clear(w.waiters)
}

// run looks while somebody waits. What was committed while nobody waited counts
// as news for the first who does.
func (w *Watch) run() {
	pause := w.First
	for !w.idle() {
		word, err := w.Look()
		if err != nil || word != w.seen {
			w.end(err)
			w.seen, pause = word, w.First
		}
		time.Sleep(pause)
		pause = min(pause*3/2, w.Longest)
	}
}

// idle ends the looking when nobody waits.
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

// Close ends every wait, and returns when Look is no longer called.
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
