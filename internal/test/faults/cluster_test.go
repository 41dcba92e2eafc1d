//go:build linux

package faults

import (
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// outcome is what a call came to, for whoever waits for it.
type outcome struct {
	a   answer
	err error
}

// paying makes calls that are under way: their intents are in the store, and the
// first of them has had its effect.
func (d *daemon) paying(n int, cluster *statetest.Cluster) []chan outcome {
	d.h.t.Helper()
	var calls []chan outcome
	had := d.h.done()
	for range n {
		got := make(chan outcome, 1)
		go func() { a, err := d.pay(); got <- outcome{a, err} }()
		calls = append(calls, got)
	}
	d.h.until("the calls are under way", func() bool {
		return d.h.done() == had+1 && cluster.Ask(`SELECT count(*) FROM calls WHERE state = 'sending'`) == int64(n)
	})
	return calls
}

// A database server that crashes under calls, and is started again. Each of them
// has its effect once, and is in the journal; nobody is told that it did not
// happen; what nobody can vouch for is listed. Meanwhile nothing is called. The
// daemon finds the server again by itself.
func TestPostgresRestarts(t *testing.T) {
	t.Run("before the answers", func(t *testing.T) { testRestart(t, true) })
	t.Run("after the answers", func(t *testing.T) { testRestart(t, false) })
}

func testRestart(t *testing.T, soon bool) {
	t.Parallel() // it waits more than it works
	cluster := statetest.NewCluster(t)
	h := newHouse(t, "", 0)
	store := []string{"--store", cluster.Place()}
	d := h.serve(store...)
	const under = 3
	calls := d.paying(under, cluster)
	cluster.Kill()
	refused, err := d.pay()
	if err != nil || refused.Error.Code != "store_unavailable" || refused.Error.Effect != "none" || refused.Error.Message == "" {
		t.Errorf("a call while the server is down: %+v, %v", refused, err)
	}
	if soon {
		cluster.Start()
	}
	for range under {
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
			t.Errorf("a caller is told %s", o.a.text)
		}
	}
	if !soon {
		cluster.Start()
	}
	h.settled(under, answered, store...)
	if n := h.done(); n != under {
		t.Errorf("%d effects of %d calls", n, under)
	}
	h.goesOn(d, under)
}

// settled waits until the journal tells of every call under way, and wants those
// that were answered as such and the others listed for a person.
func (h *house) settled(calls, answered int, store ...string) {
	h.t.Helper()
	var allowed, unknown int
	h.until("the journal tells of every call", func() bool {
		list := h.decisions(store...)
		allowed, unknown = count(list, "allow"), count(list, "unknown")
		return allowed+unknown >= calls
	})
	if allowed+unknown != calls || allowed < answered {
		h.t.Errorf("of %d calls %d were answered; the journal has %d, and %d unknown", calls, answered, allowed, unknown)
	}
	stdout, stderr, code := h.ambit(append([]string{"journal", "show", "--unknown"}, store...)...)
	if listed := strings.Count(stdout, "pay"); code != 0 || listed != unknown {
		h.t.Errorf("%d unknown calls, and %d are listed: %s %s", unknown, listed, stdout, stderr)
	}
	h.whole(store...)
}

// goesOn wants the next call to work; so many had effects before.
func (h *house) goesOn(d *daemon, before int) {
	h.t.Helper()
	got := make(chan outcome, 1)
	go func() { a, err := d.pay(); got <- outcome{a, err} }()
	h.until("the next call has its effect", func() bool { return h.done() == before+1 })
	h.open()
	if o := <-got; o.err != nil || o.a.status != 200 {
		h.t.Errorf("the next call: %+v", o)
	}
}

// A database that fails over to the server that follows it, under a call. What
// was committed is there, because a commit waits for both.
func TestPostgresFailsOver(t *testing.T) {
	t.Parallel()
	first := statetest.NewCluster(t)
	second := first.Standby()
	h := newHouse(t, "", 0)
	store := []string{"--store", first.Place(second)}
	d := h.serve(store...)
	h.goesOn(d, 0)
	call := d.paying(1, first)[0]
	first.Kill()
	second.Promote()
	h.open()
	o := <-call
	if o.err != nil || o.a.status != 200 && (o.a.Error.Effect != "unknown" || o.a.Error.Message == "") {
		t.Errorf("the caller is told %+v", o)
	}
	h.until("the journal tells of both", func() bool { return len(h.decisions(store...)) >= 2 })
	if list := h.decisions(store...); slices.Contains(list, "deny") || h.done() != 2 {
		t.Errorf("%v, and %d effects", list, h.done())
	}
	h.whole(store...)
	h.goesOn(d, 2)
}
