package console

import (
	"context"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ambit-run/ambit/internal/store/journal"
)

const (
	// span is how much time one point of a chart stands for, points how many
	// there are.
	span   = 5 * time.Minute
	points = 24 * 12
	// maxPast bounds how much of the journal is read for the time before the
	// daemon started.
	maxPast = 20000
)

// activity counts what happened lately, for charts. It is fed by the journal, so
// that it shows what other processes did too.
type activity struct {
	watching atomic.Int64

	mu    sync.Mutex
	rest  *time.Timer     // nil while nobody looks
	slots map[int64]*slot // by time over span
}

// slot is one point in time. Latencies are kept as counts of powers of two of
// microseconds: that is exact enough for a chart.
type slot struct {
	calls, refused, unknown int
	took                    [48]int
	spent                   float64
}

func newActivity() *activity { return &activity{slots: map[int64]*slot{}} }

// take counts a record.
func (a *activity) take(e *journal.Entry) {
	if e.Kind != "" || e.Erased {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.at(e.Time)
	s.calls++
	switch e.Decision {
	case journal.Deny:
		s.refused++
	case journal.Unknown:
		s.unknown++
	default:
		s.took[min(len(s.took)-1, int(math.Log2(float64(max(e.DurationUS, 1)))))]++
	}
}

// at is the slot of a time. The caller holds the lock.
func (a *activity) at(t time.Time) *slot {
	n := t.UnixNano() / int64(span)
	s := a.slots[n]
	if s == nil {
		for old := range a.slots {
			if old <= n-points {
				delete(a.slots, old)
			}
		}
		s = new(slot)
		a.slots[n] = s
	}
	return s
}

// spend notes what capped tools have used up today, as far as amounts are
// numbers.
func (a *activity) spend(list []Spent, now time.Time) {
	sum := 0.0
	for _, s := range list {
		if v, err := strconv.ParseFloat(s.Amount, 64); err == nil {
			sum += v
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at(now).spent = sum
}

// quantile is a latency that so much of the calls stayed under.
func (s *slot) quantile(q float64) float64 {
	n := 0
	for _, c := range s.took {
		n += c
	}
	if n == 0 {
		return 0
	}
	seen := 0
	for i, c := range s.took {
		if seen += c; float64(seen) >= q*float64(n) {
			return math.Exp2(float64(i)+0.5) / 1000 // the middle, in milliseconds
		}
	}
	return 0
}

// series is a line of a chart.
type series struct {
	Name, Class string
	Values      []float64
}

// read makes the series of the charts, and the time of their first point.
func (a *activity) read(now time.Time) (start time.Time, calls, latency, spent []series) {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := now.UnixNano() / int64(span)
	line := func(name, class string, f func(*slot) float64) series {
		s := series{Name: name, Class: class, Values: make([]float64, points)}
		for i := range s.Values {
			if at := a.slots[last-points+1+int64(i)]; at != nil {
				s.Values[i] = f(at)
			}
		}
		return s
	}
	start = time.Unix(0, (last-points+1)*int64(span))
	calls = []series{
		line("calls", "a", func(s *slot) float64 { return float64(s.calls) }),
		line("refused", "b", func(s *slot) float64 { return float64(s.refused) }),
		line("unknown", "c", func(s *slot) float64 { return float64(s.unknown) }),
	}
	latency = []series{
		line("half of the calls", "a", func(s *slot) float64 { return s.quantile(0.5) }),
		line("95 of 100", "b", func(s *slot) float64 { return s.quantile(0.95) }),
	}
	spent = []series{line("spent today", "a", func(s *slot) float64 { return s.spent })}
	return start, calls, latency, spent
}

// idle is how long the journal is still followed when nobody looks any more.
const idle = 10 * time.Minute

// seen says that somebody looks. Charts are kept up to date from then on, for a
// while: nobody should pay for what nobody sees.
func (c *Console) seen() {
	a := c.activity
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rest != nil {
		a.rest.Reset(idle)
		return
	}
	ctx, cancel := context.WithCancel(c.o.Context)
	a.rest = time.AfterFunc(idle, cancel)
	go func() {
		err := c.follow(ctx)
		if ctx.Err() == nil {
			c.o.Log("the console's charts stand still: %v", err)
		}
		cancel()
		a.mu.Lock()
		defer a.mu.Unlock()
		a.rest.Stop()
		a.rest, a.slots = nil, map[int64]*slot{}
	}()
}

// follow counts what the journal tells of the last day, and goes on until ctx
// ends.
func (c *Console) follow(ctx context.Context) error {
	ends, err := c.o.House.Ends(ctx)
	if err != nil {
		return err
	}
	past, err := c.o.House.Show(ctx, journal.Filter{Since: time.Now().Add(-points * span), Limit: maxPast, Before: ends})
	if err != nil {
		return err
	}
	for i := range past {
		c.activity.take(&past[i])
	}
	return c.o.House.Follow(ctx, ends, journal.Filter{}, func(e journal.Entry) error {
		c.activity.take(&e)
		return nil
	})
}
