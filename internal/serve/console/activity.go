package console

import (
	"context"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/store/journal"
)

const (
	// span is the time between adjacent points of a chart. A chart covers one day.
	span   = 5 * time.Minute
	points = 24 * 12
	// maxPast is the maximum number of old journal records that are read.
	maxPast = 20000
)

// activity counts recent calls for the charts. It reads the journal, so it also counts the calls of other processes.
type activity struct {
	watching atomic.Int64 // the number of open event streams

	mu    sync.Mutex
	idle  *time.Timer     // the timer that stops the counting; nil if nothing is counted
	slots map[int64]*slot // by time divided by span
}

// slot is one point of a chart. took[i] counts the calls that lasted 2^i to 2^(i+1) microseconds.
type slot struct {
	calls, refused, unknown int
	took                    [48]int
	spent                   float64
}

func newActivity() *activity { return &activity{slots: map[int64]*slot{}} }

func (a *activity) count(e *journal.Entry) {
	if e.Kind != "" || e.Erased {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.slotAt(e.Time)
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

// slotAt returns the slot for a time. It also deletes slots that are older than a day. The caller must hold the mutex.
func (a *activity) slotAt(t time.Time) *slot {
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

// recordSpending records the total amount that all tools with a spending limit have spent today.
func (a *activity) recordSpending(list []limit.Spent, now time.Time) {
	sum := 0.0
	for _, s := range list {
		if v, err := strconv.ParseFloat(s.Amount, 64); err == nil {
			sum += v
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slotAt(now).spent = sum
}

// quantile returns the q-quantile of the latencies in milliseconds. It returns 0 if there were no calls.
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
			return math.Exp2(float64(i)+0.5) / 1000 // the middle of the interval
		}
	}
	return 0
}

// series is one line of a chart.
type series struct {
	Name, Class string
	Values      []float64
}

// read returns the lines of the three charts, and the time of their first point.
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
		line("median", "a", func(s *slot) float64 { return s.quantile(0.5) }),
		line("95th percentile", "b", func(s *slot) float64 { return s.quantile(0.95) }),
	}
	spent = []series{line("spent today", "a", func(s *slot) float64 { return s.spent })}
	return start, calls, latency, spent
}

// idleTime is the time from the last page view until the counting of calls stops.
const idleTime = 10 * time.Minute

// watchActivity starts a goroutine that counts calls for the charts. The goroutine ends idleTime after the last call of
// watchActivity.
func (c *Console) watchActivity() {
	a := c.activity
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.idle != nil {
		a.idle.Reset(idleTime)
		return
	}
	ctx, cancel := context.WithCancel(c.o.Context)
	a.idle = time.AfterFunc(idleTime, cancel)
	go func() {
		err := c.follow(ctx)
		if ctx.Err() == nil {
			c.o.Log("console: the charts are no longer updated: %v", err)
		}
		cancel()
		a.mu.Lock()
		defer a.mu.Unlock()
		a.idle.Stop()
		a.idle, a.slots = nil, map[int64]*slot{}
	}()
}

// follow counts the calls of the last day. It then counts new calls until ctx is done.
func (c *Console) follow(ctx context.Context) error {
	ends, err := c.o.Journal.Ends(ctx)
	if err != nil {
		return err
	}
	past, err := c.o.Journal.Show(ctx, journal.Filter{Since: time.Now().Add(-points * span), Limit: maxPast, Before: ends})
	if err != nil {
		return err
	}
	for i := range past {
		c.activity.count(&past[i])
	}
	return c.o.Journal.Follow(ctx, ends, journal.Filter{}, func(e journal.Entry) error {
		c.activity.count(&e)
		return nil
	})
}
