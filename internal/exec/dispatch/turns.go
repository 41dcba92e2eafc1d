package dispatch

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// turns bounds how many calls run in this process at once. A free turn goes to the
// waiter with the lowest level, see [waiter.levelAt].
type turns struct {
	step time.Duration

	mu      sync.Mutex
	free    int
	waiting []*waiter
}

type waiter struct {
	level int64
	since time.Time
	turn  chan struct{} // closed when the waiter has its turn
}

// wait returns when the caller has a turn, or with ctx's error. done returns the
// turn.
func (t *turns) wait(ctx context.Context, level int64, since time.Time) (done func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w := &waiter{level: level, since: since, turn: make(chan struct{})}
	t.mu.Lock()
	t.waiting = append(t.waiting, w)
	t.assign()
	t.mu.Unlock()
	select {
	case <-w.turn:
		return t.done, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := slices.Index(t.waiting, w); at >= 0 {
		t.waiting = slices.Delete(t.waiting, at, at+1)
		return nil, ctx.Err()
	}
	t.free++ // the turn came together with the end of ctx
	t.assign()
	return nil, ctx.Err()
}

func (t *turns) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	t.assign()
}

// assign gives the free turns to waiters, by level and then by age.
func (t *turns) assign() {
	now := time.Now()
	for t.free > 0 && len(t.waiting) > 0 {
		next := slices.MinFunc(t.waiting, func(a, b *waiter) int {
			return cmp.Or(cmp.Compare(a.levelAt(now, t.step), b.levelAt(now, t.step)), a.since.Compare(b.since))
		})
		at := slices.Index(t.waiting, next)
		t.waiting = slices.Delete(t.waiting, at, at+1)
		t.free--
		close(next.turn)
	}
}

// levelAt returns the level after the rises so far: one for each step of waiting.
func (w *waiter) levelAt(now time.Time, step time.Duration) int64 {
	return max(1, w.level-int64(now.Sub(w.since)/step))
}
