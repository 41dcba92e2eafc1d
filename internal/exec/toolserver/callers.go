package toolserver

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// Callers provides the sign-ins of the callers of a daemon. If each caller signs in to a remote server, each caller
// gets a lazy server of their own, with its own connection, session and proof. This server uses only the caller's
// sign-in. Callers without a sign-in share one connection, which uses [Options.SignIn]. Its requests contain no token.
type Callers interface {
	// ByCaller reports whether each caller signs in to a remote server.
	ByCaller(s *agent.Server) (bool, error)
	// Of returns a principal's sign-in and the id of the sign-in. The id changes when the principal signs in again. If the
	// principal is not signed in, the id is "".
	Of(s *agent.Server, principal string) (in SignIn, id string, err error)
	// Missing returns the refusal for a principal who is not signed in.
	Missing(s *agent.Server, principal string) *call.Refusal
}

// maxCallers is the maximum number of callers who can have their own server at the same time.
const maxCallers = 1000

// perCaller contains the servers of the callers who have signed in to a remote server.
type perCaller struct {
	decided sync.Once
	on      bool
	err     error

	mu     sync.Mutex
	all    map[string]*ownServer      // by principal
	pinned map[string]pack.LockedTool // the first verified definition of each tool; the same for all callers
	closed bool
	ending sync.WaitGroup
}

// ownServer is the server of one caller.
type ownServer struct {
	*server
	id   string
	used time.Time
}

// byCaller reports whether each caller signs in to this server. It reads the settings only once.
func (s *server) byCaller() (bool, error) {
	if s.options.Callers == nil || s.base != nil {
		return s.base != nil, nil
	}
	s.callers.decided.Do(func() {
		of := s.known()
		if of.Transport == agent.StreamableHTTP && !of.SendsAuthorization() {
			s.callers.on, s.callers.err = s.options.Callers.ByCaller(of)
		}
	})
	return s.callers.on, s.callers.err
}

// known returns the server with the data that is known so far. Resolving the server can add data later.
func (s *server) known() *agent.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &s.spec.Server
}

// of returns the server that handles the requests of a principal.
func (s *server) of(principal string) (*server, error) {
	on, err := s.byCaller()
	if err != nil {
		return nil, call.Refuse(stage, call.ServerUnavailable, "the sign-in settings for server %s cannot be read: %v",
			s.alias, err)
	}
	if !on {
		return s, nil
	}
	in, id, err := s.options.Callers.Of(s.known(), principal)
	if err != nil {
		return nil, err
	}
	return s.callers.use(s, principal, in, id)
}

// use returns the server of a principal, and starts it if necessary. Without a sign-in, it returns the shared server.
func (c *perCaller) use(shared *server, principal string, in SignIn, id string) (*server, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.all[principal]
	if own != nil && own.id != id { // signed out, or signed in as someone else
		c.drop(principal)
		own = nil
	}
	switch {
	case id == "":
		return shared, nil
	case own == nil && c.closed:
		return nil, call.Refuse(stage, call.ServerUnavailable, "the agent is stopping").Again()
	case own == nil && len(c.all) >= maxCallers && !c.evict():
		return nil, call.Refuse(stage, call.ServerUnavailable,
			"%d callers already use server %s, which is the limit; try again later", maxCallers, shared.alias).Again()
	case own == nil:
		own = &ownServer{server: shared.ownedBy(in), id: id}
		if c.all == nil {
			c.all = map[string]*ownServer{}
		}
		c.all[principal] = own
		own.boot(own.ctx)
	}
	own.used = shared.options.clock.Now()
	return own.server, nil
}

// drop closes the server of a principal in the background. The caller holds the mutex.
func (c *perCaller) drop(principal string) {
	own := c.all[principal]
	delete(c.all, principal)
	c.ending.Go(own.close)
}

// evict drops the idle server that has not been used for the longest time. It returns false if no server is idle. The
// caller holds the mutex.
func (c *perCaller) evict() bool {
	var idle []string
	for principal, own := range c.all {
		if own.isAsleep() {
			idle = append(idle, principal)
		}
	}
	if len(idle) == 0 {
		return false
	}
	c.drop(slices.MinFunc(idle, func(a, b string) int { return c.all[a].used.Compare(c.all[b].used) }))
	return true
}

// each calls a function for the servers of all callers.
func (c *perCaller) each(do func(*server)) {
	c.mu.Lock()
	all := slices.Collect(maps.Values(c.all))
	c.mu.Unlock()
	for _, own := range all {
		do(own.server)
	}
}

// close closes the servers of all callers.
func (c *perCaller) close() {
	c.mu.Lock()
	c.closed = true
	for principal := range c.all {
		c.drop(principal)
	}
	c.mu.Unlock()
	c.ending.Wait()
}

// pins returns the tool definitions that the servers of all callers must send. They are used only without a lock
// file.
func (c *perCaller) pins() map[string]pack.LockedTool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.pinned)
}

// pin adds the definitions of tools that were not pinned before. If another caller's session has pinned a different
// definition of a tool, pin adds nothing and returns the tool's name as the conflict. The first result is true if no
// definition was pinned before.
func (c *perCaller) pin(tools map[string]pack.LockedTool) (first bool, conflict string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, tool := range tools {
		if was, known := c.pinned[name]; known && was.Hash != tool.Hash {
			return false, name
		}
	}
	if first = c.pinned == nil; first {
		c.pinned = map[string]pack.LockedTool{}
	}
	maps.Copy(c.pinned, tools)
	return first, ""
}

// ownedBy returns a copy of the shared server for one caller's sign-in.
func (s *server) ownedBy(in SignIn) *server {
	s.mu.Lock()
	spec := *s.spec
	s.mu.Unlock()
	spec.Lazy, spec.Definitions, spec.Problem = true, nil, nil
	o := s.options
	o.SignIn, o.Authorize, o.Callers = func(*agent.Server) SignIn { return in }, nil, nil
	o.OnProven = func(string, map[string][]byte) {}
	o.OnNotify = func(alias, method string, params jsontext.Value) {
		if strings.HasSuffix(method, "/list_changed") { // these contain no data of the caller, so all clients can see them
			s.options.OnNotify(alias, method, params)
		}
	}
	own := newServer(s.agent, spec, o)
	own.base = s
	return own
}

// isAsleep reports whether a lazy server is stopped and no request is waiting for it.
func (s *server) isAsleep() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.demand.asleep && s.demand.busy == 0
}

// missing handles the refusal of a request without a token. It replaces the refusal with one that explains how this
// principal can sign in.
func (s *server) missing(principal string, err error) error {
	r, ok := errors.AsType[*call.Refusal](err)
	if on, _ := s.byCaller(); !on || s.base != nil || !ok || r.Code != call.CredentialMissing {
		return err
	}
	own := s.options.Callers.Missing(s.known(), principal)
	own.Unsent = r.Unsent
	return own
}

// lacks returns a refusal if this is the server of one caller, and the server does not offer the tool to this caller.
func (s *server) lacks(tool string) error {
	if s.base == nil || s.definition(tool) != nil {
		return nil
	}
	return call.Unsent(call.Refuse(stage, call.UnknownTool,
		"server %s does not offer %s to this caller; ask the server's operator for access", s.alias, tool))
}

// compareOwn finishes the comparison for the server of one caller. A server may offer a caller fewer tools than are
// declared. The missing tools are hidden from this caller. Additional tools cannot be called.
func (s *server) compareOwn(p *Proof) {
	for _, name := range p.Unexpected {
		delete(p.Tools, name)
	}
	if len(p.Unexpected) > 0 {
		p.Warnings = append(p.Warnings, "the server offers undeclared tools to a caller: "+quoteAll(p.Unexpected))
	}
	p.Missing, p.Unexpected, p.Renamed = nil, nil, nil
}

// waitsForCallers reports whether the shared server failed only because it has no sign-in. Each caller has their own
// sign-in.
func (s *server) waitsForCallers(p *Proof) bool {
	if p.Refusal == nil || p.Refusal.Code != call.CredentialMissing {
		return false
	}
	on, err := s.byCaller()
	return on && err == nil && s.base == nil
}

// offered returns the definition of a tool that the server offers to some callers. Without a lock file, the
// definition is known only after the server of one of these callers was verified.
func (s *server) offered(tool string) []byte {
	if on, err := s.byCaller(); !on || err != nil || s.base != nil {
		return nil
	}
	if locked := s.lockEntry(); locked != nil {
		return locked.Tools[tool].Definition
	}
	s.callers.mu.Lock()
	defer s.callers.mu.Unlock()
	return s.callers.pinned[tool].Definition
}

// hides reports whether a tool is hidden from a principal because the server does not offer it to this principal.
// Before the principal's first use of the server, the tools in the lock file are not hidden.
func (s *server) hides(principal, tool string) bool {
	if on, err := s.byCaller(); !on || err != nil {
		return err != nil
	}
	s.callers.mu.Lock()
	own := s.callers.all[principal]
	s.callers.mu.Unlock()
	if own != nil {
		own.mu.Lock()
		verified, tools := own.proof.OK, own.tools
		refused := own.proof.Drifted()
		own.mu.Unlock()
		if verified || refused {
			return refused || tools[tool] == nil
		}
	}
	s.mu.Lock()
	shared := s.proof.OK
	s.mu.Unlock()
	return !shared && s.lockEntry() == nil
}

// Hides reports whether a tool is hidden from a principal because its server does not offer it to this principal.
func (m *Manager) Hides(principal string, t *agent.Tool) bool {
	on, ok := t.Binding.(agent.OnServer)
	return ok && m.servers[on.Alias] != nil && m.servers[on.Alias].hides(principal, t.Name)
}

// WakeFor starts the servers of a principal and waits a few seconds for them.
func (m *Manager) WakeFor(ctx context.Context, principal string) {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	m.each(func(s *server) {
		if own, err := s.of(principal); err == nil && own != s {
			_, _ = own.ready(ctx) // if a server does not start, its tools are hidden, or calls to them are refused
		}
	})
}

// capabilities returns the capabilities of the shared connection, or of one of the callers.
func (s *server) capabilities() (found jsontext.Value) {
	of := func(s *server) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if found == nil && s.conn != nil {
			found = s.conn.Server().Capabilities()
		}
	}
	of(s)
	s.callers.each(of)
	return found
}

// errNoWatch returns the refusal of a subscription if each caller has their own server. Such subscriptions are
// refused, because updates of a resource are sent to all clients.
func (s *server) errNoWatch() *call.Refusal {
	return call.Refuse(stage, call.PolicyDenied,
		"resources of server %s cannot be watched, because updates would reach all callers, "+
			"and each caller has their own sign-in", s.alias)
}

// baseline returns the definitions that the tools of a server must have.
func (s *server) baseline() map[string]pack.LockedTool {
	if locked := s.lockEntry(); locked != nil {
		return locked.Tools
	}
	return s.first // the tools at the first verification
}

// remember records the tools of a server that has passed the comparison.
func (s *server) remember(now map[string]pack.LockedTool, p *Proof) {
	s.first = now
	if on, _ := s.byCaller(); !on || s.lockEntry() != nil {
		return
	}
	offered := maps.Clone(now)
	// Drop undeclared tools.
	maps.DeleteFunc(offered, func(name string, _ pack.LockedTool) bool { return p.Tools[name] == nil })
	first, conflict := cmp.Or(s.base, s).callers.pin(offered)
	switch {
	case conflict != "":
		p.Refusal = call.Refuse(stage, call.ServerDrifted,
			"server %s sends different definitions of the tool %s to different callers",
			s.alias, diag.Quote(conflict))
	case first && s.base != nil && s.spec.Learn:
		s.base.options.OnProven(s.alias, p.Tools)
	}
}
