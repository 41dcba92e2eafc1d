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

// A server that ends is restarted quickly a few times while calls wait. After that the pauses grow, and
// calls are refused at once. Attempts never stop, because the cause may disappear.
const (
	quickRestarts = 5
	firstPause    = 200 * time.Millisecond
	longestPause  = 30 * time.Second
	// forgiven is the run time that cancels one earlier end: a server that ends less often than this is
	// always restarted at once.
	forgiven = time.Minute / quickRestarts
)

// clock is the time source for restarts.
type clock interface {
	Now() time.Time
	After(time.Duration) <-chan time.Time
}

type wallClock struct{}

func (wallClock) Now() time.Time                         { return time.Now() }
func (wallClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// supervise keeps the server running until it is closed, has drifted, or is lazy and idle. With the error
// of a failed first start, it begins with a restart.
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
		s.log(fmt.Sprintf("the server stopped: %v", why))
		s.retire(call.Refuse(stage, call.ServerUnavailable, "server %s is being started again", s.alias).Again())
		conn = s.restart(&r, why)
	}
}

// restarts counts the recent ends of a server.
type restarts struct {
	first time.Duration
	ends  int       // not yet forgiven
	since time.Time // when the server last came up; zero if it did not
}

// ended counts an end and returns the pause before the next start.
func (r *restarts) ended(now time.Time) (pause time.Duration) {
	if !r.since.IsZero() {
		r.ends = max(0, r.ends-int(now.Sub(r.since)/forgiven))
		r.since = time.Time{}
	}
	r.ends++
	return min(r.first<<min(r.ends-1, 20), longestPause)
}

// spread shortens a pause by up to half, so that servers that ended together do not restart together. The
// share is from 0 to 1.
func spread(pause time.Duration, share float64) time.Duration {
	return pause - time.Duration(share*float64(pause)/2)
}

// restart brings the server up again; nil if it is closed, idle or drifted. Why is the reason that it is
// down.
func (s *server) restart(r *restarts, why error) *mcpwire.Conn {
	for {
		pause := spread(r.ended(s.options.clock.Now()), rand.Float64())
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
		s.log(fmt.Sprintf("could not be started again: %v", err))
		if drifted(err) {
			return nil // another start would not help
		}
		why = err
	}
}

// resting is the state of a server that ended too often and waits for its next start.
type resting struct {
	ends  int
	until time.Time
	why   string // the last error
}

// rest refuses calls at once until the next start.
func (s *server) rest(ends int, pause time.Duration, why error) {
	s.log(fmt.Sprintf("stopped or failed to start %d times in a row; next attempt in %v", ends, short(pause)))
	s.mu.Lock()
	s.resting = &resting{ends, s.options.clock.Now().Add(pause), s.secrets.mask(reason(why))}
	s.settle(s.doubts)
	s.mu.Unlock()
}

// wake makes calls wait for the next start.
func (s *server) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resting != nil {
		s.resting = nil
		s.unsettle()
	}
}

// refusal returns the refusal of a call at this time.
func (r *resting) refusal(alias string, now time.Time) *call.Refusal {
	left := max(r.until.Sub(now), time.Millisecond)
	no := call.Refuse(stage, call.ServerUnavailable,
		"server %s stopped or failed to start %d times in a row; next attempt in %v. Last error: %s",
		alias, r.ends, short(left), r.why).Again()
	no.RetryAfter = left
	return no
}

// reason returns the message of an error, without the code of a refusal.
func reason(why error) string {
	if r, ok := errors.AsType[*call.Refusal](why); ok {
		return r.Message
	}
	return why.Error()
}

// short rounds a duration for people.
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

// reprove compares the server's tools again. A server that drifted is quarantined: it stays refused until
// the agent is started again. With any other error the result is unknown.
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
		s.log("quarantined: " + p.Refusal.Message)
		s.dismiss(p)
	}
	return err
}

// retire takes the server out of use. Calls wait for its restart.
func (s *server) retire(why *call.Refusal) {
	p := s.lastProof()
	p.OK, p.Refusal = false, why
	s.dismiss(p)
}

// dismiss ends the server with the given proof.
func (s *server) dismiss(p Proof) {
	s.mu.Lock()
	end := s.detach()
	s.proof, s.missed = p, true
	s.unsettle()
	s.mu.Unlock()
	end()
	s.announce()
}
