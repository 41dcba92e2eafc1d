package toolserver

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// server is one tool server and its state.
type server struct {
	agent string // the id of the agent
	alias string
	lazy  bool
	// If onCall is set, only a call starts the lazy server, and the server then keeps running.
	onCall bool
	// If optional is set, lists omit the server's tools while the server is unavailable.
	optional bool
	spec     *Spec
	options  Options
	secrets  secrets
	observed observer
	// base is the shared server if this server belongs to one caller. Otherwise, it is nil.
	base    *server
	callers perCaller

	warnLarge sync.Once // set once the server has sent a notification that is too large
	output    logLimit

	ctx  context.Context // cancelled when the server is closed
	stop context.CancelFunc
	done sync.WaitGroup

	// Only the goroutine that starts or verifies the server uses the following fields.
	speaks    generation                 // protocol generation of the server
	first     map[string]pack.LockedTool // tools from the first verification
	mayNotAsk bool                       // set if the server's tools depend on client capabilities, so declare none
	upSince   time.Time                  // time of the last successful start

	recheck chan struct{} // signals that the server must be verified again

	mu       sync.Mutex
	signIn   SignIn // nil if the server uses no sign-in, or before the first start
	proof    Proof
	tools    map[string][]byte          // definitions from the last verification
	conn     *mcpwire.Conn              // shared connection; nil if the server is not verified
	process  *process                   // nil for a remote server
	owned    map[string]*ownedConn      // separate connections of clients, by client key
	watched  map[string]*watch          // resources watched through the shared connection, by URI
	private  map[string]*privateWatches // resources watched through separate connections, by client key
	forgot   bool                       // set if the server may have lost its subscriptions
	called   chan struct{}              // closed at the next call; nil if no goroutine waits for a call
	doubts   int                        // the number of times that a new verification became necessary
	settled  chan struct{}              // closed while no verification is pending
	resting  *resting                   // not nil while the server waits before a restart because it exited too often
	demand   demand                     // how a lazy server is used
	missed   bool                       // set if clients may have seen a list without this server's tools
	finished bool                       // set after the last verification of the server
}

func newServer(id string, spec Spec, o Options) *server {
	s := &server{
		agent: id, alias: spec.Alias, lazy: spec.Lazy, onCall: spec.OnCall, optional: spec.Optional, spec: &spec,
		options: o, tools: spec.Definitions,
		recheck: make(chan struct{}, 1), settled: make(chan struct{}),
		demand: demand{asleep: spec.Lazy, wanted: make(chan struct{}, 1)},
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.proof = Proof{Alias: spec.Alias}
	s.speaks = s.rememberedGeneration()
	return s
}

func (s *server) remote() bool { return s.spec.Transport == agent.StreamableHTTP }

// log removes secrets from a line and passes the line to Options.Log.
func (s *server) log(line string) { s.options.Log(s.alias, s.secrets.mask(line)) }

// warn is like log, but for problems. The prefix "warning: " sets the level in logs that have levels.
func (s *server) warn(line string) { s.log("warning: " + line) }

// logOutput is like log, but for output of the server. It has its own limit, because a server can write any amount.
func (s *server) logOutput(line string) {
	s.output.write(line, s.options.clock.Now(), s.secrets.mask, func(line string) { s.options.Output(s.alias, line) })
}

// progress redacts secrets in the name of a step and passes the name to Options.Progress.
func (s *server) progress(step string) { s.options.Progress(s.alias, s.secrets.mask(step)) }

func (s *server) lastProof() Proof {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.proof
	p.Lazy, p.Required = s.lazy, s.spec.Required
	if s.resting != nil {
		p.Refusal = s.resting.refusal(s.alias, s.options.clock.Now())
	}
	return p
}

// definition returns a tool's definition from the last verification. It returns nil if the server is optional and
// unavailable.
func (s *server) definition(tool string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.optional && !s.proof.OK {
		return nil
	}
	return s.tools[tool]
}

// boot starts the server for the first time and then supervises it. If the first start fails, the server is supervised
// only if [Options.Persist] is set or if nothing but a sign-in is missing. A lazy server is started later, at its first
// use.
func (s *server) boot(ctx context.Context) {
	if s.lazy {
		if s.spec.Problem != nil {
			_, _ = s.bringUp(ctx) // bringUp fails immediately and stores s.spec.Problem in s.proof
			s.postpone(firstRetry)
		}
		s.done.Go(func() { s.run(s.onDemand) })
		return
	}
	conn, err := s.bringUp(ctx)
	if err != nil && (!s.options.Persist && !s.lacksSignIn() || drifted(err) || s.uncontained() || ctx.Err() != nil) {
		s.finish()
		return
	}
	s.done.Go(func() {
		s.run(func() { s.supervise(conn, err) })
	})
}

// bringUp starts and verifies the server and makes it available to calls. It stores the result in s.proof.
func (s *server) bringUp(ctx context.Context) (*mcpwire.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	p := Proof{Alias: s.alias}
	seen := s.observed.begin()
	conn, proc, doubts, err := s.attempt(ctx, &p)
	s.observed.end(seen)
	if err == nil {
		err = s.publish(&p)
	}
	if err != nil {
		end(conn, proc)
		s.refuse(&p, err)
		if hint := seen.hint("it started"); hint != "" && !p.Drifted() {
			p.Refusal.Hint, p.Refusal.Command = hint, diag.Command{}
		}
		s.progress("refused")
		s.adopt(p, nil, nil, doubts)
		return nil, err
	}
	s.progress("ready")
	s.upSince = s.options.clock.Now() // s.adopt admits calls, and a call can crash the server, so set upSince first
	if !s.adopt(p, conn, proc, doubts) {
		end(conn, proc)
		return nil, context.Canceled
	}
	return conn, nil
}

// attempt prepares, starts, greets and verifies the server. The third result is the value of s.doubts at the
// beginning of the verification.
func (s *server) attempt(ctx context.Context, p *Proof) (conn *mcpwire.Conn, proc *process, doubts int, err error) {
	defer s.contain(&err)
	// The timeout does not include s.find and s.prepare, because they may download a package.
	l := &plan{}
	if err = s.find(ctx); err == nil {
		l, err = s.prepare(ctx)
	}
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
			"the server's tools depend on the client's capabilities, so ambit declares none and rejects the server's requests")}
		if conn, proc, err = s.connect(ctx, l, p); err == nil {
			doubts, err = s.prove(ctx, conn, p)
		}
	}
	switch {
	case errors.Is(err, errSilent):
		err = call.Refuse(stage, call.TimedOut,
			"server %s did not answer initialize within %v", s.alias, s.options.greetTimeout)
	case err != nil && !drifted(err) && errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = call.Refuse(stage, call.TimedOut, "server %s did not start within %v", s.alias, s.options.startTimeout)
	case errors.Is(err, mcpwire.ErrClosed) && len(l.scripts) > 0:
		r := call.Refuse(stage, call.ServerUnavailable, "server %s did not start: %v", s.alias, err).Again()
		names := strings.Join(l.scripts, ",")
		r.Hint = "ambit did not run the install scripts of " + names + "; if the server needs them and you trust them, run"
		r.Command = diag.Command{Verb: "lock --allow-scripts " + diag.ShellWord(names)}
		err = r
	}
	return conn, proc, doubts, err
}

// prove requests the list of tools and compares it with the declared tools. The first result is the value of s.doubts
// before the request. If s.doubts increases later, the server must be verified again.
func (s *server) prove(ctx context.Context, conn *mcpwire.Conn, p *Proof) (doubts int, err error) {
	defer s.contain(&err)
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

// refuse stores the reason for a failed start or verification in the proof.
func (s *server) refuse(p *Proof, err error) {
	r, ok := errors.AsType[*call.Refusal](err)
	if !ok {
		r = call.Refuse(stage, call.ServerUnavailable, "server %s did not start: %v", s.alias, err).Again()
	}
	p.OK, p.Refusal = false, r
	p.Lacking = p.Lacking || r.Code == call.CredentialMissing || errors.Is(err, exec.ErrNotFound)
	if p.Warnings == nil {
		p.Warnings = slices.Clone(p.notes)
	}
	s.redact(p)
}

// adopt replaces the current proof and connection with the given ones. Waiting calls then continue, unless s.doubts
// has increased since the verification. The result is false if the server was closed.
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

// announce notifies clients that the server's tools appeared, changed or disappeared. It returns immediately, because
// its callers hold the mutex.
func (s *server) announce() {
	go func() {
		defer s.contain(nil)
		s.options.OnNotify(s.alias, mcpwire.MethodToolsChanged, nil)
	}()
}

// settle lets waiting calls continue if s.doubts has not increased since the verification. The parameter is the value
// of s.doubts before the verification. The caller holds the mutex.
func (s *server) settle(doubts int) {
	select {
	case <-s.settled:
	default:
		if s.finished || doubts == s.doubts {
			close(s.settled)
		}
	}
}

// finish records that the server will never be verified again and lets waiting calls continue.
func (s *server) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = true
	s.settle(s.doubts)
}

// requestRecheck requests another verification of the server. Calls wait until it is done.
func (s *server) requestRecheck() {
	s.mu.Lock()
	s.unsettle()
	s.mu.Unlock()
	select {
	case s.recheck <- struct{}{}:
	default: // another verification was already requested
	}
}

// unsettle increments s.doubts. Calls then wait for the next verification. The caller holds the mutex.
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
	s.callers.close()
	s.stop()
	s.done.Wait()
	s.finish()
	s.mu.Lock()
	end := s.detach()
	s.mu.Unlock()
	end()
}

// detach makes the server unavailable to calls. The returned function closes the connections and stops the program.
// The caller holds the mutex and must release the mutex before calling the returned function.
func (s *server) detach() (endAll func()) {
	conn, proc := s.conn, s.process
	s.conn, s.process, s.resting = nil, nil, nil
	return func() {
		s.releaseAll()
		end(conn, proc)
	}
}

// grace is how long a program may take to exit after its input is closed.
const grace = 500 * time.Millisecond

func end(conn *mcpwire.Conn, proc *process) {
	if conn != nil {
		conn.Close()
	}
	if proc != nil {
		proc.stop(grace)
	}
}

// secrets holds the credential values that a server received. A server may accidentally write such a value to a log
// or an error, in plain text or encoded. ambit removes these values from logs and errors. A malicious server can
// still encode a value in a way that ambit does not recognize.
type secrets struct {
	mu     sync.Mutex
	values map[string]string // credential values, by name
	known  *secret.Known
	broken bool // secret.NewKnown failed, so mask withholds all text
}

// add adds a credential value. From then on, this value is masked.
func (s *secrets) add(name, value string) {
	if slices.Contains(agent.PlainEnv, name) {
		return // the variable is not a secret
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values[name] == value {
		return
	}
	if s.values == nil {
		s.values = map[string]string{}
	}
	s.values[name] = value
	var all []secret.Value
	for name, value := range s.values {
		all = append(all, secret.Value{Name: name, Secret: value})
		// Logs and errors are split into lines, so each line of a value counts as a separate secret.
		for part := range strings.Lines(value) {
			all = append(all, secret.Value{Name: name, Secret: strings.TrimSpace(part)})
		}
	}
	known, err := secret.NewKnown(all)
	s.known, s.broken = known, err != nil
}

// maskJSON replaces the credential values in JSON. The gateway redacts other secrets later. If the result is not
// valid JSON, maskJSON returns {}.
func (s *secrets) maskJSON(raw jsontext.Value) jsontext.Value {
	masked := s.maskKnown(string(raw))
	if masked == string(raw) {
		return raw
	}
	if !rawjson.Valid([]byte(masked)) {
		return jsontext.Value("{}")
	}
	return jsontext.Value(masked)
}

// mask replaces each credential value with a reference to its name, such as $env:TOKEN, and every other text that
// looks like a secret with a placeholder.
func (s *secrets) mask(text string) string {
	return string(guard.Redact([]byte(s.maskKnown(text))))
}

func (s *secrets) maskKnown(text string) string {
	s.mu.Lock()
	known, broken := s.known, s.broken
	s.mu.Unlock()
	if broken {
		return "(text not shown, because it cannot be checked for credentials)"
	}
	return known.Replace(text, func(name string) string { return "$env:" + name })
}
