package dispatch

import (
	"context"
	"sync"
	"time"
)

// line is who waits for a turn in this process. A turn goes to the best of those
// who wait when it becomes free.
type line struct {
	step time.Duration

	mu      sync.Mutex
	free    int
	waiting []*place
}

type place struct {
	level int64
	since time.Time
	turn  chan struct{}
}

func newLine(turns int, step time.Duration) *line { return &line{free: turns, step: step} }

// wait returns when it is this one's turn, which done gives back, or with ctx's
// error.
func (l *line) wait(ctx context.Context, level int64, since time.Time) (done func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p := &place{level: level, since: since, turn: make(chan struct{})}
	l.mu.Lock()
	l.waiting = append(l.waiting, p)
	l.serve()
	l.mu.Unlock()
	select {
	case <-p.turn:
		return l.done, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, other := range l.waiting {
		if other == p {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			return nil, ctx.Err()
		}
	}
	l.free++ // its turn had just come
	l.serve()
	return nil, ctx.Err()
}

func (l *line) done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free++
	l.serve()
}

// serve gives away the turns that are free.
func (l *line) serve() {
	now := time.Now()
	for l.free > 0 && len(l.waiting) > 0 {
		best := 0
		for i := range l.waiting {
			if l.sooner(l.waiting[i], l.waiting[best], now) {
				best = i
			}
		}
		p := l.waiting[best]
		l.waiting = append(l.waiting[:best], l.waiting[best+1:]...)
		l.free--
		close(p.turn)
	}
}

// sooner orders by level, which falls with the time waited, and then by age.
func (l *line) sooner(a, b *place, now time.Time) bool {
	if x, y := l.risen(a, now), l.risen(b, now); x != y {
		return x < y
	}
	return a.since.Before(b.since)
}

func (l *line) risen(p *place, now time.Time) int64 {
	return max(1, p.level-int64(now.Sub(p.since)/l.step))
}
