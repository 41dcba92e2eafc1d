package toolserver

import (
	"context"
	"sync"
	"time"
)

const (
	// idleTime is how long an unused lazy server keeps running.
	idleTime = 10 * time.Minute
	// listPatience is how long a list of tools waits for lazy servers.
	listPatience = 5 * time.Second
	// startPatience is how long a call waits for the lazy server that it starts. It is shorter than the
	// timeout of tools, so the call is refused before it is sent.
	startPatience = 25 * time.Second
	// lazyPatience is how long a call waits for a lazy server that has just ended.
	lazyPatience = 800 * time.Millisecond
	// firstRetry and lastRetry bound the pauses between failed starts.
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// demand is the use of a lazy server, guarded by the server's lock.
type demand struct {
	asleep   bool          // stopped; the next use starts it
	starting bool          // a use has started it
	wanted   chan struct{} // signals that use
	retry    time.Time     // no start before this time, after one failed
	busy     int           // requests under way
	used     time.Time
}

// onDemand starts the server when it is used and supervises it until it is idle, in a loop. It returns when
// the server is closed or quarantined.
func (s *server) onDemand() {
	pause := firstRetry
	for s.awaitUse() {
		conn, err := s.bringUp(s.ctx)
		if err == nil {
			pause = firstRetry
			for _, w := range s.lastProof().Warnings {
				s.log("warning: " + w)
			}
			if s.supervise(conn, nil); s.sleeping() {
				continue
			}
			return
		}
		if s.ctx.Err() != nil {
			return
		}
		s.postpone(pause)
		pause = min(2*pause, lastRetry)
	}
}

// postpone refuses calls with the reason of a failed start until the next attempt.
func (s *server) postpone(pause time.Duration) {
	s.log(s.lastProof().Refusal.Error())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.demand.asleep, s.demand.starting = true, false
	s.demand.retry = s.options.clock.Now().Add(pause)
	s.settle(s.doubts)
}

// awaitUse waits until the server must start and reports whether it must. A failed start is repeated
// without a use while the server counts as used, and always if a required server was not found.
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
		<-s.demand.wanted // a use came at the same moment
	}
	return true
}

// markStarting makes calls wait for the start of the server. The caller holds the lock.
func (s *server) markStarting() {
	s.demand.asleep, s.demand.starting = false, true
	s.unsettle()
}

// startOnUse starts a lazy server that does not run, unless its last start failed a moment ago. The caller
// holds the lock.
func (s *server) startOnUse() {
	if !s.lazy {
		return
	}
	now := s.options.clock.Now()
	s.demand.used = now
	if s.demand.asleep && !s.finished && !now.Before(s.demand.retry) {
		s.markStarting()
		s.demand.wanted <- struct{}{} // never blocks: awaitUse receives the signal before the next sleep
	}
}

// use keeps a lazy server running until done is called.
func (s *server) use() (done func()) {
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

// idleCheck fires when a lazy server may have been idle for long enough.
func (s *server) idleCheck() <-chan time.Time {
	if !s.lazy {
		return nil
	}
	s.mu.Lock()
	left := s.options.Idle - s.options.clock.Now().Sub(s.demand.used)
	s.mu.Unlock()
	return s.options.clock.After(max(left, min(s.options.Idle, time.Second)))
}

// stopIdle stops a lazy server that is neither used nor watched, and reports whether it did.
func (s *server) stopIdle() bool {
	s.mu.Lock()
	d := &s.demand
	if !s.lazy || d.busy > 0 || s.options.clock.Now().Sub(d.used) < s.options.Idle || s.isWatched() {
		s.mu.Unlock()
		return false
	}
	end := s.detach()
	d.asleep, d.retry = true, time.Time{}
	s.mu.Unlock()
	end()
	s.log("stopped: idle")
	return true
}

func (s *server) sleeping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.demand.asleep || s.demand.starting
}

// isWatched reports whether a client watches a resource. The caller holds the lock.
func (s *server) isWatched() bool {
	for _, a := range s.private {
		if len(a.uris) > 0 {
			return true
		}
	}
	return len(s.watched) > 0
}

// patience returns how long a call waits for the server, and whether it waits for a lazy server's start.
func (s *server) patience() (_ time.Duration, starting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.lazy:
		return patience, false
	case s.demand.starting:
		return startPatience, true
	}
	return lazyPatience, false
}

// Wake starts the lazy servers and waits a few seconds for them. Clients are notified of those that come up
// later.
func (m *Manager) Wake(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	var wg sync.WaitGroup
	for _, s := range m.order {
		if !s.lazy {
			continue
		}
		wg.Go(func() {
			if _, err := s.ready(ctx); err != nil {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.missed = s.missed || s.conn == nil
			}
		})
	}
	wg.Wait()
}

// find completes the spec of a server that was not found yet.
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
	s.spec = &found
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tools == nil {
		s.tools = found.Definitions
	}
	return nil
}

// launched starts a program with [Spec.Launch].
func (s *server) launched(ctx context.Context) (*process, error) {
	l, err := s.spec.Launch(ctx)
	if err != nil {
		return nil, err
	}
	p := &process{stdin: l.Stdin, stdout: l.Stdout, contained: true, stopLaunched: l.Stop, drained: make(chan struct{})}
	close(p.drained) // Launch handles stderr
	return p, nil
}
