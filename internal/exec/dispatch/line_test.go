package dispatch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestLine gives one turn every ten seconds, while an urgent one always waits:
// what can wait has its turn when it has risen twice.
func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(1, 30*time.Second)
		done, err := l.wait(t.Context(), High.level(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		turns := make(chan Priority, 1)
		join := func(p Priority) {
			go func() {
				if _, err := l.wait(t.Context(), p.level(), time.Now()); err == nil {
					turns <- p
				}
			}()
			synctest.Wait()
		}
		join(Low)
		join(High)
		var waited time.Duration
		for p := High; p != Low; p = <-turns {
			if waited > 5*time.Minute {
				t.Fatal("the low one starves")
			}
			join(High)
			time.Sleep(10 * time.Second)
			waited += 10 * time.Second
			done()
		}
		// Those that waited before it rose are older only within a level.
		if waited < 60*time.Second || waited > 80*time.Second {
			t.Errorf("its turn came after %v", waited)
		}
	})
}

// TestLeavingTheLine gives up a place, and a turn that has just come.
func TestLeavingTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(1, time.Minute)
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
			t.Error("its place is kept")
		}
		done()
		if l.free != 1 {
			t.Errorf("%d turns are free", l.free)
		}
	})
}
