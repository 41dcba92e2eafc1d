package toolserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// A server that exits is restarted quickly at first, and calls wait for the restart. After quickRestarts attempts,
// the pauses are longer, and calls are refused immediately. ambit never stops trying, because the cause of the failures
// may disappear.
const (
	quickRestarts = 5
	firstPause    = 200 * time.Millisecond
	longestPause  = 30 * time.Second
	// forgiveAfter is the running time after which one earlier exit no longer counts. A server that always runs
	// longer than this is always restarted quickly.
	forgiveAfter = time.Minute / quickRestarts
)

// clock is the source of time for restarts. Tests replace it.
type clock interface {
	Now() time.Time
	After(time.Duration) <-chan time.Time
}

type wallClock struct{}

func (wallClock) Now() time.Time                         { return time.Now() }
func (wallClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// supervise keeps the server running until the server is closed, has drifted, or is lazy and idle. If failed is not
// nil, the first start has failed, and supervise begins with a restart.
func (s *server) supervise(conn *mcpwire.Conn, failed error) {
	r := restarts{first: s.options.pause, since: s.upSince}
	if failed != nil {
		if conn = s.restart(&r, failed); conn != nil {
			s.log("started")
		}
	}
	for conn != nil {
		var why error
		select {
		case <-s.ctx.Done():
			return
		case <-conn.Done():
			why = conn.Err()
		case <-s.idleCheck():
			if s.stopIdle() {
				return
			}
			continue
		case <-s.recheck:
			if why = s.reprove(conn); why == nil {
				continue
			}
			if drifted(why) {
				return
			}
		}
		if s.ctx.Err() != nil {
			return
		}
		s.warn(fmt.Sprintf("the server stopped: %v", why))
		s.retire(call.Refuse(stage, call.ServerUnavailable, "server %s is being restarted", s.alias).Again())
		conn = s.restart(&r, why)
	}
}

// restarts counts the recent exits of a server.
type restarts struct {
	first time.Duration // the pause after the first exit
	ends  int           // number of recent exits and failed starts; see forgiveAfter
	since time.Time     // when the server last started; zero if the last start failed
}

// countExit counts an exit or a failed start. It returns the pause before the next start.
func (r *restarts) countExit(now time.Time) (pause time.Duration) {
	if !r.since.IsZero() {
		r.ends = max(0, r.ends-int(now.Sub(r.since)/forgiveAfter))
		r.since = time.Time{}
	}
	r.ends++
	return min(r.first<<min(r.ends-1, 20), longestPause)
}

// jitter shortens a pause by up to half, so that servers that exited together restart at different times. The
// parameter random is between 0 and 1.
func jitter(pause time.Duration, random float64) time.Duration {
	return pause - time.Duration(random*float64(pause)/2)
}

// restart tries to start the server, with pauses between the attempts. It returns the connection of the first
// successful attempt. If the server is closed, idle or drifted, restart stops and returns nil. The parameter why is
// the reason for the restart.
func (s *server) restart(r *restarts, why error) *mcpwire.Conn {
	for {
		if s.lacksSignIn() {
			if !s.awaitSignIn() {
				return nil
			}
			r.ends = 0
		}
		pause := jitter(r.countExit(s.options.clock.Now()), rand.Float64())
		if r.ends > quickRestarts {
			s.rest(r.ends, pause, why)
		}
		select {
		case <-s.ctx.Done():
			return nil
		case <-s.options.clock.After(pause):
		}
		if s.stopIdle() {
			return nil
		}
		s.wake()
		conn, err := s.bringUp(s.ctx)
		if err == nil {
			r.since = s.upSince
			return conn
		}
		if s.ctx.Err() != nil {
			return nil
		}
		s.warn(fmt.Sprintf("the restart failed: %v", err))
		if drifted(err) {
			return nil // another attempt would not help
		}
		why = err
	}
}

// A server that lacks a sign-in is started again as soon as a person has signed in. It is also started again after
// signInWait polls, because it may no longer need a sign-in.
const (
	signInPoll = time.Second
	signInWait = 300 // polls
)

// lacksSignIn reports whether a person must sign in before the server can work.
func (s *server) lacksSignIn() bool {
	s.mu.Lock()
	in := s.signIn
	s.mu.Unlock()
	return in != nil && in.Missing()
}

// awaitSignIn waits for a sign-in. Meanwhile, calls are refused with the reason for the last failed start.
// awaitSignIn returns false if the server is closed.
func (s *server) awaitSignIn() bool {
	s.mu.Lock()
	s.settle(s.doubts)
	s.mu.Unlock()
	for range signInWait {
		if !s.lacksSignIn() {
			break
		}
		select {
		case <-s.ctx.Done():
			return false
		case <-s.options.clock.After(signInPoll):
		}
	}
	s.mu.Lock()
	s.unsettle()
	s.mu.Unlock()
	return true
}

// resting is the state of a server that exited too often and waits for its next start.
type resting struct {
	ends  int
	until time.Time
	why   string // the last error
}

// rest makes the server refuse calls immediately until its next start.
func (s *server) rest(ends int, pause time.Duration, why error) {
	s.warn(fmt.Sprintf("the server stopped or failed to start %d times in a row; next attempt in %v", ends, short(pause)))
	s.mu.Lock()
	s.resting = &resting{ends, s.options.clock.Now().Add(pause), s.secrets.mask(reason(why))}
	s.settle(s.doubts)
	s.mu.Unlock()
}

// wake ends the resting state. Calls then wait for the next start instead of being refused.
func (s *server) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resting != nil {
		s.resting = nil
		s.unsettle()
	}
}

// refusal returns the refusal for a call to a resting server. It contains the time until the next start.
func (r *resting) refusal(alias string, now time.Time) *call.Refusal {
	left := max(r.until.Sub(now), time.Millisecond)
	no := call.Refuse(stage, call.ServerUnavailable,
		"server %s stopped or failed to start %d times in a row; next attempt in %v. Last error: %s",
		alias, r.ends, short(left), r.why).Again()
	no.RetryAfter = left
	return no
}

// reason returns the message of an error. If the error is a refusal, the code is omitted.
func reason(why error) string {
	if r, ok := errors.AsType[*call.Refusal](why); ok {
		return r.Message
	}
	return why.Error()
}

func short(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(time.Second)
	}
	return d.Round(time.Millisecond)
}

func drifted(err error) bool {
	r, ok := errors.AsType[*call.Refusal](err)
	return ok && r.Code == call.ServerDrifted
}

// reprove verifies a running server again. If the server has drifted, reprove quarantines the server and returns the
// refusal. Calls to a quarantined server are refused until the agent is restarted. Any other error means that the
// tools could not be compared.
func (s *server) reprove(conn *mcpwire.Conn) error {
	ctx, cancel := context.WithTimeout(s.ctx, s.options.startTimeout)
	defer cancel()
	was := s.lastProof()
	p := Proof{Alias: was.Alias, Package: was.Package, Protocol: was.Protocol, Contained: was.Contained, notes: was.notes}
	doubts, err := s.prove(ctx, conn, &p)
	switch {
	case err == nil:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.proof, s.tools = p, p.Tools
		s.settle(doubts)
		s.announce()
		s.resubscribe(conn)
	case drifted(err):
		s.refuse(&p, err)
		s.warn("quarantined: " + p.Refusal.Message)
		s.dismiss(p)
	}
	return err
}

// retire stops the server for the given reason. Calls then wait for the restart.
func (s *server) retire(why *call.Refusal) {
	p := s.lastProof()
	p.OK, p.Refusal = false, why
	s.dismiss(p)
}

// dismiss stops the server and stores a proof that contains the reason.
func (s *server) dismiss(p Proof) {
	s.mu.Lock()
	end := s.detach()
	s.proof, s.missed = p, true
	s.unsettle()
	s.mu.Unlock()
	end()
	s.announce()
}

const (
	// idleTime is the time after which an unused lazy server is stopped.
	idleTime = 10 * time.Minute
	// listPatience is how long a request for the list of tools waits for lazy servers.
	listPatience = 5 * time.Second
	// startPatience is how long a call waits for the start of a lazy server. It is shorter than the timeout of a
	// tool, so a call to a server that starts slowly is refused before it is sent.
	startPatience = 25 * time.Second
	// lazyPatience is how long a call waits for a lazy server that has just exited.
	lazyPatience = 800 * time.Millisecond
	// firstRetry is the pause after the first failed start of a lazy server. The pauses grow up to lastRetry.
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// demand records how a lazy server is used. The server's mutex guards it.
type demand struct {
	asleep   bool          // set if the server is stopped and starts at its next use
	starting bool          // set if the server is starting because it was used
	wanted   chan struct{} // signals that the server must start
	retry    time.Time     // after a failed start, the earliest time of the next start
	busy     int           // number of requests in progress
	used     time.Time     // time of the last use
}

// onDemand starts a lazy server when it is used and supervises the server until it is idle. It repeats both steps
// until the server is closed or quarantined.
func (s *server) onDemand() {
	pause := firstRetry
	for s.awaitUse() {
		conn, err := s.bringUp(s.ctx)
		if err == nil {
			pause = firstRetry
			for _, w := range s.lastProof().Warnings {
				s.warn(w)
			}
			if s.supervise(conn, nil); s.sleeping() {
				continue
			}
			return
		}
		if s.ctx.Err() != nil {
			return
		}
		if s.onCall && drifted(err) {
			s.quarantine()
			return
		}
		s.postpone(pause)
		pause = min(2*pause, lastRetry)
	}
}

// quarantine removes the tools of a server with [Spec.OnCall] if its first start shows that it differs from the lock
// file. Calls are then refused until the agent is restarted, as for any other drifted server.
func (s *server) quarantine() {
	s.warn("quarantined: " + s.lastProof().Refusal.Message)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tools, s.demand.starting = nil, false
	s.announce()
}

// postpone delays the next start of a server that failed to start. Until then, calls are refused with the reason for
// the failure.
func (s *server) postpone(pause time.Duration) {
	s.warn(s.lastProof().Refusal.Error())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.demand.asleep, s.demand.starting = true, false
	s.demand.retry = s.options.clock.Now().Add(pause)
	s.settle(s.doubts)
}

// awaitUse waits until a lazy server must start. It returns true when the server is used, and false when the server is
// closed. After a failed start and a pause, it also returns true if the server was used recently or [Proof.NotFound] is
// set.
func (s *server) awaitUse() bool {
	s.mu.Lock()
	var again <-chan time.Time
	now := s.options.clock.Now()
	if d := &s.demand; s.proof.Refusal != nil && (s.proof.NotFound || now.Sub(d.used) < s.options.Idle) {
		again = s.options.clock.After(d.retry.Sub(now))
	}
	s.mu.Unlock()
	select {
	case <-s.ctx.Done():
		return false
	case <-s.demand.wanted:
		return true
	case <-again:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.demand.asleep {
		s.markStarting()
	} else {
		<-s.demand.wanted // startOnUse has sent this signal and recorded the start, so only remove the signal
	}
	return true
}

// markStarting records that the server is starting. Calls then wait for the start. The caller holds the mutex.
func (s *server) markStarting() {
	s.demand.asleep, s.demand.starting = false, true
	s.unsettle()
}

// startOnUse records a use of a lazy server and starts the server if it is not running. After a failed start, it does
// not start the server before the time in demand.retry. The caller holds the mutex.
func (s *server) startOnUse() {
	if !s.lazy {
		return
	}
	now := s.options.clock.Now()
	s.demand.used = now
	if s.demand.asleep && !s.finished && !now.Before(s.demand.retry) {
		s.markStarting()
		s.demand.wanted <- struct{}{} // never blocks, because the channel is empty while demand.asleep is true
	}
}

// keepRunning keeps a lazy server running until the returned function is called.
func (s *server) keepRunning() (done func()) {
	if !s.lazy {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.demand.busy++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.demand.busy--
		s.demand.used = s.options.clock.Now()
	}
}

// idleCheck returns a channel that fires when a lazy server may be idle. The channel is nil for other servers.
func (s *server) idleCheck() <-chan time.Time {
	if !s.stopsIdle() {
		return nil
	}
	s.mu.Lock()
	left := s.options.Idle - s.options.clock.Now().Sub(s.demand.used)
	s.mu.Unlock()
	return s.options.clock.After(max(left, min(s.options.Idle, time.Second)))
}

// stopIdle stops a lazy server that is idle and has no watched resources. It reports whether the server was
// stopped.
func (s *server) stopIdle() bool {
	s.mu.Lock()
	d := &s.demand
	if !s.stopsIdle() || d.busy > 0 || s.options.clock.Now().Sub(d.used) < s.options.Idle || s.isWatched() {
		s.mu.Unlock()
		return false
	}
	end := s.detach()
	d.asleep, d.retry = true, time.Time{}
	s.mu.Unlock()
	end()
	s.log("stopped the idle server")
	return true
}

// stopsIdle reports whether the server is stopped when it is idle.
func (s *server) stopsIdle() bool { return s.lazy && !s.onCall }

func (s *server) sleeping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.demand.asleep || s.demand.starting
}

// isWatched reports whether a client watches a resource of the server. The caller holds the mutex.
func (s *server) isWatched() bool {
	for _, a := range s.private {
		if len(a.uris) > 0 {
			return true
		}
	}
	return len(s.watched) > 0
}

// patience returns how long a call waits for the server. The second result reports whether the call waits for the
// start of a lazy server.
func (s *server) patience() (_ time.Duration, starting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.demand.starting:
		return startPatience, true
	case s.stopsIdle():
		return lazyPatience, false
	}
	return patience, false
}

// Wake starts the lazy servers and waits a few seconds for them. If a server becomes ready later, clients are
// notified. It does not start a server with [Spec.OnCall].
func (m *Manager) Wake(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	m.each(func(s *server) {
		if !s.lazy || s.onCall {
			return
		}
		if _, err := s.ready(ctx); err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.missed = s.missed || s.conn == nil
		}
	})
}

func (s *server) find(ctx context.Context) error {
	if s.spec.Find == nil {
		return nil
	}
	if err := s.spec.Problem; err != nil {
		s.spec.Problem = nil
		return err
	}
	found, err := s.spec.Find(ctx, s.progress)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spec = &found
	if s.tools == nil {
		s.tools = found.Definitions
	}
	return nil
}

func (s *server) launched(ctx context.Context) (*process, error) {
	l, err := s.spec.Launch(ctx)
	if err != nil {
		return nil, err
	}
	p := &process{stdin: l.Stdin, stdout: l.Stdout, contained: true, stopLaunched: l.Stop, drained: make(chan struct{})}
	close(p.drained) // Launch reads stderr itself
	return p, nil
}
