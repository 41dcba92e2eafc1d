package console

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/store/journal"
)

func TestActivity(t *testing.T) {
	a := newActivity()
	now := time.Date(2026, 3, 4, 15, 30, 0, 0, time.UTC)
	count := func(r journal.Record) {
		r.Agent = "alpha"
		a.count(&journal.Entry{Record: r})
	}
	for i := range 100 {
		count(journal.Record{Time: now, Decision: journal.Allow, DurationUS: int64(1000 * (i + 1))})
	}
	count(journal.Record{Time: now, Decision: journal.Deny})
	count(journal.Record{Time: now.Add(-2 * time.Hour), Decision: journal.Unknown})
	count(journal.Record{Time: now.Add(-2 * time.Hour), Decision: journal.Failed})
	count(journal.Record{Time: now, Kind: "log_born"})
	count(journal.Record{Time: now.Add(-3 * 24 * time.Hour), Decision: journal.Deny})
	count(journal.Record{Time: now.Add(-slots * span), Decision: journal.Deny}) // this call is too old to be shown
	for i, want := range []slot{{Calls: 101, Refused: 1}, {Calls: 103, Refused: 1, Failed: 1, Unknown: 1}, {Calls: 104, Refused: 2, Failed: 1, Unknown: 1}} {
		points, sum, _ := a.read(periods[i], now)
		last := points[len(points)-1]
		if sum.Calls != want.Calls || sum.Refused != want.Refused || sum.Failed != want.Failed || sum.Unknown != want.Unknown || points[0].Calls != 0 {
			t.Errorf("%s: got %d calls, %d refused, %d failed and %d unknown", periods[i].Name, sum.Calls, sum.Refused, sum.Failed, sum.Unknown)
		}
		if median := last.quantile(0.5); last.Calls < 101 || median < 32 || median > 66 {
			t.Errorf("%s: the last point has %d calls with a median of %v ms, want 101 and about 50", periods[i].Name, last.Calls, median)
		}
	}
	if got := a.lastCall("alpha"); !got.Equal(now) || !a.lastCall("beta").IsZero() {
		t.Errorf("the last call was at %v, want the time of the newest call", got)
	}
}

// TestChart checks that the labels of a chart are in UTC and fit the period.
func TestChart(t *testing.T) {
	now := time.Date(2026, 3, 4, 15, 30, 0, 0, time.UTC)
	for i, want := range []string{"14:30 14:45 15:00 15:15 15:30", "15:30 21:30 03:30 09:30 15:30", "Feb 25 Feb 26 Feb 27 Feb 28 Mar 1 Mar 2 Mar 3 Mar 4"} {
		d := draw("Calls", " ms", now, periods[i], []series{{Class: "a", Values: []float64{0, 3, 7}}, {Class: "b", Values: []float64{0, 0, 0}}})
		if got := strings.Join(d.X, " "); got != want {
			t.Errorf("%s: the labels are %s, want %s", periods[i].Name, got, want)
		}
		if !slices.Equal(d.Y, []string{"10 ms", "5 ms", "0 ms"}) || !strings.Contains(string(d.SVG), `points="0,100.0 500,70.0 1000,30.0 "`) || strings.Contains(string(d.SVG), `class="b"`) {
			t.Errorf("the chart has the labels %v: %s", d.Y, d.SVG)
		}
	}
}
