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

// handClock is a clock that only the test advances.
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

// waits blocks until a restart is waiting for the clock, and returns the length of its pause.
func (c *handClock) waits() time.Duration {
	c.r.t.Helper()
	if c.next == nil {
		select {
		case t := <-c.pending:
			c.next = &t
		case <-time.After(30 * time.Second):
			c.r.t.Fatalf("no restart is waiting for the clock; log:\n%s", c.r.log())
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

// If a server exits repeatedly, the pauses before its restarts grow. During the longer pauses calls are refused
// immediately. After a long run without an exit, the pauses are short again.
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
		r.works(m, "one") // the call waits for the restart
	}
	want := firstPause << quickRestarts
	for n := quickRestarts + 1; n < quickRestarts+6; n++ {
		r.call(m, "one", "crash", `{}`)
		if got := hand.waits(); got > want || got < want/2 {
			t.Errorf("exit %d: got a pause of %v, want between %v and %v", n, got, want/2, want)
		}
		want = min(2*want, longestPause)
		// The clock does not move, so a call that waits for the restart would never return.
		_, refusal := r.act(t.Context(), m, "one", "echo", &call.Call{})
		is(t, refusal, call.ServerUnavailable, call.NoEffect, true)
		if refusal.RetryAfter != hand.waits() || !strings.Contains(refusal.Message, "next attempt in "+short(hand.waits()).String()) {
			t.Errorf("got the refusal %q with RetryAfter %v", refusal.Message, refusal.RetryAfter)
		}
		if p := m.Proofs()[0]; p.OK || p.Refusal == nil || p.Refusal.Message != refusal.Message {
			t.Errorf("the proof is %+v, want the same refusal as for calls", p)
		}
		r.works(m, "two")
		hand.pass()
		r.until("the server is proven", m.Proven)
		r.works(m, "one")
	}
	// After a long run, earlier exits no longer count, and the next pause is the shortest.
	hand.advance(forgiveAfter * 100)
	r.call(m, "one", "crash", `{}`)
	if got := hand.waits(); got > firstPause {
		t.Errorf("after a long run: got a pause of %v, want at most %v", got, firstPause)
	}
	hand.pass()
	r.works(m, "one")
	if got := r.read("two/lives"); got != "1" {
		t.Errorf("the other server was started %s times", got)
	}
}

// While a server rests, RetryAfter is the time that is left until the next attempt.
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
		t.Errorf("got the refusal %q with RetryAfter %v, want 2s", refusal.Message, refusal.RetryAfter)
	}
}

// The agent tries to restart a server for as long as the agent runs. After a restart, the agent checks the
// server again before using it.
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
	if !strings.Contains(r.log(), "the restart failed") || !strings.Contains(r.log(), "exit status 4") {
		t.Errorf("the log does not contain the reason of the failure:\n%s", r.log())
	}
	if err := os.Remove(r.path("one/lives")); err != nil { // the server fails at every start except the first
		t.Fatal(err)
	}
	r.write("one/tools.json", definition("echo")+"\n"+definition("exec"))
	hand.pass()
	r.until("the server is quarantined", func() bool {
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
	is(t, refusal, call.ServerUnavailable, call.NoEffect, true)
	if got := r.read("one/lives"); got != lives {
		t.Errorf("the server was started %s times before Close and %s times in total", lives, got)
	}
}

func TestPauses(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	tests := []struct {
		name string
		ran  []time.Duration // how long each run lasted; 0 means that the start failed
		want []time.Duration
	}{
		{"every start fails", make([]time.Duration, 10), []time.Duration{200e6, 400e6, 800e6, 1600e6, 3200e6, 6400e6, 12800e6, 25600e6, 30e9, 30e9}},
		{"each run long enough", []time.Duration{1, forgiveAfter, forgiveAfter, forgiveAfter, forgiveAfter, forgiveAfter, forgiveAfter}, []time.Duration{200e6, 200e6, 200e6, 200e6, 200e6, 200e6, 200e6}},
		{"each run a little too short", []time.Duration{1, forgiveAfter - 1, forgiveAfter - 1, forgiveAfter - 1}, []time.Duration{200e6, 400e6, 800e6, 1600e6}},
		{"a long run after many exits", []time.Duration{0, 0, 0, 0, 0, 0, time.Hour}, []time.Duration{200e6, 400e6, 800e6, 1600e6, 3200e6, 6400e6, 200e6}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, now := restarts{first: firstPause}, start
			for i, ran := range tt.ran {
				if ran > 0 {
					r.since = now
				}
				now = now.Add(ran)
				if got := r.countExit(now); got != tt.want[i] {
					t.Errorf("exit %d: got a pause of %v, want %v", i+1, got, tt.want[i])
				}
			}
		})
	}
	t.Run("for years", func(t *testing.T) {
		r := restarts{first: firstPause}
		for range 1000 {
			if got := r.countExit(start); got <= 0 || got > longestPause {
				t.Fatalf("exit %d: got a pause of %v, want at most %v", r.ends, got, longestPause)
			}
		}
	})
	for share, want := range map[float64]time.Duration{0: 30 * time.Second, 0.5: 22500 * time.Millisecond, 1: 15 * time.Second} {
		if got := jitter(longestPause, share); got != want {
			t.Errorf("with the random number %v: got a pause of %v, want %v", share, got, want)
		}
	}
}
