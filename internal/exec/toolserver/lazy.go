package toolserver

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// Spec is a server and how it is started, as far as its entry does not say it.
type Spec struct {
	agent.Server
	// Tools are the names of the declared tools.
	Tools []string
	// Learn accepts the tools that the server advertises when it is first proven, in
	// place of declared ones.
	Learn bool
	// Definitions are those that are known before the first start, by name.
	Definitions map[string][]byte
	// Lazy starts the server on first use and stops it when it is idle.
	Lazy bool
	// Optional leaves the tools of a lazy server out of lists while it is unavailable.
	Optional bool
	// Launch starts the program in place of the command; nil leaves that to this
	// package. The caller has verified the program.
	Launch func(context.Context) (*Launched, error)
	// Package returns the package of a server that no command names, hashed just now;
	// nil for all others.
	Package func(ctx context.Context, want pack.Want, progress pack.Progress) (*pack.Package, error)
	// RoundTripper sends requests to a remote server; nil leaves that to mcpwire.
	RoundTripper http.RoundTripper
	// Find completes the spec before the first start, and is called again after it
	// failed. The error may be an [*Unavailable]. Nil means that the spec is complete.
	Find func(ctx context.Context, progress pack.Progress) (Spec, error)
	// Problem is the error that Find would return, if that is known already.
	Problem error
}

// Unavailable is the error of a server that cannot be prepared for its start.
type Unavailable struct {
	Refusal *call.Refusal
	// Lacking reports that a registry or something on this machine is missing.
	Lacking bool
	// NotFound reports that no lock, catalogue or registry provides the server.
	NotFound bool
}

func (e *Unavailable) Error() string { return e.Refusal.Error() }

// Unwrap returns the refusal.
func (e *Unavailable) Unwrap() error { return e.Refusal }

// declared are the servers of an agent as its manifest describes them.
func declared(a *agent.Agent) []Spec {
	specs := make([]Spec, len(a.Servers))
	for i, s := range a.Servers {
		specs[i].Server = s
		for j := range a.Tools {
			if on, ok := a.Tools[j].Binding.(agent.OnServer); ok && on.Alias == s.Alias {
				specs[i].Tools = append(specs[i].Tools, a.Tools[j].Name)
			}
		}
	}
	return specs
}

const (
	// idleTime is how long an unused lazy server keeps running.
	idleTime = 10 * time.Minute
	// listPatience is how long a list of tools waits for lazy servers.
	listPatience = 5 * time.Second
	// startPatience is how long a call waits for the lazy server that it starts. Tools
	// have more time, so the call is refused and its effect is known.
	startPatience = 25 * time.Second
	// lazyPatience is how long a call waits for a lazy server that has just ended.
	lazyPatience = 800 * time.Millisecond
	// firstRetry and lastRetry bound the pauses between failed starts.
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// demand is the use of a lazy server, guarded by the server's lock.
type demand struct {
	asleep   bool          // it does not run, and the next use starts it
	starting bool          // a use has started it
	wanted   chan struct{} // signals that use
	retry    time.Time     // no start before, after one failed
	busy     int           // requests under way
	used     time.Time
}

// onDemand starts the server when it is used and supervises it until it is idle,
// again and again. It returns when the server is closed or quarantined.
func (s *server) onDemand() {
	pause := firstRetry
	for s.awaitUse() {
		conn, err := s.bring(s.ctx)
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
		s.putOff(pause)
		pause = min(2*pause, lastRetry)
	}
}

// putOff refuses calls with the reason of a failed start until the next one.
func (s *server) putOff(pause time.Duration) {
	s.log(s.lastProof().Refusal.Error())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.demand.asleep, s.demand.starting = true, false
	s.demand.retry = s.options.clock.Now().Add(pause)
	s.settle(s.doubts)
}

// awaitUse waits until the server is to be started and reports whether it is. A start
// that failed is repeated without a use: for as long as the server counts as used, and
// always if a required server was not found.
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
		s.rouse()
	} else {
		<-s.demand.wanted // a use came at the same moment
	}
	return true
}

// rouse makes calls wait for the start of the server. The caller holds the lock.
func (s *server) rouse() {
	s.demand.asleep, s.demand.starting = false, true
	s.unsettle()
}

// ask starts a lazy server that does not run, unless its last start failed a moment
// ago. The caller holds the lock.
func (s *server) ask() {
	if !s.lazy {
		return
	}
	now := s.options.clock.Now()
	s.demand.used = now
	if s.demand.asleep && !s.over && !now.Before(s.demand.retry) {
		s.rouse()
		s.demand.wanted <- struct{}{} // it has room: awaitUse takes the signal before the next sleep
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

// stopIdle stops a lazy server that is neither used nor watched, and reports whether
// it did.
func (s *server) stopIdle() bool {
	s.mu.Lock()
	d := &s.demand
	if !s.lazy || d.busy > 0 || s.options.clock.Now().Sub(d.used) < s.options.Idle || s.isWatched() {
		s.mu.Unlock()
		return false
	}
	conn, proc := s.conn, s.process
	s.conn, s.process, s.resting = nil, nil, nil
	d.asleep, d.retry = true, time.Time{}
	s.mu.Unlock()
	s.releaseAll()
	end(conn, proc)
	s.log("stopped: it was not used")
	return true
}

func (s *server) sleeping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.demand.asleep || s.demand.starting
}

// isWatched reports whether a client watches a resource. The caller holds the lock.
func (s *server) isWatched() bool {
	for _, a := range s.apart {
		if len(a.uris) > 0 {
			return true
		}
	}
	return len(s.watched) > 0
}

// patience is how long a call waits for the server, and starting whether the call
// waits for a lazy server's start.
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

// Wake starts the lazy servers and waits a few seconds for them to come up. Clients
// are notified of those that come up later.
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

// launched starts a program by the function that knows how.
func (s *server) launched(ctx context.Context) (*process, error) {
	l, err := s.spec.Launch(ctx)
	if err != nil {
		return nil, err
	}
	p := &process{stdin: l.Stdin, stdout: l.Stdout, contained: true, elsewhere: l.Stop, drained: make(chan struct{})}
	close(p.drained) // its log goes elsewhere
	return p, nil
}
