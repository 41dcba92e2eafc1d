// Package toolserver starts the tool servers of an agent, proves that each is
// what the manifest says, and keeps them running.
//
// # Life of a server
//
//	prepare → start → greet → prove → ready ⇄ (ended → start again ⇄ rest) → closed
//	                            ↘ refused              ↘ drifted: quarantined
//	                              ↘ with [Options.Persist]: start again
//
// A lazy server ([Spec.Lazy]) sleeps until its first use, which is a call or a list of
// tools, and sleeps again when it was idle for a while. It comes back as what it was
// first proven to be. While its start fails, calls are refused with the reason, and
// the start is repeated with growing pauses.
//
// Prepare finds out what would run: the package of the declared digest comes
// from the package store, hashed again a moment ago; a remote server runs
// elsewhere and cannot be hashed. Start gives a program only the environment it
// declares and, where bubblewrap can be had, a pid namespace of its own in
// which ambit's own files cannot be seen. Greet agrees on a protocol
// generation. Prove compares what the server advertises with what is declared:
// the names must be the same, exactly, and with a lock the whole definitions
// too; without one, what was proven first holds for as long as the agent runs.
// Only then can anything be called.
//
// All servers of an agent are started at the same time, except that their
// packages are hashed one after the other. A server that ends is
// started again, with growing pauses, and proven again before it is used. One
// that keeps ending rests between two tries: its calls are refused at once, with
// when it is tried again, and it is never given up. One that announces other tools is proven again, and so is a
// remote one that could not be reached; if it has drifted it is quarantined:
// its calls are refused, the agent's other servers go on. A call that comes
// while a server is being started or proven again waits a few seconds for what
// comes of it; a call that was under way when its server went away is refused,
// and never made again from here. What clients watch is asked for again when a
// server is back.
//
// What a server says, in its log or in an error, is handed on without the values
// of the credentials it was given.
//
// # Who is asked
//
// A server may ask its client something: elicitation, sampling, roots. A
// connection says what its client can be asked only if one client owns it: every
// connection where there is only one client ([Options.Owner]), and otherwise
// one that is made for that client alone, to a remote server of the older
// generation. In the newer generation a request says so itself. A connection
// of a client's own is held to the tools that were proven; if a server has
// others for a client that can be asked, it is used without asking.
//
// A [Manager] is the [call.Binding] of tools on servers. Only the gateway
// holds one.
package toolserver

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// Options say how the servers of an agent are started.
type Options struct {
	Home home.Home
	// Folder is that of the manifest: local files are found from there.
	Folder string
	// Lookup resolves $env:NAME references.
	Lookup func(name string) (string, bool)
	// Authorize adds to a request to a remote server what says who calls, if the
	// manifest does not; nil adds nothing. It returns what is secret of that.
	Authorize func(ctx context.Context, s *agent.Server, h http.Header) (secret string, err error)
	// Lock is what was proven before; nil if there is none.
	Lock *pack.Lock
	// Want is what a server's package must be, by alias, where no lock says it;
	// without it the declared digest decides.
	Want map[string]pack.Want
	// Log is told what servers write to stderr, and what becomes of them.
	Log func(alias, line string)
	// Progress is told what is being done, for a person who waits.
	Progress func(alias, step string)
	// Servers are the servers to start; nil means those of the agent, as declared.
	Servers []Spec
	// Idle is how long an unused lazy server keeps running; 0 means 10 minutes.
	Idle time.Duration
	// OnProven is called with the definitions that a server was proven with, before
	// any of its tools can be called.
	OnProven func(alias string, definitions map[string][]byte)
	// Persist tries a server again whose first start failed, as one that ended: an
	// agent that stays can wait for what its server lacks.
	Persist bool
	// Contain refuses a server whose program cannot be contained.
	Contain bool
	// StartTimeout bounds the start of one server, after its package is there;
	// 0 means 90 s.
	StartTimeout time.Duration
	// Version is ambit's own, for the greeting.
	Version string
	// Owner waits for the one client that every connection belongs to, so that
	// servers can ask it things; it may give nil. Without it, servers are shared.
	Owner func(context.Context) *call.Client
	// OnNotify is told what servers announce to whoever listens, and that the
	// tools of one came back, changed or went. It must not block.
	OnNotify func(alias, method string, params jsontext.Value)

	probe time.Duration // how long to wait for the newer greeting; 0 is mcpwire's choice
	pause time.Duration // before the first restart
	clock clock         // nil is the wall's
}

// Manager runs the servers of one agent.
type Manager struct {
	servers map[string]*server
	order   []*server
}

// Start starts and proves every server of an agent, all at the same time. The
// manager is returned also if some could not be proven: their proofs say why,
// and their tools refuse. It must be closed.
func Start(ctx context.Context, a *agent.Agent, o Options) *Manager {
	if o.StartTimeout == 0 {
		o.StartTimeout = 90 * time.Second
	}
	if o.pause == 0 {
		o.pause = firstPause
	}
	if o.clock == nil {
		o.clock = wallClock{}
	}
	if o.Lookup == nil {
		o.Lookup = func(string) (string, bool) { return "", false }
	}
	if o.Log == nil {
		o.Log = func(string, string) {}
	}
	if o.Progress == nil {
		o.Progress = func(string, string) {}
	}
	if o.OnNotify == nil {
		o.OnNotify = func(string, string, jsontext.Value) {}
	}
	if o.OnProven == nil {
		o.OnProven = func(string, map[string][]byte) {}
	}
	if o.Idle == 0 {
		o.Idle = idleTime
	}
	if o.Servers == nil {
		o.Servers = declared(a)
	}
	m := &Manager{servers: map[string]*server{}}
	var eager []*server
	for _, spec := range o.Servers {
		s := newServer(a.ID, spec, o)
		m.servers[s.alias] = s
		m.order = append(m.order, s)
		if !s.lazy {
			eager = append(eager, s)
		}
	}
	lineUp(eager, (*server).packageSize)
	var wg sync.WaitGroup
	for _, s := range m.order {
		wg.Go(func() { s.boot(ctx) })
	}
	wg.Wait()
	return m
}

// Proofs are what was found out about each server, in the manifest's order, without
// lazy servers that no use has started.
func (m *Manager) Proofs() []Proof {
	proofs := make([]Proof, 0, len(m.order))
	for _, s := range m.order {
		if p := s.lastProof(); p.Refusal != nil || !s.sleeping() {
			proofs = append(proofs, p)
		}
	}
	return proofs
}

// Proven reports whether every server is what the manifest says.
func (m *Manager) Proven() bool {
	for _, p := range m.Proofs() {
		if !p.OK {
			return false
		}
	}
	return true
}

// Definition is a tool's whole definition as its server gave it when it was
// last proven, or nil.
func (m *Manager) Definition(t *agent.Tool) []byte {
	on, ok := t.Binding.(agent.OnServer)
	if !ok || m.servers[on.Alias] == nil {
		return nil
	}
	return m.servers[on.Alias].definition(t.Name)
}

// Close ends every server.
func (m *Manager) Close() {
	var wg sync.WaitGroup
	for _, s := range m.order {
		wg.Go(s.close)
	}
	wg.Wait()
}

var _ call.Binding = (*Manager)(nil)

// stage is where refusals of this package come from.
const stage = "act"
