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

// still is a store in which nothing ever ends.
type still struct {
	state.DB
	changed func(context.Context) error
}

func (still) Read(context.Context, func(state.Tx) error) error { return nil }
func (s still) Changed(ctx context.Context) error              { return s.changed(ctx) }

// watching is a desk of which only the watching is there.
func watching(t *testing.T, changed func(context.Context) error) *Queue {
	t.Helper()
	d := &Queue{books: &store.Store{DB: still{changed: changed}}, watched: map[string]*watched{}}
	d.ctx, d.cancel = context.WithCancel(t.Context())
	return d
}

// TestLookGoesOn has the store fail: whoever waits is looked after again when it is
// back.
func TestLookGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		d := watching(t, func(ctx context.Context) error {
			if looks++; looks == 1 {
				return errors.New("it is away")
			}
			<-ctx.Done()
			return ctx.Err()
		})
		_, leave := d.watch("a")
		defer leave()
		time.Sleep(2 * lookAgain)
		synctest.Wait()
		if looks != 2 {
			t.Errorf("%d looks", looks)
		}
		d.cancel()
		synctest.Wait()
		if d.looking {
			t.Error("a closed desk looks on")
		}
	})
}

// TestOneLooks has somebody come after the last one left, and before that was
// noticed: still only one looks.
func TestOneLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looking, commit := 0, make(chan struct{})
		d := watching(t, func(context.Context) error {
			looking++
			<-commit
			looking--
			return nil
		})
		_, leave := d.watch("a")
		synctest.Wait()
		leave()
		_, leave = d.watch("b")
		for range 2 {
			synctest.Wait()
			if looking != 1 {
				t.Errorf("%d look", looking)
			}
			commit <- struct{}{}
			time.Sleep(2 * gather)
		}
		leave()
		synctest.Wait()
		commit <- struct{}{}
		time.Sleep(2 * gather)
		synctest.Wait()
		if d.looking || looking != 0 {
			t.Error("somebody looks though nobody waits")
		}
		// The next one is looked after.
		_, leave = d.watch("c")
		synctest.Wait()
		if looking != 1 {
			t.Errorf("%d look", looking)
		}
		leave()
		close(commit)
		d.cancel()
	})
}
