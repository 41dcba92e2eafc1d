package dispatch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/state"
)

// endless is a store in which no intent ever ends.
type endless struct {
	state.DB
	changed func(context.Context) error
}

func (endless) Read(context.Context, func(state.Tx) error) error { return nil }
func (s endless) Changed(ctx context.Context) error              { return s.changed(ctx) }

// watching returns a queue that can only watch intents.
func watching(t *testing.T, changed func(context.Context) error) *Queue {
	t.Helper()
	d := &Queue{store: &store.Store{DB: endless{changed: changed}}, watched: map[string]*watchedIntent{}}
	d.ctx, d.cancel = context.WithCancel(t.Context())
	return d
}

// TestPollingContinues checks that polling continues after an error from the store.
func TestPollingContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		polls := 0
		d := watching(t, func(ctx context.Context) error {
			if polls++; polls == 1 {
				return errors.New("the store is unreachable")
			}
			<-ctx.Done()
			return ctx.Err()
		})
		_, leave := d.watch("a")
		defer leave()
		time.Sleep(2 * recheckInterval)
		synctest.Wait()
		if polls != 2 {
			t.Errorf("the store was polled %d times, want 2", polls)
		}
		d.cancel()
		synctest.Wait()
		if d.polling {
			t.Error("a closed queue still polls")
		}
	})
}

// TestOnePoller checks a caller that arrives just after the last caller has left. If the old poller
// is still running, the new caller must not start a second poller.
func TestOnePoller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		polling, commit := 0, make(chan struct{})
		d := watching(t, func(context.Context) error {
			polling++
			<-commit
			polling--
			return nil
		})
		_, leave := d.watch("a")
		synctest.Wait()
		leave()
		_, leave = d.watch("b")
		for range 2 {
			synctest.Wait()
			if polling != 1 {
				t.Errorf("%d pollers are running, want 1", polling)
			}
			commit <- struct{}{}
			time.Sleep(2 * batchDelay)
		}
		leave()
		synctest.Wait()
		commit <- struct{}{}
		time.Sleep(2 * batchDelay)
		synctest.Wait()
		if d.polling || polling != 0 {
			t.Error("the poller runs although no caller waits")
		}
		// The next caller starts the poller again.
		_, leave = d.watch("c")
		synctest.Wait()
		if polling != 1 {
			t.Errorf("%d pollers are running, want 1", polling)
		}
		leave()
		close(commit)
		d.cancel()
	})
}
