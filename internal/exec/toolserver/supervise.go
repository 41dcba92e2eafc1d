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

// How patiently a server that ends is started again: at once a few times, while
// calls wait for it, and from then on less and less often, while calls are
// refused at once. It is never given up: what made it end may pass.
const (
	quickRestarts = 5
	firstPause    = 200 * time.Millisecond
	longestPause  = 30 * time.Second
	// forgiven is how long a server has to run for one of its ends to be
	// forgotten: one that ends as often as this is always started again at once.
	forgiven = time.Minute / quickRestarts
)

// clock is the time by which servers are started again.
type clock interface {
	Now() time.Time
	After(time.Duration) <-chan time.Time
}

type wallClock struct{}

func (wallClock) Now() time.Time                         { return time.Now() }
func (wallClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// supervise keeps the server running until it is closed, has drifted, or is lazy and
// idle. One whose first start failed, for the reason given, is started again as one
// that ended.
func (s *server) supervise(conn *mcpwire.Conn, failed error) {
	r := restarts{first: s.options.pause, since: s.up}
	if failed != nil {
		if conn = s.restart(&r, failed); conn != nil {
			s.log("it has started now")
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
		case <-s.again:
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
		s.log(fmt.Sprintf("the server went away: %v", why))
		s.retire(call.Refuse(stage, call.ServerUnavailable, "server %s is being started again", s.alias).Again())
		conn = s.restart(&r, why)
	}
}

// restarts are what was tried to keep a server running.
type restarts struct {
	first time.Duration
	ends  int       // that are not forgotten
	since time.Time // when it last came up; zero if it did not
}

// ended counts an end and tells how long to wait before the next start.
func (r *restarts) ended(now time.Time) (pause time.Duration) {
	if !r.since.IsZero() {
		r.ends = max(0, r.ends-int(now.Sub(r.since)/forgiven))
		r.since = time.Time{}
	}
	r.ends++
	pause = longestPause
	if doublings := r.ends - 1; doublings < 30 {
		pause = min(r.first<<doublings, longestPause)
	}
	return pause
}

func (r *restarts) tooMany() bool { return r.ends > quickRestarts }

// spread takes up to half off a pause, so that servers that ended together do
// not come back together. The share is from 0 to 1.
func spread(pause time.Duration, share float64) time.Duration {
	return pause - time.Duration(share*float64(pause)/2)
}

// restart brings the server up again, nil if that is not to be. It is told why the
// server is not up.
func (s *server) restart(r *restarts, why error) *mcpwire.Conn {
	for {
		pause := spread(r.ended(s.options.clock.Now()), rand.Float64())
		if r.tooMany() {
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
		conn, err := s.bring(s.ctx)
		if err == nil {
			r.since = s.up
			return conn
		}
		if s.ctx.Err() != nil {
			return nil
		}
		s.log(fmt.Sprintf("it could not be started again: %v", err))
		if drifted(err) {
			return nil // starting it more often would not make it right
		}
		why = err
	}
}

// resting is a server that ended too often and is left alone for a while.
type resting struct {
	ends  int
	until time.Time
	why   string // the last time
}

// rest lets calls be refused at once until the server is tried again.
func (s *server) rest(ends int, pause time.Duration, why error) {
	s.log(fmt.Sprintf("it ended or failed to start %d times in short order; it is tried again in %v", ends, short(pause)))
	s.mu.Lock()
	s.resting = &resting{ends, s.options.clock.Now().Add(pause), s.secrets.mask(reason(why))}
	s.settle(s.doubts)
	s.mu.Unlock()
}

// wake lets calls wait for what comes of the next try.
func (s *server) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resting != nil {
		s.resting = nil
		s.unsettle()
	}
}

// refusal is that of a call now.
func (r *resting) refusal(alias string, now time.Time) *call.Refusal {
	left := max(r.until.Sub(now), time.Millisecond)
	no := call.Refuse(stage, call.ServerUnavailable, "server %s ended or failed to start %d times in short order; it is tried again in %v. The last time: %s", alias, r.ends, short(left), r.why).Again()
	no.RetryAfter = left
	return no
}

// reason is why a server is not up, in words.
func reason(why error) string {
	if r, ok := errors.AsType[*call.Refusal](why); ok {
		return r.Message
	}
	return why.Error()
}

// short is a duration as people say it.
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

// reprove compares the server's tools again. If it has drifted it is
// quarantined: it stays refused until the agent is started again. Any other
// error means that it could not be told.
func (s *server) reprove(conn *mcpwire.Conn) error {
	ctx, cancel := context.WithTimeout(s.ctx, s.options.StartTimeout)
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
		s.remind(conn)
	case drifted(err):
		s.refuse(&p, err)
		s.log("quarantined: " + p.Refusal.Message)
		s.dismiss(p)
	}
	return err
}

// retire takes the server out of use, for the reason given. Calls wait for what
// comes of it.
func (s *server) retire(why *call.Refusal) {
	p := s.lastProof()
	p.OK, p.Refusal = false, why
	s.dismiss(p)
}

// dismiss ends the server, with a proof that says why.
func (s *server) dismiss(p Proof) {
	s.mu.Lock()
	conn, proc := s.conn, s.process
	s.proof, s.conn, s.process, s.missed = p, nil, nil, true
	s.unsettle()
	s.mu.Unlock()
	s.releaseAll()
	end(conn, proc)
	s.announce()
}
