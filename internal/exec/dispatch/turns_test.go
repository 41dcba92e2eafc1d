package dispatch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestTurns assigns one turn every ten seconds while an urgent caller is always waiting. The
// low-priority caller must get a turn after it has risen by two levels.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &turnQueue{free: 1, step: 30 * time.Second}
		done, err := l.wait(t.Context(), High.level(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		next := make(chan Priority, 1)
		join := func(p Priority) {
			go func() {
				if _, err := l.wait(t.Context(), p.level(), time.Now()); err == nil {
					next <- p
				}
			}()
			synctest.Wait()
		}
		join(Low)
		join(High)
		var waited time.Duration
		for p := High; p != Low; p = <-next {
			if waited > 5*time.Minute {
				t.Fatal("the caller of low priority gets no turn")
			}
			join(High)
			time.Sleep(10 * time.Second)
			waited += 10 * time.Second
			done()
		}
		// The age of a waiter matters only within a level.
		if waited < 60*time.Second || waited > 80*time.Second {
			t.Errorf("the turn came after %v, want 60s to 80s", waited)
		}
	})
}

// TestStopWaiting checks that a cancelled wait uses no turn.
func TestStopWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &turnQueue{free: 1, step: time.Minute}
		done, err := l.wait(t.Context(), 1, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { _, err := l.wait(ctx, 1, time.Now()); left <- err }()
		synctest.Wait()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if len(l.waiting) != 0 {
			t.Error("the cancelled caller is still waiting")
		}
		done()
		if l.free != 1 {
			t.Errorf("%d turns are free, want 1", l.free)
		}
	})
}
