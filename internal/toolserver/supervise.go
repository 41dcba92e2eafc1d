package toolserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/mcpwire"
)

// How often and how patiently a server that ends is started again. A remote one
// is asked for ever, since that starts nothing.
const (
	maxRestarts  = 5
	firstPause   = 200 * time.Millisecond
	longestPause = 30 * time.Second
	steadyPeriod = time.Minute
)

// supervise keeps the server running until it is closed, has drifted, or ends
// too often.
func (s *server) supervise(conn *mcpwire.Conn) {
	r := restarts{pause: s.options.pause, since: time.Now()}
	for conn != nil {
		var why error
		select {
		case <-s.ctx.Done():
			return
		case <-conn.Done():
			why = conn.Err()
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
		s.retire(call.Refuse(stage, call.ServerUnavailable, "server %s is being started again", s.spec.Alias).Again())
		conn = s.restart(&r)
	}
}

// restarts are what was tried to keep a server running.
type restarts struct {
	count int
	pause time.Duration
	since time.Time // when it last came up
}

// restart brings the server up again, nil if that is not to be.
func (s *server) restart(r *restarts) *mcpwire.Conn {
	if time.Since(r.since) > steadyPeriod {
		*r = restarts{pause: s.options.pause}
	}
	for {
		if r.count++; r.count > maxRestarts && !s.remote() {
			s.retire(call.Refuse(stage, call.ServerUnavailable, "server %s ended %d times and is not started again", s.spec.Alias, r.count))
			return nil
		}
		select {
		case <-s.ctx.Done():
			return nil
		case <-time.After(r.pause):
		}
		r.pause = min(2*r.pause, longestPause)
		conn, err := s.bring(s.ctx)
		if err == nil {
			r.since = time.Now()
			return conn
		}
		if s.ctx.Err() != nil {
			return nil
		}
		s.log(fmt.Sprintf("it could not be started again: %v", err))
		if drifted(err) {
			return nil // starting it more often would not make it right
		}
	}
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
	s.proof, s.conn, s.process = p, nil, nil
	s.unsettle()
	s.mu.Unlock()
	s.releaseAll()
	end(conn, proc)
	s.announce()
}
