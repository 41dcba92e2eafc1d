package host

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/bashserver"
	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/egress"
	"github.com/ambit-run/ambit/internal/gate"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/mcpwire"
	"github.com/ambit-run/ambit/internal/pack"
	"github.com/ambit-run/ambit/internal/registry"
	"github.com/ambit-run/ambit/internal/sandbox"
	"github.com/ambit-run/ambit/internal/toolserver"
)

// An agent that only says what it needs gets its servers from a registry, and its
// servers come and go. It is up when it is known what they are; whether they can
// be had shows when they are used. Each is started by the first use, which is a
// call or a list of tools, and stopped when nobody has used it for a while; it
// comes back as what it was first proven to be, or not at all. One that cannot be
// had refuses its calls at once and is tried again, less and less often.
//
// Which tools there are may only be known when a server has answered for the first
// time. The agent is then replaced by a copy that has them, with a door of its own;
// nothing that others look at is changed.

const (
	// listPatience is how long a list of tools waits for servers to come up.
	listPatience = 5 * time.Second
	// startPatience is how long a call waits for the server it starts: less than
	// what a tool has, so that the call is refused and not unknown.
	startPatience = 25 * time.Second
	// backPatience is how long it waits for one that has just gone.
	backPatience = 800 * time.Millisecond
	// idleTime is how long an unused server runs on.
	idleTime = 10 * time.Minute
	// firstRetry and lastRetry bound the pauses between tries.
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// lazy are the servers of such an agent.
type lazy struct {
	of       *Agent
	resolver *registry.Resolver
	options  toolserver.Options
	idle     time.Duration

	servers []*neededServer
	byID    map[string]*neededServer

	snapshot atomic.Pointer[agent.Agent]
	door     atomic.Pointer[gateway.Gateway]
	swap     sync.Mutex
	former   []*gateway.Gateway
}

// neededServer is one of them.
type neededServer struct {
	of *lazy
	id string

	mu      sync.Mutex
	found   registry.Found
	manager *toolserver.Manager // nil while it does not run
	trying  chan struct{}       // closed when the try that is under way is over; nil if none is
	down    *call.Refusal       // why the last try failed; nil if it did not
	retry   time.Time           // no try before that
	pause   time.Duration
	busy    int
	used    time.Time
	defs    map[string][]byte // as last proven, locked or seen
	proven  bool              // in this process
	missed  bool              // it was wanted, and was not there
}

func newLazy(a *Agent) *lazy {
	idle := a.options.ServerIdle
	if idle == 0 {
		idle = idleTime
	}
	l := &lazy{of: a, idle: idle, byID: map[string]*neededServer{}}
	l.snapshot.Store(a.manifest.Agent())
	return l
}

// who is the agent as it is known now.
func (a *Agent) who() *agent.Agent {
	if a.lazy == nil {
		return a.manifest.Agent()
	}
	return a.lazy.snapshot.Load()
}

// resolve finds out what the servers are.
func (l *lazy) resolve(o toolserver.Options) error {
	r, err := registry.NewResolver(l.of.options.Home, o.Lock)
	if err != nil {
		return err
	}
	o.Patience = backPatience
	l.resolver, l.options = r, o
	who := l.of.manifest.Agent()
	for _, f := range r.Resolve(l.of.ctx, who, l.of.name) {
		// One that cannot be had is looked for again, also if nobody asks for it.
		s := &neededServer{of: l, id: f.Requirement.Server, found: f, defs: f.Definitions, pause: firstRetry, missed: f.Problem != nil && !f.Requirement.Optional}
		for _, w := range f.Warnings {
			l.of.options.Log(f.Requirement.Server, "warning: "+w)
		}
		if f.Problem != nil {
			l.of.options.Log(f.Requirement.Server, f.Problem.Error())
		}
		l.servers = append(l.servers, s)
		l.byID[s.id] = s
	}
	l.renew()
	l.options.Lookup = l.of.options.Credentials.Lookup(l.snapshot.Load())
	return nil
}

// resolved makes sure that it was tried to find out what the servers are: an agent
// that is not up refuses by the names of its tools.
func (l *lazy) resolved() {
	if l.resolver == nil {
		if err := l.resolve(toolserver.Options{}); err != nil {
			l.of.options.Log("registry", err.Error())
		}
	}
}

// renew makes the agent and its door anew, of what is known by now.
func (l *lazy) renew() {
	<-l.of.opened
	l.swap.Lock()
	defer l.swap.Unlock()
	found := make([]registry.Found, len(l.servers))
	for i, s := range l.servers {
		s.mu.Lock()
		found[i] = s.found
		s.mu.Unlock()
	}
	who := registry.Agent(l.of.manifest.Agent(), found)
	l.snapshot.Store(who)
	if l.of.door == nil {
		return // nothing can be called
	}
	if was := l.door.Load(); was != nil {
		l.former = append(l.former, was)
	}
	l.door.Store(gateway.New(who, l.of.doorOptions))
}

// refusal says that a server cannot be had.
func (s *neededServer) refusal(format string, args ...any) *call.Refusal {
	r := call.Refuse("act", call.ServerUnavailable, "server "+s.id+" "+format, args...).Again()
	r.Hint = "see what it is and what it needs: ambit catalog show " + s.id
	return r
}

// Act calls a tool on its server.
func (l *lazy) Act(ctx context.Context, t *agent.Tool, c *call.Call) (call.Result, error) {
	m, done, err := l.use(ctx, t)
	if err != nil {
		return call.Result{}, call.Unsent(err)
	}
	defer done()
	return m.Act(ctx, t, c)
}

// use gives the server of a tool, starting it if it does not run.
func (l *lazy) use(ctx context.Context, t *agent.Tool) (*toolserver.Manager, func(), error) {
	on, _ := t.Binding.(agent.OnServer)
	s := l.byID[on.Alias]
	if s == nil {
		return nil, nil, call.Refuse("act", call.UnknownTool, "%s is on no server of this agent", t.Name)
	}
	timer := time.NewTimer(startPatience)
	defer timer.Stop()
	for {
		m, trying, refusal := s.take(true)
		if m != nil {
			return m, s.done, nil
		}
		if refusal != nil {
			return nil, nil, refusal
		}
		select {
		case <-trying:
		case <-ctx.Done():
			return nil, nil, s.refusal("is still being started")
		case <-timer.C:
			return nil, nil, s.refusal("is still being started")
		}
	}
}

// take gives the server if it runs, and makes it busy; or the try that is under
// way, beginning one if it is time; or why there is none.
func (s *neededServer) take(busy bool) (*toolserver.Manager, <-chan struct{}, *call.Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.manager != nil:
		if p := s.manager.Proofs()[0]; !p.OK {
			return nil, nil, s.gone(p.Refusal)
		}
		if busy {
			s.busy++
		}
		s.used = time.Now()
		return s.manager, nil, nil
	case s.trying != nil:
		return nil, s.trying, nil
	case s.down != nil && time.Now().Before(s.retry):
		return nil, nil, s.down
	case s.of.of.ctx.Err() != nil:
		return nil, nil, s.refusal("is not started any more")
	}
	s.trying = make(chan struct{})
	s.of.of.background.Go(s.try)
	return nil, s.trying, nil
}

// gone is why a server that ran cannot be used now.
func (s *neededServer) gone(why *call.Refusal) *call.Refusal {
	if why == nil {
		return s.refusal("is being started again")
	}
	return why
}

// hold gives the server if it runs, and makes it busy. It starts nothing.
func (s *neededServer) hold() *toolserver.Manager {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.manager != nil {
		s.busy++
	}
	return s.manager
}

func (s *neededServer) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	s.used = time.Now()
}

// try resolves the server if that has failed before, starts it and proves it.
func (s *neededServer) try() {
	l := s.of
	s.mu.Lock()
	f := s.found
	s.mu.Unlock()
	if f.Problem != nil {
		f = l.resolver.One(l.of.ctx, l.of.manifest.Agent(), l.of.name, f.Requirement)
	}
	m, refusal := s.start(&f)
	var proof toolserver.Proof
	if m != nil {
		if proof = m.Proofs()[0]; !proof.OK {
			m.Close()
			m, refusal = nil, proof.Refusal
		}
	}
	news := false
	if m != nil {
		news = s.learn(&f, proof)
	}
	s.mu.Lock()
	s.found = f
	s.manager, s.down = m, refusal
	appeared := false
	if m != nil {
		appeared, s.missed = s.missed, false
		s.defs, s.proven, s.pause, s.used = proof.Tools, true, firstRetry, time.Now()
	} else {
		s.retry = time.Now().Add(s.pause)
		s.pause = min(2*s.pause, lastRetry)
		l.of.options.Log(f.Requirement.Server, refusal.Error())
	}
	trying := s.trying
	s.trying = nil
	s.mu.Unlock()
	if news {
		l.renew()
	}
	close(trying)
	if appeared {
		l.of.front.Publish(mcpwire.MethodToolsChanged, nil)
	}
}

// start starts the server; what came of it is in its proof.
func (s *neededServer) start(f *registry.Found) (*toolserver.Manager, *call.Refusal) {
	l := s.of
	if f.Problem != nil {
		return nil, s.refusal("cannot be had: %v", f.Problem)
	}
	o := l.options
	s.mu.Lock()
	if s.proven {
		o.First = s.defs // it comes back as what it was
	}
	s.mu.Unlock()
	m, err := StartFound(l.of.ctx, l.of.manifest.Agent(), f, o, l.of.options.Egress)
	if err != nil {
		return nil, s.refusal("cannot be started: %v", err)
	}
	for _, w := range m.Proofs()[0].Warnings {
		l.of.options.Log(f.Requirement.Server, "warning: "+w)
	}
	return m, nil
}

// StartFound starts one server that was found for an agent, and proves it. What
// came of it is in its one proof.
func StartFound(ctx context.Context, a *agent.Agent, f *registry.Found, o toolserver.Options, client *egress.Client) (*toolserver.Manager, error) {
	if f.Work != "" {
		if err := os.MkdirAll(f.Work, 0o700); err != nil {
			return nil, fmt.Errorf("it has no work folder: %w", err)
		}
	}
	if o.Progress == nil {
		o.Progress = func(string, string) {}
	}
	if err := registry.Pin(ctx, o.Home, f, func(step string) { o.Progress(f.Requirement.Server, step) }); err != nil {
		return nil, err
	}
	who := *a
	who.Servers, who.Tools = []agent.Server{f.Server}, f.Tools
	// What was only seen before is no promise of anybody's.
	o.Learn = f.From == registry.FromRegistry || len(f.Tools) == 0
	switch {
	case f.Recipe.Kind == pack.Builtin:
		o.Launch = func() (*toolserver.Launched, error) { return launch(ctx, f, o) }
	case f.Recipe.Kind == pack.MCPB:
		o.Package = f.Package
	case f.Recipe.Kind == pack.Remote && f.Recipe.Foreign:
		o.RoundTripper = outside{client}
	}
	return toolserver.Start(ctx, &who, o), nil
}

// launch starts a server that is a part of ambit, within this process. What it runs
// is in a sandbox of its own.
func launch(ctx context.Context, f *registry.Found, o toolserver.Options) (*toolserver.Launched, error) {
	if f.Recipe.Name != bashserver.Name {
		return nil, fmt.Errorf("this ambit has no server %s", f.Recipe.Name)
	}
	if err := sandbox.Check(ctx, sandbox.Standard, o.Home.Dir()); err != nil {
		return nil, err
	}
	// It ends when it is stopped, so that nobody takes its end for a crash.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := bashserver.Serve(ctx, bashserver.Options{Work: f.Work, Own: f.Own, Home: o.Home, Version: o.Version}, in, out)
		out.Close()
		in.Close()
		ended <- err
	}()
	stop := sync.OnceValue(func() error { cancel(); toServer.Close(); return <-ended })
	return &toolserver.Launched{Stdin: toServer, Stdout: fromServer, Stop: stop}, nil
}

// outside sends requests to addresses that a registry has named: to public ones
// only.
type outside struct{ client *egress.Client }

func (o outside) RoundTrip(req *http.Request) (*http.Response, error) { return o.client.Do(req) }

// learn takes note of the tools that a server was proven with, and reports whether
// the agent did not know of them.
func (s *neededServer) learn(f *registry.Found, p toolserver.Proof) (news bool) {
	l := s.of
	if err := l.resolver.Remember(f, p.Tools); err != nil {
		l.of.options.Log(f.Requirement.Server, "its tools cannot be remembered: "+err.Error())
	}
	tools := registry.Tools(f.Requirement.Server, p.Tools, l.resolver.Catalog.Entries[f.Requirement.Server])
	was := map[string]agent.SideEffect{}
	for i := range f.Tools {
		was[f.Tools[i].Name] = f.Tools[i].SideEffect
	}
	is := map[string]agent.SideEffect{}
	for i := range tools {
		is[tools[i].Name] = tools[i].SideEffect
	}
	f.Tools, f.Definitions = tools, p.Tools
	return !maps.Equal(was, is)
}

// ready is when a list of tools can be answered: every server that will come up in
// a few seconds has.
func (l *lazy) ready(ctx context.Context) error {
	if err := l.of.Ready(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	l.startAll()
	timer := time.NewTimer(listPatience)
	defer timer.Stop()
	late := false
	for _, s := range l.servers {
		for !late {
			_, trying, _ := s.take(false)
			if trying == nil {
				break
			}
			select {
			case <-trying:
			case <-timer.C:
				late = true
			case <-ctx.Done():
				return nil
			}
		}
	}
	for _, s := range l.servers {
		s.mu.Lock()
		s.missed = s.manager == nil && !(s.proven && s.down == nil) || s.manager != nil && !s.manager.Proven()
		s.mu.Unlock()
	}
	return nil
}

// startAll begins to start every server, so that they start together.
func (l *lazy) startAll() {
	for _, s := range l.servers {
		s.take(false)
	}
}

// definition is that of a tool to clients, nil if it is not to be listed: one on an
// optional server that cannot be had.
func (l *lazy) definition(t *agent.Tool) []byte {
	on, _ := t.Binding.(agent.OnServer)
	s := l.byID[on.Alias]
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found.Requirement.Optional {
		up := s.manager != nil && s.manager.Proven()
		stopped := s.manager == nil && s.proven && s.down == nil
		if !up && !stopped {
			return nil
		}
	}
	return s.defs[t.Name]
}

// manager is that of a server which runs, nil otherwise.
func (l *lazy) manager(id string) *toolserver.Manager {
	s := l.byID[id]
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.manager
}

// known reports whether it was found out what the servers are; before, there are
// none.
func (l *lazy) known() bool {
	select {
	case <-l.of.up:
		return true
	default:
		return false
	}
}

// each goes through the servers that run.
func (l *lazy) each(do func(*toolserver.Manager)) {
	if !l.known() {
		return
	}
	for _, s := range l.servers {
		if m := l.manager(s.id); m != nil {
			do(m)
		}
	}
}

// close ends every server, after nothing new can begin.
func (l *lazy) close() {
	var wg sync.WaitGroup
	l.each(func(m *toolserver.Manager) { wg.Go(m.Close) })
	wg.Wait()
	l.swap.Lock()
	defer l.swap.Unlock()
	doors := l.former
	if g := l.door.Load(); g != nil {
		doors = append(slices.Clone(doors), g)
	}
	for _, g := range doors {
		g.Close()
	}
}

// forward takes another request to a server that runs, if the user's policy lets
// it: what an operator exposes is not granted by that. To rules it is a tool that
// is called as the method is, such as resources/read.
func (l *lazy) forward(ctx context.Context, f *call.Forward) (jsontext.Value, error) {
	t := &agent.Tool{Name: f.Method, SideEffect: agent.Read, Binding: agent.OnServer{Alias: f.Server}}
	if d := gate.Decide(ctx, l.snapshot.Load(), l.of.name, t, &call.Call{Tool: f.Method, Principal: f.Principal, Arguments: f.Params}, l.of.options.Rules); !d.Allowed {
		return nil, call.Refuse(gate.Stage, call.PolicyDenied, "%s on %s is not permitted", f.Method, f.Server)
	}
	s := l.byID[f.Server]
	if s == nil {
		return nil, call.Refuse("act", call.ServerUnavailable, "the agent has no server %s", f.Server)
	}
	m := s.hold()
	if m == nil {
		return nil, s.refusal("is not running")
	}
	defer s.done()
	return m.Forward(ctx, f)
}

// capabilities are what a server that runs says it can do.
func (l *lazy) capabilities(id string) jsontext.Value {
	if !l.known() {
		return nil
	}
	if m := l.manager(id); m != nil {
		return m.Capabilities(id)
	}
	return nil
}

// startLazy is start for an agent that only says what it needs.
func (a *Agent) startLazy(o toolserver.Options) {
	if err := a.lazy.resolve(o); err != nil {
		r := call.Refuse("act", call.ServerUnavailable, "%v", err)
		r.Hint = "mend the file that the message names"
		a.fail(r, false)
		return
	}
	a.background.Go(a.lazy.tend)
}
