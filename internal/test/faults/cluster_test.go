//go:build linux

package faults

import (
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// outcome is the answer to a call made in another goroutine.
type outcome struct {
	a   answer
	err error
}

// paying starts n calls to the tool pay. It returns when the store contains an intent for each call and the
// first call has had its effect.
func (d *daemon) paying(n int, cluster *statetest.Cluster) []chan outcome {
	d.h.t.Helper()
	var calls []chan outcome
	had := d.h.done()
	for range n {
		got := make(chan outcome, 1)
		go func() { a, err := d.pay(); got <- outcome{a, err} }()
		calls = append(calls, got)
	}
	d.h.until("all calls are in progress", func() bool {
		return d.h.done() == had+1 && cluster.Ask(`SELECT count(*) FROM calls WHERE state = 'sending'`) == int64(n)
	})
	return calls
}

// TestPostgresRestarts crashes and restarts the database during calls. Each call has one effect and a record in
// the journal. No error claims that such a call had no effect. The calls with an unknown outcome are listed.
// While the database is down, new calls are refused. The daemon reconnects without help.
func TestPostgresRestarts(t *testing.T) {
	t.Run("before the answers", func(t *testing.T) { testRestart(t, true) })
	t.Run("after the answers", func(t *testing.T) { testRestart(t, false) })
}

func testRestart(t *testing.T, soon bool) {
	t.Parallel() // the test spends most of its time waiting
	cluster := statetest.NewCluster(t)
	h := newFixture(t, "", 0)
	store := []string{"--store", cluster.Place()}
	d := h.serve(store...)
	const started = 3
	calls := d.paying(started, cluster)
	cluster.Kill()
	refused, err := d.pay()
	if err != nil || refused.Error.Code != "store_unavailable" || refused.Error.Effect != "none" || refused.Error.Message == "" {
		t.Errorf("calling while the database is down: got %+v, %v", refused, err)
	}
	if soon {
		cluster.Start()
	}
	for range started {
		h.open()
	}
	answered := 0
	for _, got := range calls {
		switch o := <-got; {
		case o.err != nil:
			t.Error(o.err)
		case o.a.status == 200:
			answered++
		case o.a.Error.Effect != "unknown" || o.a.Error.Message == "":
			t.Errorf("a caller gets %s", o.a.text)
		}
	}
	if !soon {
		says := func(text string) func() bool {
			return func() bool { return strings.Contains(d.printed.String(), text) }
		}
		h.until("the log says that the store is down", says(`level=WARN msg="the store is unavailable, so no call can be made: `))
		cluster.Start()
		h.until("the log says that the store is back", says(`level=WARN msg="the store is available again, after `))
	}
	h.settled(started, answered, store...)
	if n := h.done(); n != started {
		t.Errorf("%d calls had %d effects", started, n)
	}
	h.recovers(d, started)
}

// settled waits until the journal contains every call. It checks that answered calls are recorded as allowed,
// and that the others are listed as unknown.
func (h *fixture) settled(calls, answered int, store ...string) {
	h.t.Helper()
	var allowed, unknown int
	h.until("the journal has every call", func() bool {
		list := h.decisions(store...)
		allowed, unknown = count(list, "allow"), count(list, "unknown")
		return allowed+unknown >= calls
	})
	if allowed+unknown != calls || allowed < answered {
		h.t.Errorf("%d of %d calls were answered; the journal has %d allowed and %d unknown", answered, calls, allowed, unknown)
	}
	stdout, stderr, code := h.ambit(append([]string{"journal", "show", "--unknown"}, store...)...)
	if listed := strings.Count(stdout, "pay"); code != 0 || listed != unknown {
		h.t.Errorf("there are %d unknown calls, but the command lists %d: %s %s", unknown, listed, stdout, stderr)
	}
	h.whole(store...)
}

// recovers checks that the next call works. The parameter before is the number of effects before that call.
func (h *fixture) recovers(d *daemon, before int) {
	h.t.Helper()
	got := make(chan outcome, 1)
	go func() { a, err := d.pay(); got <- outcome{a, err} }()
	h.until("the next call has its effect", func() bool {
		if len(got) > 0 && h.done() == before {
			o := <-got
			h.t.Fatalf("the next call had no effect: %+v, %v", o.a, o.err)
		}
		return h.done() == before+1
	})
	h.open()
	if o := <-got; o.err != nil || o.a.status != 200 {
		h.t.Errorf("the next call returned %+v", o)
	}
}

// TestPostgresFailsOver fails over to a standby during a call. No commit is lost, because replication is synchronous.
func TestPostgresFailsOver(t *testing.T) {
	t.Parallel()
	first := statetest.NewCluster(t)
	second := first.Standby()
	h := newFixture(t, "", 0)
	store := []string{"--store", first.Place(second)}
	d := h.serve(store...)
	h.recovers(d, 0)
	call := d.paying(1, first)[0]
	first.Kill()
	second.Promote()
	h.open()
	o := <-call
	if o.err != nil || o.a.status != 200 && (o.a.Error.Effect != "unknown" || o.a.Error.Message == "") {
		t.Errorf("the caller gets %+v", o)
	}
	h.until("the journal has both calls", func() bool { return len(h.decisions(store...)) >= 2 })
	if list := h.decisions(store...); slices.Contains(list, "deny") || h.done() != 2 {
		t.Errorf("the journal has the decisions %v, and there were %d effects", list, h.done())
	}
	h.whole(store...)
	h.recovers(d, 2)
}
