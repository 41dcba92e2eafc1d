package console

import (
	"context"
	"maps"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/store/journal"
)

const (
	// span is the duration of one slot. The slots cover one week.
	span  = time.Minute
	slots = 7 * 24 * 60
	// maxPast is the maximum number of old journal records that are counted. batch is the number of records that are
	// read at once.
	maxPast, batch = 200_000, 10_000
)

// activity counts recent calls for the charts. It reads the journal, so it also counts the calls of other processes.
type activity struct {
	watching atomic.Int64 // the number of open event streams

	mu    sync.Mutex
	idle  *time.Timer     // the timer that stops the counting; nil if nothing is counted
	slots map[int64]*slot // the slots by number, which is the time divided by span
	last  map[string]time.Time
	since time.Time // the time before which no calls are counted
}

// slot counts the calls of one interval. took[i] counts the calls that lasted 2^i to 2^(i+1) microseconds.
type slot struct {
	Calls, Refused, Failed, Unknown uint32
	took                            [36]uint32
}

func newActivity() *activity {
	return &activity{slots: map[int64]*slot{}, last: map[string]time.Time{}, since: time.Now()}
}

func (a *activity) count(e *journal.Entry) {
	if r := sentence(*e, nil, ""); !r.IsCall() || r.Verb != "called" && r.Verb != "was refused" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.Time.After(a.last[e.Agent]) {
		a.last[e.Agent] = e.Time
	}
	n := e.Time.UnixNano() / int64(span)
	s := a.slots[n]
	if s == nil {
		for old := range a.slots {
			if len(a.slots) > slots && old <= n-slots {
				delete(a.slots, old)
			}
		}
		s = new(slot)
		a.slots[n] = s
	}
	s.Calls++
	switch e.Decision {
	case journal.Deny:
		s.Refused++
	case journal.Unknown:
		s.Unknown++
	case journal.Failed:
		s.Failed++
		fallthrough
	default:
		s.took[min(len(s.took)-1, int(math.Log2(float64(max(e.DurationUS, 1)))))]++
	}
}

// lastCall returns the time of the last call of an agent, or the zero time if it had none within a week.
func (a *activity) lastCall(agent string) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last[agent]
}

func (s *slot) add(t *slot) {
	s.Calls, s.Refused = s.Calls+t.Calls, s.Refused+t.Refused
	s.Failed, s.Unknown = s.Failed+t.Failed, s.Unknown+t.Unknown
	for i, n := range t.took {
		s.took[i] += n
	}
}

// quantile returns the q-quantile of the durations of calls in milliseconds. It returns 0 if there were no calls.
func (s *slot) quantile(q float64) float64 {
	n, seen := uint32(0), uint32(0)
	for _, c := range s.took {
		n += c
	}
	if n == 0 {
		return 0
	}
	for i, c := range s.took {
		if seen += c; float64(seen) >= q*float64(n) {
			return math.Exp2(float64(i)+0.5) / 1000 // the geometric middle of the interval
		}
	}
	return 0
}

// series is one line of a chart.
type series struct {
	Name, Class, Unit string
	Values            []float64
}

// period is a choice on the activity page. The field whole is the time that the charts cover, and the field point is
// the time between two points of a chart.
type period struct {
	Name, Title  string
	whole, point time.Duration
}

var periods = []period{
	{"1h", "last hour", time.Hour, time.Minute},
	{"24h", "last 24 hours", 24 * time.Hour, 15 * time.Minute},
	{"7d", "last 7 days", 7 * 24 * time.Hour, 2 * time.Hour},
}

// read returns one slot for each point of a period, the sum of the slots, and the time from which calls are counted.
func (a *activity) read(p period, now time.Time) (points []slot, sum slot, since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	points = make([]slot, p.whole/p.point)
	end := now.UnixNano() / int64(span)
	for n, s := range a.slots {
		back := (end - n) / int64(p.point/span)
		if n <= end && back < int64(len(points)) {
			points[len(points)-1-int(back)].add(s)
			sum.add(s)
		}
	}
	return points, sum, a.since
}

func line(name, class string, points []slot, value func(*slot) float64) series {
	s := series{Name: name, Class: class}
	for i := range points {
		s.Values = append(s.Values, value(&points[i]))
	}
	return s
}

// activityPage contains the charts of a period.
type activityPage struct {
	Periods []period
	Period  period
	Sum     slot
	Charts  []drawing
	// Since is the time from which calls are counted, if it is within the period.
	Since time.Time
	Spent []limit.Spent
}

// maxSpent is the maximum number of tools in the list of today's spending.
const maxSpent = 50

func (c *Console) charts(w http.ResponseWriter, r *http.Request, s *session) {
	spent, err := c.o.Backend.SpentToday(r.Context())
	if err != nil {
		c.unavailable(w, r, s, "Today's spending cannot be read at the moment.", err)
		return
	}
	p := activityPage{Periods: periods, Period: periods[1], Spent: spent[:min(len(spent), maxSpent)]}
	for _, choice := range periods {
		if choice.Name == r.URL.Query().Get("period") {
			p.Period = choice
		}
	}
	now := time.Now().UTC()
	points, sum, since := c.activity.read(p.Period, now)
	if p.Sum = sum; since.After(now.Add(-p.Period.whole)) {
		p.Since = since
	}
	p.Charts = []drawing{
		draw("Calls", "", now, p.Period, []series{
			line("calls", "a", points, func(s *slot) float64 { return float64(s.Calls) }),
			line("refused", "b", points, func(s *slot) float64 { return float64(s.Refused) }),
			line("failed", "c", points, func(s *slot) float64 { return float64(s.Failed) }),
			line("unknown outcome", "d", points, func(s *slot) float64 { return float64(s.Unknown) }),
		}),
		draw("Latency of calls", " ms", now, p.Period, []series{
			line("median", "a", points, func(s *slot) float64 { return s.quantile(0.5) }),
			line("95th percentile", "b", points, func(s *slot) float64 { return s.quantile(0.95) }),
		}),
	}
	c.show(w, r, s, http.StatusOK, "activity", "Activity", "activity", &p)
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
		a.idle, a.slots, a.last, a.since = nil, map[int64]*slot{}, map[string]time.Time{}, time.Now()
	}()
}

// follow counts the calls of the last week, newest first. It then counts new calls until ctx is done.
func (c *Console) follow(ctx context.Context) error {
	ends, err := c.o.Journal.Ends(ctx)
	if err != nil {
		return err
	}
	start := time.Now().Add(-slots * span)
	before := maps.Clone(ends)
	for read := 0; read < maxPast; read += batch {
		past, err := c.o.Journal.Show(ctx, journal.Filter{Since: start, Limit: batch, Before: before})
		if err != nil {
			return err
		}
		for i := range past {
			c.activity.count(&past[i])
			before[past[i].Log] = min(before[past[i].Log], past[i].Seq)
		}
		if len(past) < batch {
			c.activity.countedSince(start)
			break
		}
		c.activity.countedSince(past[len(past)-1].Time)
	}
	return c.o.Journal.Follow(ctx, ends, journal.Filter{}, func(e journal.Entry) error {
		c.activity.count(&e)
		return nil
	})
}

func (a *activity) countedSince(t time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since = t
}
