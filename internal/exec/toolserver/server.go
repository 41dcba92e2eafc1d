package toolserver

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// server is one tool server and its state.
type server struct {
	agent string // the agent's id
	alias string
	lazy  bool
	// optional hides the server's tools from lists while the server is unavailable.
	optional bool
	spec     *Spec
	options  Options
	secrets  secrets
	turn     *turn // for hashing, at the start of the agent

	ctx  context.Context // ends with close
	stop context.CancelFunc
	done sync.WaitGroup

	// Used only by the goroutine that starts or proves the server.
	speaks    generation                 // the protocol generation
	first     map[string]pack.LockedTool // the tools that were proven first
	mayNotAsk bool                       // the server advertises other tools to clients that it can ask
	upSince   time.Time                  // when the server last came up

	recheck chan struct{} // signals that the tools must be compared again

	mu       sync.Mutex
	proof    Proof
	tools    map[string][]byte          // the definitions proven last
	conn     *mcpwire.Conn              // nil without a proven connection
	process  *process                   // nil for a remote server
	owned    map[string]*owned          // connections of single clients, by client key
	watched  map[string]*watch          // resources watched over the shared connection
	private  map[string]*privateWatches // resources watched over a client's own connection, by client key
	forgot   bool                       // the server may have lost its subscriptions
	called   chan struct{}              // closed by the next call; nil if nothing waits for one
	doubts   int                        // counts the reasons to prove the server again
	settled  chan struct{}              // closed while no proof is pending
	resting  *resting                   // set while the server rests after too many ends
	demand   demand                     // of a lazy server
	missed   bool                       // clients may have seen a list without these tools
	finished bool                       // no further proof will happen
}

func newServer(id string, spec Spec, o Options) *server {
	s := &server{
		agent: id, alias: spec.Alias, lazy: spec.Lazy, optional: spec.Optional, spec: &spec,
		options: o, tools: spec.Definitions,
		turn: &turn{passed: make(chan struct{})}, recheck: make(chan struct{}, 1), settled: make(chan struct{}),
		demand: demand{asleep: spec.Lazy, wanted: make(chan struct{}, 1)},
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.proof = Proof{Alias: spec.Alias}
	s.speaks = s.rememberedGeneration()
	return s
}

func (s *server) remote() bool { return s.spec.Transport == agent.StreamableHTTP }

// log and progress report events without credential values.
func (s *server) log(line string) { s.options.Log(s.alias, s.secrets.mask(line)) }

func (s *server) progress(step string) { s.options.Progress(s.alias, s.secrets.mask(step)) }

func (s *server) lastProof() Proof {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.proof
	p.Lazy = s.lazy
	if s.resting != nil {
		p.Refusal = s.resting.refusal(s.alias, s.options.clock.Now())
	}
	return p
}

// definition returns a tool's definition as last proven, also while the server is unavailable. The tools of
// an unavailable optional server are hidden.
func (s *server) definition(tool string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.optional && !s.proof.OK {
		return nil
	}
	return s.tools[tool]
}

// boot starts the server for the first time. It then supervises the server if the start succeeded or
// [Options.Persist] is set. A lazy server waits for its first use.
func (s *server) boot(ctx context.Context) {
	if s.lazy {
		if s.spec.Problem != nil {
			_, _ = s.bringUp(ctx) // fails at once and records the problem in the proof
			s.postpone(firstRetry)
		}
		s.done.Go(func() {
			defer s.finish()
			s.onDemand()
		})
		return
	}
	conn, err := s.bringUp(ctx)
	if err != nil && (!s.options.Persist || drifted(err) || s.uncontained() || ctx.Err() != nil) {
		s.finish()
		return
	}
	s.done.Go(func() {
		defer s.finish()
		s.supervise(conn, err)
	})
}

// bringUp starts the server and puts it into use. Its proof records the result.
func (s *server) bringUp(ctx context.Context) (*mcpwire.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	p := Proof{Alias: s.alias}
	conn, proc, doubts, err := s.attempt(ctx, &p)
	if err != nil {
		end(conn, proc)
		s.refuse(&p, err)
		s.progress("refused")
		s.adopt(p, nil, nil, doubts)
		return nil, err
	}
	s.progress("ready")
	s.upSince = s.options.clock.Now() // before a call can crash the server
	s.options.OnProven(s.alias, p.Tools)
	if !s.adopt(p, conn, proc, doubts) {
		end(conn, proc)
		return nil, context.Canceled
	}
	return conn, nil
}

// attempt prepares, starts, greets and proves the server.
func (s *server) attempt(ctx context.Context, p *Proof) (conn *mcpwire.Conn, proc *process, doubts int, err error) {
	// No timeout yet: finding and preparing may download a package.
	l := &plan{}
	if err = s.find(ctx); err == nil {
		l, err = s.prepare(ctx)
	}
	s.turn.pass()
	p.Package, p.notes, p.Lacking = l.digest, l.warnings, l.lacking
	if u, ok := errors.AsType[*Unavailable](err); ok {
		p.Lacking, p.NotFound = u.Lacking, u.NotFound && !s.optional
	}
	if err != nil {
		return nil, nil, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.startTimeout)
	defer cancel()
	if conn, proc, err = s.connect(ctx, l, p); err == nil {
		s.progress("proving")
		doubts, err = s.prove(ctx, conn, p)
	}
	if drifted(err) && len(p.Unexpected) > 0 && s.ownerCanBeAsked() {
		end(conn, proc)
		s.mayNotAsk = true
		*p = Proof{Alias: p.Alias, Package: p.Package, notes: append(l.warnings,
			"the server advertises other tools to clients that it can ask, so it cannot ask")}
		if conn, proc, err = s.connect(ctx, l, p); err == nil {
			doubts, err = s.prove(ctx, conn, p)
		}
	}
	if err != nil && !drifted(err) && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = call.Refuse(stage, call.TimedOut, "server %s did not start within %v", s.alias, s.options.startTimeout)
	}
	return conn, proc, doubts, err
}

// prove lists and compares the tools. It returns the number of doubts that the answer settles.
func (s *server) prove(ctx context.Context, conn *mcpwire.Conn, p *Proof) (doubts int, err error) {
	s.mu.Lock()
	doubts = s.doubts
	s.mu.Unlock()
	tools, err := conn.ListTools(ctx)
	if err != nil {
		return doubts, err
	}
	s.compare(p, tools)
	if !p.OK {
		return doubts, p.Refusal
	}
	return doubts, nil
}

// refuse records in a proof why the server cannot be used.
func (s *server) refuse(p *Proof, err error) {
	r, ok := errors.AsType[*call.Refusal](err)
	if !ok {
		r = call.Refuse(stage, call.ServerUnavailable, "server %s did not start: %v", s.alias, err)
	}
	p.OK, p.Refusal = false, r
	p.Lacking = p.Lacking || r.Code == call.CredentialMissing || errors.Is(err, exec.ErrNotFound)
	if p.Warnings == nil {
		p.Warnings = slices.Clone(p.notes)
	}
	s.redact(p)
}

// adopt makes a proof and a connection the current ones and releases waiting calls, unless new doubts came
// up. It reports whether the server is still needed.
func (s *server) adopt(p Proof, conn *mcpwire.Conn, proc *process, doubts int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := s.ctx.Err() == nil
	if !wanted {
		conn, proc = nil, nil
	}
	s.proof, s.conn, s.process = p, conn, proc
	if conn == nil {
		s.missed = true
		return wanted
	}
	s.tools, s.demand.starting = p.Tools, false
	s.settle(doubts)
	if s.missed {
		s.missed = false
		s.announce()
	}
	s.forgot = true
	s.resubscribe(conn)
	return wanted
}

// announce notifies clients that the tools came back, changed or disappeared. It does not wait, because its
// callers hold the lock.
func (s *server) announce() { go s.options.OnNotify(s.alias, mcpwire.MethodToolsChanged, nil) }

// settle releases waiting calls if all doubts are settled. The caller holds the lock.
func (s *server) settle(doubts int) {
	select {
	case <-s.settled:
	default:
		if s.finished || doubts == s.doubts {
			close(s.settled)
		}
	}
}

// finish marks that no further proof will happen.
func (s *server) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = true
	s.settle(s.doubts)
}

// doubt holds calls back until the server is proven again.
func (s *server) doubt() {
	s.mu.Lock()
	s.unsettle()
	s.mu.Unlock()
	select {
	case s.recheck <- struct{}{}:
	default: // already signalled
	}
}

// unsettle counts a doubt and makes calls wait. The caller holds the lock.
func (s *server) unsettle() {
	if s.finished {
		return
	}
	s.doubts++
	select {
	case <-s.settled:
		s.settled = make(chan struct{})
	default:
	}
}

func (s *server) close() {
	s.stop()
	s.done.Wait()
	s.finish()
	s.mu.Lock()
	end := s.detach()
	s.mu.Unlock()
	end()
}

// detach takes the server out of use. The caller holds the lock, releases it, and then calls endAll.
func (s *server) detach() (endAll func()) {
	conn, proc := s.conn, s.process
	s.conn, s.process, s.resting = nil, nil, nil
	return func() {
		s.releaseAll()
		end(conn, proc)
	}
}

// grace is how long a program may run after its input is closed.
const grace = 500 * time.Millisecond

func end(conn *mcpwire.Conn, proc *process) {
	if conn != nil {
		conn.Close()
	}
	if proc != nil {
		proc.stop(grace)
	}
}
