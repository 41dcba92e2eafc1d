package toolserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/mcpwire"
)

// server is one tool server and what is known of it.
type server struct {
	agent   *agent.Agent
	spec    *agent.Server
	options Options

	ctx  context.Context // ends with close
	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	proof   Proof
	conn    *mcpwire.Conn // nil while there is none that is proven
	process *process      // nil for a remote server
	legacy  bool          // the server does not survive the newer greeting
	again   chan struct{} // told that the tools may have changed
}

func newServer(a *agent.Agent, spec *agent.Server, o Options) *server {
	s := &server{agent: a, spec: spec, options: o, again: make(chan struct{}, 1)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.proof = Proof{Alias: spec.Alias}
	return s
}

func (s *server) lastProof() Proof {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proof
}

// boot starts the server for the first time; once it is proven, it is kept
// running.
func (s *server) boot(ctx context.Context) {
	conn, err := s.bring(ctx)
	if err != nil {
		return
	}
	s.done.Go(func() { s.supervise(conn) })
}

// bring prepares, starts, greets and proves the server, and makes it the one
// that is called. What became of it is in its proof.
func (s *server) bring(ctx context.Context) (*mcpwire.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.StartTimeout)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	p := Proof{Alias: s.spec.Alias}
	conn, proc, err := s.connect(ctx, &p)
	if err == nil {
		s.options.Progress(s.spec.Alias, "proving")
		var tools []mcpwire.Tool
		if tools, err = conn.ListTools(ctx); err == nil {
			s.compare(&p, tools)
			if p.Refusal != nil {
				err = p.Refusal
			}
		}
	}
	if err != nil {
		p.OK = false
		p.Refusal = s.refusal(ctx, err)
		end(conn, proc)
		s.options.Progress(s.spec.Alias, "refused")
		s.adopt(p, nil, nil)
		return nil, err
	}
	s.options.Progress(s.spec.Alias, "ready")
	if !s.adopt(p, conn, proc) {
		end(conn, proc)
		return nil, context.Canceled
	}
	return conn, nil
}

// adopt makes a proof and a connection the current ones. It reports whether
// the server was still wanted.
func (s *server) adopt(p Proof, conn *mcpwire.Conn, proc *process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proof, s.conn, s.process = p, conn, proc
	return s.ctx.Err() == nil
}

// connect starts or reaches the server and greets it.
func (s *server) connect(ctx context.Context, p *Proof) (*mcpwire.Conn, *process, error) {
	if s.spec.Transport == agent.StreamableHTTP {
		p.Package = PackageDigest{Declared: s.spec.Digest, Status: Unverifiable}
		transport, err := mcpwire.HTTP(s.spec.Endpoint, mcpwire.HTTPOptions{Header: s.headers})
		if err != nil {
			return nil, nil, err
		}
		s.options.Progress(s.spec.Alias, "connecting")
		conn := mcpwire.New(transport, s.wire())
		err = s.greet(ctx, conn, p)
		return conn, nil, err
	}
	l, err := s.prepare(ctx)
	p.Package = l.digest
	if l.warning != "" {
		p.Warnings = append(p.Warnings, l.warning)
	}
	if err != nil {
		return nil, nil, err
	}
	conn, proc, err := s.launch(ctx, l, p)
	if errors.Is(err, mcpwire.ErrRespawnLegacy) {
		end(conn, proc)
		s.legacy = true
		conn, proc, err = s.launch(ctx, l, p)
	}
	return conn, proc, err
}

func (s *server) launch(ctx context.Context, l *launch, p *Proof) (*mcpwire.Conn, *process, error) {
	env, err := s.environment()
	if err != nil {
		return nil, nil, err
	}
	s.options.Progress(s.spec.Alias, "starting")
	proc, err := start(spec{
		argv: l.argv, env: env, hide: s.options.Home.Dir(), show: l.show,
		log: func(line string) { s.options.Log(s.spec.Alias, line) },
	})
	if err != nil {
		return nil, nil, err
	}
	p.Contained = proc.contained
	conn := mcpwire.New(mcpwire.Stdio(proc.stdout, proc.stdin), s.wire())
	return conn, proc, s.greet(ctx, conn, p)
}

func (s *server) greet(ctx context.Context, conn *mcpwire.Conn, p *Proof) error {
	hello, err := conn.Negotiate(ctx)
	if err == nil {
		p.Protocol = hello.Version
	}
	return err
}

func (s *server) wire() mcpwire.Options {
	changed := func() {
		select {
		case s.again <- struct{}{}:
		default: // already told
		}
	}
	return mcpwire.Options{
		Name: "ambit", Version: s.options.Version, Legacy: s.legacy, OnGap: changed,
		OnNotification: func(n mcpwire.Notification) {
			if n.Method == mcpwire.MethodToolsChanged {
				changed()
			}
		},
		OnNoise: func(line []byte) { s.options.Log(s.spec.Alias, "(not a message) "+string(line)) },
	}
}

// headers adds what the manifest declares, with credentials, as the last thing
// before a request leaves.
func (s *server) headers(_ context.Context, h http.Header) error {
	for _, set := range s.spec.Headers {
		value, err := s.resolve(set)
		if err != nil {
			return err
		}
		h.Set(set.Name, value)
	}
	return nil
}

// How often and how patiently a server that ends is started again.
const (
	maxRestarts  = 5
	firstPause   = 200 * time.Millisecond
	steadyPeriod = time.Minute
)

// supervise keeps the server running until it is closed, has drifted, or ends
// too often.
func (s *server) supervise(conn *mcpwire.Conn) {
	restarts, pause, since := 0, firstPause, time.Now()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.again:
			if !s.reprove(conn) {
				return
			}
			continue
		case <-conn.Done():
		}
		s.options.Log(s.spec.Alias, fmt.Sprintf("the server went away: %v", conn.Err()))
		if time.Since(since) > steadyPeriod {
			restarts, pause = 0, firstPause
		}
		s.retire(call.Refuse(stage, call.ServerUnavailable, "server %s is being started again", s.spec.Alias).Again())
		for {
			if restarts++; restarts > maxRestarts {
				s.retire(call.Refuse(stage, call.ServerUnavailable, "server %s ended %d times and is not started again", s.spec.Alias, restarts))
				return
			}
			select {
			case <-s.ctx.Done():
				return
			case <-time.After(pause):
			}
			pause *= 2
			next, err := s.bring(s.ctx)
			if err == nil {
				conn, since = next, time.Now()
				break
			}
			s.options.Log(s.spec.Alias, fmt.Sprintf("it could not be started again: %v", err))
			if r := s.lastProof().Refusal; r != nil && r.Code == call.ServerDrifted {
				return // starting it more often would not make it right
			}
		}
	}
}

// reprove compares the server's tools again. If it has drifted it is
// quarantined: it stays refused until the agent is started again.
func (s *server) reprove(conn *mcpwire.Conn) bool {
	ctx, cancel := context.WithTimeout(s.ctx, s.options.StartTimeout)
	defer cancel()
	p := s.lastProof()
	p.Missing, p.Unexpected, p.Renamed, p.Changed, p.Warnings, p.Refusal = nil, nil, nil, nil, nil, nil
	tools, err := conn.ListTools(ctx)
	if err != nil {
		return true // the connection is over, which the caller sees next
	}
	s.compare(&p, tools)
	if p.OK {
		s.mu.Lock()
		s.proof = p
		s.mu.Unlock()
		return true
	}
	s.options.Log(s.spec.Alias, "quarantined: "+p.Refusal.Message)
	s.mu.Lock()
	old, proc := s.conn, s.process
	s.proof, s.conn, s.process = p, nil, nil
	s.mu.Unlock()
	end(old, proc)
	return false
}

// retire takes the server out of use, for the reason given.
func (s *server) retire(why *call.Refusal) {
	s.mu.Lock()
	conn, proc := s.conn, s.process
	s.conn, s.process = nil, nil
	s.proof.OK, s.proof.Refusal = false, why
	s.mu.Unlock()
	end(conn, proc)
}

func (s *server) close() {
	s.stop()
	s.done.Wait()
	s.mu.Lock()
	conn, proc := s.conn, s.process
	s.conn, s.process = nil, nil
	s.mu.Unlock()
	end(conn, proc)
}

// grace is how long a program may take to end when its input does.
const grace = 500 * time.Millisecond

func end(conn *mcpwire.Conn, proc *process) {
	if conn != nil {
		conn.Close()
	}
	if proc != nil {
		proc.stop(grace)
	}
}
