// Package toolserver starts the tool servers of an agent, proves that each is the server that the manifest
// declares, and keeps them running.
//
// # Life of a server
//
//	prepare → start → greet → prove → ready ⇄ (ended → start again ⇄ rest) → closed
//	                            ↘ refused              ↘ drifted: quarantined
//	                              ↘ with [Options.Persist]: start again
//
// Prepare finds the program. The package with the declared digest comes from the package store and is
// hashed before every start. A remote server cannot be hashed.
//
// Start gives a program only the environment that it declares. With bubblewrap the program also gets its
// own pid namespace, in which ambit's files are hidden.
//
// Greet agrees on a protocol generation.
//
// Prove compares the advertised tools with the declared tools. The names must be equal. With a lock, the
// whole definitions must be equal; without a lock, the definitions that were proven first hold while the
// agent runs. No tool can be called before its server is proven.
//
// All servers of an agent start at the same time, but their packages are hashed one after the other.
//
// # Restarts
//
// A server that ends is started again, with growing pauses, and proven again. A server that ends too often
// rests between two attempts: calls are refused at once, with the time of the next attempt. Attempts never
// stop. A server that announces other tools is proven again, and so is a remote server that could not be
// reached. A server that drifted is quarantined: its calls are refused, and the agent's other servers keep
// working.
//
// A call waits a few seconds for a server that is being started or proven. A call that was under way when
// its server ended is refused and never repeated here. Subscriptions of clients are renewed when the server
// is back.
//
// A lazy server ([Spec.Lazy]) starts on its first use, a call or a list of tools, and stops when it was
// idle for a while. It must come back with the tools that were proven first. While its start fails, calls
// are refused with the reason, and the start is repeated with growing pauses.
//
// Credential values are removed from a server's log and errors before anything else sees them.
//
// # Requests from servers
//
// A server may send requests to its client: elicitation, sampling, roots. A connection declares these
// capabilities only if it belongs to one client. That is every connection if there is only one client
// ([Options.Owner]). Otherwise a remote server of the older generation gets a separate connection for each
// such client; in the newer generation the capabilities travel with each request. The tools of a separate
// connection must equal the proven ones. A server that advertises other tools to a client that it can ask
// is used without these capabilities.
//
// A [Manager] is the [call.Binding] of tools on servers. Only the gateway holds one.
package toolserver

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// Options configure the servers of an agent.
type Options struct {
	Home home.Home
	// Folder contains the manifest; paths of local files are relative to it.
	Folder string
	// Lookup resolves $env:NAME references.
	Lookup func(name string) (string, bool)
	// Authorize adds authorization headers to a request to a remote server if the manifest declares none;
	// nil adds nothing. It returns the secret part.
	Authorize func(ctx context.Context, s *agent.Server, h http.Header) (secret string, err error)
	// Lock contains the locked packages and definitions; nil without a lock.
	Lock *pack.Lock
	// Want is the expected package of a server, by alias, where no lock contains it. By default the
	// declared digest decides.
	Want map[string]pack.Want
	// Log receives the stderr lines of servers and the events of their lives.
	Log func(alias, line string)
	// Progress receives the current step, for a person who waits.
	Progress func(alias, step string)
	// Servers are the servers to start; nil starts those of the manifest.
	Servers []Spec
	// Idle is how long an unused lazy server keeps running; 0 means 10 minutes.
	Idle time.Duration
	// OnProven receives the proven definitions of a server before any of its tools can be called.
	OnProven func(alias string, definitions map[string][]byte)
	// Persist repeats a failed first start, as after a crash. Long-running agents can wait until the cause
	// is gone.
	Persist bool
	// Contain refuses servers whose program cannot be contained.
	Contain bool
	// Version is ambit's version, sent in the greeting.
	Version string
	// Owner waits for the one client that every connection belongs to and returns it, or nil. Without
	// Owner, clients share the servers.
	Owner func(context.Context) *call.Client
	// OnNotify receives the notifications of servers and each change of their tools. It must not block.
	OnNotify func(alias, method string, params jsontext.Value)

	startTimeout time.Duration // bounds the start of one server without its download; 0 means 90 s
	probe        time.Duration // how long to wait for the newer greeting; 0 is mcpwire's choice
	pause        time.Duration // before the first restart
	clock        clock         // nil is the system clock
}

// Spec is a server and how to start it.
type Spec struct {
	agent.Server
	// Tools are the names of the declared tools.
	Tools []string
	// Learn accepts the tools of the first proof in place of declared ones.
	Learn bool
	// Definitions are the definitions known before the first start, by tool name.
	Definitions map[string][]byte
	// Lazy starts the server on first use and stops it when it is idle.
	Lazy bool
	// Optional leaves the tools of a lazy server out of lists while it is unavailable.
	Optional bool
	// Launch starts the program in place of the command; nil uses the command. The caller has verified the
	// program.
	Launch func(context.Context) (*Launched, error)
	// Package returns the freshly hashed package of a server that has no command; nil for other servers.
	Package func(ctx context.Context, want pack.Want, progress pack.Progress) (*pack.Package, error)
	// RoundTripper sends requests to a remote server; nil uses mcpwire's own.
	RoundTripper http.RoundTripper
	// Find completes the spec before the first start. It is called again after it failed. The error may be
	// an [*Unavailable]. Nil means that the spec is complete.
	Find func(ctx context.Context, progress pack.Progress) (Spec, error)
	// Problem is the error that Find would return, if it is known already.
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

// declared returns the servers of the manifest.
func declared(a *agent.Agent) []Spec {
	specs := make([]Spec, len(a.Servers))
	for i, s := range a.Servers {
		specs[i].Server = s
		for _, t := range a.Tools {
			if on, ok := t.Binding.(agent.OnServer); ok && on.Alias == s.Alias {
				specs[i].Tools = append(specs[i].Tools, t.Name)
			}
		}
	}
	return specs
}

// Manager runs the servers of one agent.
type Manager struct {
	servers map[string]*server
	order   []*server
}

// Start starts and proves every server of an agent, all at the same time. The manager is returned also if
// some servers failed: their proofs contain the reason, and their tools refuse calls. The caller must close
// the manager.
func Start(ctx context.Context, a *agent.Agent, o Options) *Manager {
	o.startTimeout = cmp.Or(o.startTimeout, 90*time.Second)
	o.pause = cmp.Or(o.pause, firstPause)
	o.Idle = cmp.Or(o.Idle, idleTime)
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
	orderHashing(eager, (*server).packageSize)
	var wg sync.WaitGroup
	for _, s := range m.order {
		wg.Go(func() { s.boot(ctx) })
	}
	wg.Wait()
	return m
}

// Proofs returns the proof of each server, in the manifest's order, without lazy servers that were never
// used.
func (m *Manager) Proofs() []Proof {
	proofs := make([]Proof, 0, len(m.order))
	for _, s := range m.order {
		if p := s.lastProof(); p.Refusal != nil || !s.sleeping() {
			proofs = append(proofs, p)
		}
	}
	return proofs
}

// Proven reports whether every server passed its proof.
func (m *Manager) Proven() bool {
	return !slices.ContainsFunc(m.Proofs(), func(p Proof) bool { return !p.OK })
}

// Definition returns a tool's whole definition as last proven, or nil.
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

// stage is the stage that refusals of this package name.
const stage = "act"
