package toolserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// server is one tool server and what is known of it.
type server struct {
	agent string // its id
	alias string
	lazy  bool
	// optional leaves its tools out of lists while it is unavailable.
	optional bool
	spec     *Spec
	options  Options
	secrets  secrets
	turn     *turn // to be hashed, when the agent is started

	ctx  context.Context // ends with close
	stop context.CancelFunc
	done sync.WaitGroup

	// Of whoever brings it up or proves it again, one after the other.
	speaks generation                 // how it is greeted
	first  map[string]pack.LockedTool // its tools when it was first proven
	plain  bool                       // its tools depend on what it may ask, so it may not
	up     time.Time                  // when it last came up

	again chan struct{} // told that its tools have to be compared again

	mu      sync.Mutex
	proof   Proof
	tools   map[string][]byte // the definitions that were proven last
	conn    *mcpwire.Conn     // nil while there is none that is proven
	process *process          // nil for a remote server
	owned   map[string]*owned // connections of single clients, by their keys
	watched map[string]*watch // resources that clients of the shared connection watch
	apart   map[string]*apart // what clients watch by their own, by their keys
	forgot  bool              // it may not know any more what is watched
	called  chan struct{}     // closed by the next call, for whoever waits for one; nil if nobody does
	doubts  int               // how often there was reason to prove it again
	settled chan struct{}     // closed while nothing is being found out
	resting *resting          // it ended too often; nil otherwise
	demand  demand            // of a lazy server
	missed  bool              // clients may have seen a list without its tools
	over    bool              // nothing will be found out any more
}

func newServer(id string, spec Spec, o Options) *server {
	s := &server{
		agent: id, alias: spec.Alias, lazy: spec.Lazy, optional: spec.Optional, spec: &spec,
		options: o, tools: spec.Definitions,
		turn: &turn{passed: make(chan struct{})}, again: make(chan struct{}, 1), settled: make(chan struct{}),
		demand: demand{asleep: spec.Lazy, wanted: make(chan struct{}, 1)},
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.proof = Proof{Alias: spec.Alias}
	s.speaks = s.rememberedGeneration()
	return s
}

func (s *server) remote() bool { return s.spec.Transport == agent.StreamableHTTP }

// log and progress tell what happens, without the values of credentials.
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

// definition returns that of a tool as it was proven last, also while the server is
// unavailable; but an optional server is then as good as not there.
func (s *server) definition(tool string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.optional && !s.proof.OK {
		return nil
	}
	return s.tools[tool]
}

// boot starts the server for the first time; once it is proven, or if it is to be
// tried again, it is kept running. A lazy server is left to its first use, unless it
// has to be found first.
func (s *server) boot(ctx context.Context) {
	if s.lazy {
		if s.spec.Problem != nil {
			_, _ = s.bring(ctx) // fails at once, and the proof says so
			s.putOff(firstRetry)
		}
		s.done.Go(func() {
			defer s.finish()
			s.onDemand()
		})
		return
	}
	conn, err := s.bring(ctx)
	if err != nil && (!s.options.Persist || drifted(err) || s.uncontained() || ctx.Err() != nil) {
		s.finish()
		return
	}
	s.done.Go(func() {
		defer s.finish()
		s.supervise(conn, err)
	})
}

// bring brings the server up and makes it the one that is called. What became
// of it is in its proof.
func (s *server) bring(ctx context.Context) (*mcpwire.Conn, error) {
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
	s.up = s.options.clock.Now() // before anybody can use it, and bring it down
	s.options.OnProven(s.alias, p.Tools)
	if !s.adopt(p, conn, proc, doubts) {
		end(conn, proc)
		return nil, context.Canceled
	}
	return conn, nil
}

// attempt prepares, starts, greets and proves the server.
func (s *server) attempt(ctx context.Context, p *Proof) (conn *mcpwire.Conn, proc *process, doubts int, err error) {
	// Finding and preparing may download a package, which takes as long as it takes.
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
	ctx, cancel := context.WithTimeout(ctx, s.options.StartTimeout)
	defer cancel()
	if conn, proc, err = s.connect(ctx, l, p); err == nil {
		s.progress("proving")
		doubts, err = s.prove(ctx, conn, p)
	}
	if drifted(err) && len(p.Unexpected) > 0 && s.asksOwner() {
		end(conn, proc)
		s.plain = true
		*p = Proof{Alias: p.Alias, Package: p.Package, notes: append(l.warnings, "it has other tools for a client that it can ask something, so it cannot ask")}
		if conn, proc, err = s.connect(ctx, l, p); err == nil {
			doubts, err = s.prove(ctx, conn, p)
		}
	}
	if err != nil && !drifted(err) && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = call.Refuse(stage, call.TimedOut, "server %s did not start within %v", s.alias, s.options.StartTimeout)
	}
	return conn, proc, doubts, err
}

// prove asks for the tools and compares them. It also tells as of which doubt
// the answer holds.
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

// refuse writes into a proof why the server is not to be used.
func (s *server) refuse(p *Proof, err error) {
	r, ok := errors.AsType[*call.Refusal](err)
	if !ok {
		r = call.Refuse(stage, call.ServerUnavailable, "server %s did not start: %v", s.alias, err)
	}
	p.OK, p.Refusal, p.Lacking = false, r, p.Lacking || lacking(err)
	if p.Warnings == nil {
		p.Warnings = slices.Clone(p.notes)
	}
	s.hush(p)
}

// adopt makes a proof and a connection the current ones, and lets calls go on
// unless there were new doubts meanwhile. It reports whether the server was
// still wanted.
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
	s.remember(conn)
	return wanted
}

// announce tells whoever listens that the tools came back, changed or went. It
// does not wait, since its callers hold the lock.
func (s *server) announce() { go s.options.OnNotify(s.alias, mcpwire.MethodToolsChanged, nil) }

// settle lets waiting calls go on, if all doubts are answered. The caller holds
// the lock.
func (s *server) settle(doubts int) {
	select {
	case <-s.settled:
	default:
		if s.over || doubts == s.doubts {
			close(s.settled)
		}
	}
}

// finish says that nothing more will be found out.
func (s *server) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.settle(s.doubts)
}

// doubt holds calls back until the server is proven again.
func (s *server) doubt() {
	s.mu.Lock()
	s.unsettle()
	s.mu.Unlock()
	select {
	case s.again <- struct{}{}:
	default: // already told
	}
}

// unsettle is doubt's part under the lock.
func (s *server) unsettle() {
	if s.over {
		return
	}
	s.doubts++
	select {
	case <-s.settled:
		s.settled = make(chan struct{})
	default:
	}
}

// launch starts the program, or reaches the address, and greets whoever is there.
func (s *server) launch(ctx context.Context, l *plan, p *Proof) (*mcpwire.Conn, *process, error) {
	log := limited(s.log)
	if s.remote() {
		transport, err := mcpwire.HTTP(s.spec.Endpoint, mcpwire.HTTPOptions{Header: s.headers, RoundTripper: s.spec.RoundTripper})
		if err != nil {
			return nil, nil, err
		}
		s.progress("connecting")
		conn := mcpwire.New(transport, s.wire(log, s.owner(ctx)))
		return conn, nil, s.greet(ctx, conn, p)
	}
	env, err := s.environment(l)
	if err != nil {
		return nil, nil, err
	}
	owner := s.owner(ctx)
	s.progress("starting")
	var proc *process
	if s.spec.Launch != nil {
		proc, err = s.launched(ctx)
	} else {
		proc, err = start(spec{argv: l.argv, env: env, hide: append([]string{s.options.Home.Dir()}, l.hide...), show: l.show, log: log})
	}
	if err != nil {
		return nil, nil, err
	}
	if p.Contained = proc.contained; !p.Contained {
		p.notes = append(l.warnings, "it is not contained: it can read what ambit keeps; bubblewrap (Linux) would prevent that")
	}
	conn := mcpwire.New(mcpwire.Stdio(proc.stdout, proc.stdin), s.wire(log, owner))
	err = s.greet(ctx, conn, p)
	if errors.Is(err, mcpwire.ErrClosed) {
		end(conn, proc)
		err = fmt.Errorf("%w%s", err, proc.lastWords())
	}
	return conn, proc, err
}

func (s *server) greet(ctx context.Context, conn *mcpwire.Conn, p *Proof) error {
	if s.speaks == unknown {
		// Whoever chokes on the newer greeting is started again: in good time.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.options.StartTimeout/2)
		defer cancel()
	}
	hello, err := conn.Negotiate(ctx)
	if err != nil {
		return err
	}
	p.Protocol = hello.Version
	s.speaks = generationOf(hello.Version)
	return nil
}

// wire is how a connection behaves that belongs to owner, or to nobody.
func (s *server) wire(log func(string), owner *call.Client) mcpwire.Options {
	o := mcpwire.Options{
		Name: "ambit", Version: s.options.Version, Legacy: s.speaks == handshake, Modern: s.speaks == stateless,
		ProbeTimeout: s.options.probe, OnGap: s.gap,
		OnNotification: func(n mcpwire.Notification) {
			switch n.Method {
			case mcpwire.MethodToolsChanged:
				s.doubt() // whoever listens is told when it is proven again
				return
			case "notifications/message":
				log(logMessage(n.Params))
			}
			if owner != nil && owner.Notify != nil {
				owner.Notify(n.Method, s.secrets.maskJSON(n.Params))
			} else if owner == nil {
				s.options.OnNotify(s.alias, n.Method, s.secrets.maskJSON(n.Params))
			}
		},
		OnNoise: func(line []byte) { log("(not a message) " + string(line)) },
	}
	if owner != nil {
		o.Capabilities, o.OnRequest = owner.Capabilities, relay(owner)
	}
	return o
}

// logMessage is what a server says by a log notification.
func logMessage(params []byte) string {
	var m struct {
		Level string          `json:"level"`
		Data  json.RawMessage `json:"data"`
	}
	if json.Unmarshal(params, &m) != nil {
		return string(params)
	}
	var text string
	if json.Unmarshal(m.Data, &text) != nil {
		text = string(m.Data)
	}
	return m.Level + ": " + text
}

// headers adds what the manifest declares, with credentials, as the last thing
// before a request leaves.
func (s *server) headers(ctx context.Context, h http.Header) error {
	for _, set := range s.spec.Headers {
		value, err := s.resolve(set)
		if err != nil {
			return err
		}
		h.Set(set.Name, value)
	}
	if s.options.Authorize == nil || h.Get("Authorization") != "" {
		return nil
	}
	secret, err := s.options.Authorize(ctx, &s.spec.Server, h)
	if err == nil && secret != "" {
		s.secrets.keep("login", secret)
	}
	return err
}

func (s *server) close() {
	s.stop()
	s.done.Wait()
	s.finish()
	s.mu.Lock()
	conn, proc := s.conn, s.process
	s.conn, s.process, s.resting = nil, nil, nil
	s.mu.Unlock()
	s.releaseAll()
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
