//go:build unix

package toolserver

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// handClock is a clock that only the test moves.
type handClock struct {
	r       *rig
	mu      sync.Mutex
	now     time.Time
	pending chan timer
	next    *timer
}

type timer struct {
	pause time.Duration
	fires chan time.Time
}

// byHand gives the rig's servers a clock that the test controls.
func (r *rig) byHand() *handClock {
	c := &handClock{r: r, now: time.Unix(1_800_000_000, 0), pending: make(chan timer, 100)}
	r.o.clock, r.o.pause = c, firstPause
	return c
}

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) After(d time.Duration) <-chan time.Time {
	t := timer{d, make(chan time.Time, 1)}
	c.pending <- t
	return t.fires
}

// advance moves the clock without firing timers.
func (c *handClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// waits returns the pause of the restart that waits for the clock.
func (c *handClock) waits() time.Duration {
	c.r.t.Helper()
	if c.next == nil {
		select {
		case t := <-c.pending:
			c.next = &t
		case <-time.After(30 * time.Second):
			c.r.t.Fatalf("no restart waits; log:\n%s", c.r.log())
		}
	}
	return c.next.pause
}

// pass ends the pause of the waiting restart.
func (c *handClock) pass() {
	c.r.t.Helper()
	c.advance(c.waits())
	c.next.fires <- c.Now()
	c.next = nil
}

// A server that keeps ending rests for longer and longer. Calls are refused at once meanwhile, and work
// again when the server stays up.
func TestServerThatKeepsEnding(t *testing.T) {
	r := newRig(t)
	hand := r.byHand()
	r.fake("one", []string{"echo", "crash"})
	r.fake("two", []string{"echo"})
	m := r.proven()
	for range quickRestarts {
		_, refusal := r.call(m, "one", "crash", `{}`)
		is(t, refusal, call.ServerUnavailable, call.NoEffect, true)
		hand.pass()
		r.works(m, "one") // calls wait for it
	}
	want := firstPause << quickRestarts
	for n := quickRestarts + 1; n < quickRestarts+6; n++ {
		r.call(m, "one", "crash", `{}`)
		if got := hand.waits(); got > want || got < want/2 {
			t.Errorf("end %d: it rests for %v, want %v or a little less", n, got, want)
		}
		want = min(2*want, longestPause)
		// The clock does not move, so a call that waits would wait for ever.
		_, refusal := r.act(t.Context(), m, "one", "echo", &call.Call{})
		is(t, refusal, call.ServerUnavailable, call.NoEffect, true)
		if refusal.RetryAfter != hand.waits() || !strings.Contains(refusal.Message, "next attempt in "+short(hand.waits()).String()) {
			t.Errorf("refused with %q, to be tried again after %v", refusal.Message, refusal.RetryAfter)
		}
		if p := m.Proofs()[0]; p.OK || p.Refusal == nil || p.Refusal.Message != refusal.Message {
			t.Errorf("its proof is %+v", p)
		}
		r.works(m, "two")
		hand.pass()
		r.until("it is back", m.Proven)
		r.works(m, "one")
	}
	// Ends that are long ago do not count: the next one is the first.
	hand.advance(forgiven * 100)
	r.call(m, "one", "crash", `{}`)
	if got := hand.waits(); got > firstPause {
		t.Errorf("after a long life it rests for %v", got)
	}
	hand.pass()
	r.works(m, "one")
	if got := r.read("two/lives"); got != "1" {
		t.Errorf("the other server was started %s times", got)
	}
}

// The time until the next attempt runs while a server rests.
func TestRetryAfterRuns(t *testing.T) {
	r := newRig(t)
	hand := r.byHand()
	r.fake("one", []string{"echo", "crash"}, "-do", "exit-later")
	m := r.proven()
	r.call(m, "one", "crash", `{}`)
	for range quickRestarts {
		hand.pass()
	}
	rests := hand.waits()
	hand.advance(rests - 2*time.Second)
	_, refusal := r.call(m, "one", "echo", `{}`)
	is(t, refusal, call.ServerUnavailable, call.NoEffect, true)
	if refusal.RetryAfter != 2*time.Second || !strings.Contains(refusal.Message, "next attempt in 2s") {
		t.Errorf("refused with %q, to be tried again after %v", refusal.Message, refusal.RetryAfter)
	}
}

// A server that cannot be restarted is retried while the agent runs. Each refusal contains the reason, and
// the server is proven before it is used.
func TestRestartFails(t *testing.T) {
	r := newRig(t)
	hand := r.byHand()
	r.fake("one", []string{"echo", "crash"}, "-do", "exit-later")
	m := r.proven()
	r.call(m, "one", "crash", `{}`)
	for range 3 * quickRestarts {
		hand.pass()
	}
	hand.waits()
	if !strings.Contains(r.log(), "could not be started again") || !strings.Contains(r.log(), "exit status 4") {
		t.Errorf("log:\n%s", r.log())
	}
	if err := os.Remove(r.path("one/lives")); err != nil { // it fails in every life but the first
		t.Fatal(err)
	}
	r.write("one/tools.json", definition("echo")+"\n"+definition("exec"))
	hand.pass()
	r.until("it is quarantined", func() bool {
		_, refusal := r.call(m, "one", "echo", `{}`)
		return refusal.Code == call.ServerDrifted
	})
}

// A resting server is not started again after Close.
func TestCloseWhileResting(t *testing.T) {
	r := newRig(t)
	hand := r.byHand()
	r.fake("one", []string{"echo", "crash"}, "-do", "exit-later")
	m := r.proven()
	r.call(m, "one", "crash", `{}`)
	for range quickRestarts {
		hand.pass()
	}
	hand.waits()
	lives := r.read("one/lives")
	m.Close()
	_, refusal := r.call(m, "one", "echo", `{}`)
	is(t, refusal, call.ServerUnavailable, call.NoEffect, false)
	if got := r.read("one/lives"); got != lives {
		t.Errorf("it was started %s times, and then %s", lives, got)
	}
}

func TestPauses(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	tests := []struct {
		name string
		ran  []time.Duration // between two ends; 0: it did not come up
		want []time.Duration
	}{
		{"it never comes up", make([]time.Duration, 10), []time.Duration{200e6, 400e6, 800e6, 1600e6, 3200e6, 6400e6, 12800e6, 25600e6, 30e9, 30e9}},
		{"as often as is forgiven", []time.Duration{1, forgiven, forgiven, forgiven, forgiven, forgiven, forgiven}, []time.Duration{200e6, 200e6, 200e6, 200e6, 200e6, 200e6, 200e6}},
		{"a little too often", []time.Duration{1, forgiven - 1, forgiven - 1, forgiven - 1}, []time.Duration{200e6, 400e6, 800e6, 1600e6}},
		{"a long life after many ends", []time.Duration{0, 0, 0, 0, 0, 0, time.Hour}, []time.Duration{200e6, 400e6, 800e6, 1600e6, 3200e6, 6400e6, 200e6}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, now := restarts{first: firstPause}, start
			for i, ran := range tt.ran {
				if ran > 0 {
					r.since = now
				}
				now = now.Add(ran)
				if got := r.ended(now); got != tt.want[i] {
					t.Errorf("end %d: a pause of %v, want %v", i+1, got, tt.want[i])
				}
			}
		})
	}
	t.Run("for years", func(t *testing.T) {
		r := restarts{first: firstPause}
		for range 1000 {
			if got := r.ended(start); got <= 0 || got > longestPause {
				t.Fatalf("end %d: a pause of %v", r.ends, got)
			}
		}
	})
	for share, want := range map[float64]time.Duration{0: 30 * time.Second, 0.5: 22500 * time.Millisecond, 1: 15 * time.Second} {
		if got := spread(longestPause, share); got != want {
			t.Errorf("a share of %v makes %v, want %v", share, got, want)
		}
	}
}
