//go:build prove

// Package soak calls an agent at full load for minutes while its servers are killed. Every call must be in the
// journal and must return a result or a reason for its refusal. No goroutines, files or processes may leak.
//
// Two servers are killed from time to time, and ambit must restart them at once. A third server is killed whenever
// it starts. ambit must keep restarting this server. After the last kill, the server must keep running. Half of the
// calls use HTTP.
package soak

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/journal"
)

// tally counts the calls to one server. The field rested counts the refusals while ambit waits before the next
// restart.
type tally struct{ made, answered, refused, rested atomic.Int64 }

// counts contains a tally for every server.
type counts map[string]*tally

func newCounts() counts { return counts{"one": {}, "two": {}, "frail": {}} }

// parts is the number of parts into which the time is divided. Calls must succeed in each part, not only before
// the first crash.
const parts = 10

// TestSoak runs for the time in the environment variable AMBIT_SOAK. If the variable is not set, TestSoak
// runs for five minutes.
func TestSoak(t *testing.T) {
	span := 5 * time.Minute
	if s := os.Getenv("AMBIT_SOAK"); s != "" {
		var err error
		if span, err = time.ParseDuration(s); err != nil || span < 30*time.Second {
			t.Fatalf("AMBIT_SOAK is %s; set it to a duration of at least 30s", s)
		}
	}
	r := newRig(t)
	warm := []counts{newCounts()}
	kills := map[string]int{}
	// Make both measurements while all servers are running.
	soak := func(into []counts, span time.Duration) used {
		stop := r.kill(kills)
		r.load(into, span)
		stop()
		r.comesBack()
		return r.measure()
	}
	before := soak(warm, span/5) // let caches and pools grow before the first measurement
	var full []counts
	for range parts {
		full = append(full, newCounts())
	}
	after := soak(full, span*4/5)

	var sum tally
	for i, part := range slices.Concat(warm, full) {
		for alias, c := range part {
			sum.made.Add(c.made.Load())
			sum.answered.Add(c.answered.Load())
			sum.refused.Add(c.refused.Load())
			sum.rested.Add(c.rested.Load())
			// When a server crashes, only the calls in progress may fail.
			if made := c.made.Load(); alias != "frail" && (made == 0 || float64(c.answered.Load()) < 0.95*float64(made)) {
				t.Errorf("part %d: only %d of %d calls of the server %s were answered", i, c.answered.Load(), made, alias)
			}
		}
	}
	var frail int64
	for _, part := range full {
		frail += part["frail"].answered.Load()
	}
	t.Logf("%v: %d calls, %.0f/s, %d answered, %d refused, %d of them while ambit waited before a restart; kills %v", span,
		sum.made.Load(), float64(sum.made.Load())/span.Seconds(), sum.answered.Load(), sum.refused.Load(), sum.rested.Load(), kills)
	t.Logf("before %+v, after %+v", before, after)
	if kills["one"] == 0 || kills["two"] == 0 || kills["frail"] < 6 || sum.rested.Load() == 0 {
		t.Errorf("too few servers were killed: %v", kills)
	}
	if frail == 0 {
		t.Error("the server that is killed at every start never answered")
	}
	// The difference would be larger if each start of a server leaked one resource.
	if after.goroutines > before.goroutines+2 || after.files > before.files+2 || after.children > before.children {
		t.Errorf("resources leak: %+v before, %+v after", before, after)
	}
	if after.heap > before.heap+before.heap/4+8<<20 || after.resident > before.resident+before.resident/4+32<<20 {
		t.Errorf("memory grows: %+v before, %+v after", before, after)
	}
	r.journaled(&sum)
}

// comesBack waits until every server is running after the last kill.
func (r *rig) comesBack() {
	r.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for r.agent.State() != "ready" {
		if time.Now().After(deadline) {
			r.t.Fatalf("the agent is %s a minute after the last kill: %+v", r.agent.State(), r.agent.Proofs())
		}
		time.Sleep(10 * time.Millisecond) // poll interval
	}
	for _, alias := range aliases {
		r.looks++
		if got := r.direct(alias+"_look", `{"text":"again"}`); got != "" {
			r.t.Errorf("%s does not answer: %s", alias, got)
		}
	}
}

// journaled checks that the journal has one record with the outcome of each call.
func (r *rig) journaled(sum *tally) {
	r.t.Helper()
	made, answered := sum.made.Load()+r.looks, sum.answered.Load()+r.looks
	report, err := r.store.Journal.Verify(r.t.Context(), journal.Check{})
	if err != nil || !report.OK || report.Records != made {
		r.t.Errorf("%d calls were made, but verifying the journal returned %+v, %v", made, report, err)
	}
	out, in := io.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() { in.CloseWithError(r.store.Journal.Export(r.t.Context(), in)) })
	defer wg.Wait()
	defer out.Close()
	got, calls := map[journal.Decision]int64{}, map[string]bool{}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Record *struct {
				Call, Code string
				Decision   journal.Decision
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			r.t.Fatalf("%s: %v", lines.Bytes(), err)
		}
		if line.Record == nil {
			continue // the last line
		}
		got[line.Record.Decision]++
		calls[line.Record.Call] = true
		if c := call.Code(line.Record.Code); c != "" && c != call.ServerUnavailable && c != call.OutcomeUnknown {
			r.t.Fatalf("a record has the unexpected code %s", c)
		}
	}
	if err := lines.Err(); err != nil {
		r.t.Fatal(err)
	}
	if got[journal.Allow] != answered || got[journal.Deny]+got[journal.Failed]+got[journal.Unknown] != sum.refused.Load() || int64(len(calls)) != made {
		r.t.Errorf("%d calls, %d answered, %d refused; the journal has %d calls, %v", made, answered, sum.refused.Load(), len(calls), got)
	}
}
