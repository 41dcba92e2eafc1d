// Package toolserver starts the tool servers of an agent, verifies them, and keeps them running. A
// verified server offers exactly the tools that the manifest declares.
//
// # Life of a server
//
//	prepare → start → greet → prove → ready ⇄ (ended → start again ⇄ rest) → closed
//	                            ↘ refused              ↘ drifted: quarantined
//	                              ↘ with [Options.Persist]: start again
//
// Prepare finds the program. A package comes from the package store and is hashed before every start. A
// remote server cannot be hashed.
//
// Start runs the program. The program gets a few basic environment variables and the variables that the
// manifest declares. If bubblewrap is installed, the program is contained: it runs in its own pid namespace
// and cannot see ambit's files.
//
// Greet agrees with the server on a protocol generation. The older generation of MCP begins with an
// initialize handshake. The newer generation has no handshake.
//
// Prove verifies the server. The advertised tools must have the same names as the tools in the manifest. If
// there is a lock file, the definitions of the tools must equal the locked definitions. Without a lock file,
// the definitions must stay as they were at the first verification. A server that fails the comparison has
// drifted. No tool can be called before its server is verified.
//
// All servers of an agent start at the same time.
//
// # Restarts
//
// If a server exits, the manager restarts the server after a pause and verifies it again. The pauses grow
// with each exit. A server that exits too often rests between two attempts. During a rest, calls are refused
// immediately, and the refusal says when the next attempt will be. The manager never stops trying.
//
// The manager also verifies a server again if the server announces changed tools, or if a remote server
// could not be reached. A server that has drifted is quarantined: its calls are refused. The other servers
// of the agent keep working.
//
// A call waits a few seconds for a server that is being started or verified. If a server exits during a
// call, the call is refused and never repeated. When the server is back, the manager renews the
// subscriptions of clients.
//
// A lazy server ([Spec.Lazy]) starts when it is first used, by a call or by a request for the list of tools. It stops
// after some time without use. After another start, it must advertise the same tools as at the first verification. If
// the start fails, calls are refused with the reason. The manager retries the start with growing pauses. With
// [Spec.OnCall], only a call starts the server, and the server then keeps running.
//
// Credential values are removed from a server's log and errors before any other code reads them.
//
// # Requests from servers
//
// MCP lets a server send requests to its client: elicitation, sampling and roots. ambit declares these
// capabilities only if it knows which client must answer. If [Options.Owner] is set, there is a single
// client, and every connection belongs to it. Otherwise, the protocol generation decides:
//
//   - A remote server of the older generation gets a separate connection for each client that declares such
//     capabilities. The tools of a separate connection must equal the verified tools.
//   - In the newer generation, each request carries the capabilities of its client.
//
// Some servers advertise different tools to clients with these capabilities. ambit does not declare the
// capabilities to such a server.
//
// A [Manager] is the [call.Binding] of tools on servers. Only the gateway uses a Manager.
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
	// Manifest is the path of the manifest. The paths of local files are relative to its folder.
	Manifest string
	// Lookup resolves $env:NAME references.
	Lookup func(name string) (string, bool)
	// Authorize adds authorization headers to a request to a remote server. It is not called if the manifest declares
	// an authorization header. It returns the secret part of the headers that it added. If Authorize is nil, no
	// headers are added.
	Authorize func(ctx context.Context, s *agent.Server, h http.Header) (secret string, err error)
	// SignIn returns the sign-in that the requests to a remote server use, or nil. It is not called if the manifest
	// declares an authorization header for the server.
	SignIn func(s *agent.Server) SignIn
	// Callers provides the sign-ins of a daemon's callers. If Callers is nil, all callers share the servers.
	Callers Callers
	// Lock is the content of the lock file. It is nil if there is no lock file.
	Lock *pack.Lock
	// Want maps aliases to the expected packages of servers that are not in the lock file. If a server is neither in the
	// lock file nor in Want, its package must have the digest in the manifest.
	Want map[string]pack.Want
	// Log receives messages about starts, stops and failures. Output receives the stderr lines of servers; if it is nil,
	// Log receives them too.
	Log, Output func(alias, line string)
	// Progress is called at each step of a server's start, so that the caller can show the step to the user.
	Progress func(alias, step string)
	// Servers are the servers to start. If Servers is nil, the manager starts the servers of the manifest.
	Servers []Spec
	// Idle is how long an unused lazy server keeps running. It defaults to 10 minutes.
	Idle time.Duration
	// OnProven receives the verified definitions of a server before any of its tools can be called.
	OnProven func(alias string, definitions map[string][]byte)
	// If Persist is set, the manager retries a failed first start in the same way as a failed restart. Long-running
	// agents use Persist to wait until the cause of the failure is gone.
	Persist bool
	// Confine runs the programs of servers in sandboxes. If it is nil, they run with the rights of ambit's user.
	Confine *Confinement
	// Contain refuses servers whose programs cannot be contained. A contained program runs in its own pid namespace
	// and cannot see ambit's files.
	Contain bool
	// Version is ambit's version. It is sent to servers in the greeting.
	Version string
	// Owner returns the client that owns all connections. It waits until the client is known. Its result may be nil. If
	// Owner is not set, several clients share the servers.
	Owner func(context.Context) *call.Client
	// OnNotify receives the servers' notifications. The manager also calls it when the tools of a server change. It
	// must not block.
	OnNotify func(alias, method string, params jsontext.Value)

	startTimeout time.Duration // time limit for the start of a server, without the download; 0 means 90 s
	greetTimeout time.Duration // time limit for the server's answer to the greeting; 0 means 30 s
	probe        time.Duration // how long to wait for the answer to the newer greeting; 0 means mcpwire's default
	pause        time.Duration // the pause before the first restart
	clock        clock         // nil means the system clock
}

// SignIn authorizes the requests to a remote server. A signin.Session implements it.
type SignIn interface {
	// Header adds the token to a request and returns the token. It returns "" if there is no token.
	Header(ctx context.Context, h http.Header) (token string, err error)
	// Prove adds a proof to a request whose token is bound to a key.
	Prove(req *http.Request) error
	// Refused handles an answer with status 401 or 403, as described at [mcpwire.HTTPOptions].
	Refused(ctx context.Context, req *http.Request, resp *http.Response, try int) (again bool, err error)
	// Missing reports whether the server refused the last request for lack of a valid sign-in, and the sign-in has
	// not changed since.
	Missing() bool
}

// Spec describes a server and how to start it.
type Spec struct {
	agent.Server
	// Tools are the names of the declared tools.
	Tools []string
	// If Learn is set, all tools are accepted at the first verification. From then on, they count as the declared
	// tools. The field Tools is ignored.
	Learn bool
	// Definitions holds the tool definitions that are known before the first start, by tool name.
	Definitions map[string][]byte
	// If Lazy is set, the server starts at its first use and stops when it is idle.
	Lazy bool
	// If OnCall is set, a lazy server starts at its first call. A list shows Definitions and does not start the server.
	// The server does not stop when it is idle, because it may hold state.
	OnCall bool
	// If Optional is set, the tools of a lazy server are omitted from lists while the server is unavailable.
	Optional bool
	// Launch starts the server's program, which the caller has already verified. If Launch is nil, the manager
	// starts the server's command.
	Launch func(context.Context) (*Launched, error)
	// Package opens the server's MCPB bundle. The returned package contains the hash of the bundle. Package is nil if the
	// server is not an MCPB bundle.
	Package func(ctx context.Context, want pack.Want, progress pack.Progress) (*pack.Package, error)
	// RoundTripper sends requests to a remote server. If it is nil, mcpwire's default is used.
	RoundTripper http.RoundTripper
	// Find completes the spec before the first start. If Find returns an error, it is called again before the next
	// start. The error may be an [*Unavailable]. If Find is nil, the spec is already complete.
	Find func(ctx context.Context, progress pack.Progress) (Spec, error)
	// If Problem is not nil, the first start fails with this error without calling Find. Later starts call Find.
	Problem error
}

// Unavailable is the error for a server that cannot be prepared.
type Unavailable struct {
	Refusal *call.Refusal
	// Lacking reports whether a registry is unavailable, or a file or program is missing on this machine.
	Lacking bool
	// NotFound is true if the server could not be resolved, for example because no registry provides it.
	NotFound bool
}

func (e *Unavailable) Error() string { return e.Refusal.Error() }

// Unwrap returns the refusal.
func (e *Unavailable) Unwrap() error { return e.Refusal }

// Declared returns the specifications of the servers that an agent's manifest declares.
func Declared(a *agent.Agent) []Spec {
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

// Deferred is like [Declared], but a program starts only at its first call if the lock file contains exactly its
// declared tools. A required server still starts immediately. Until the first call, clients see the definitions in the
// lock file, so use Deferred only if the servers have been verified with this lock file before.
func Deferred(a *agent.Agent, lock *pack.Lock) []Spec {
	specs := Declared(a)
	for i := range specs {
		s := &specs[i]
		locked := lock.Server(a.ID, s.Alias)
		if s.Transport != agent.Stdio || s.Required || locked == nil || len(locked.Tools) != len(s.Tools) {
			continue
		}
		definitions := make(map[string][]byte, len(locked.Tools))
		for _, name := range s.Tools {
			if t, ok := locked.Tools[name]; ok {
				definitions[name] = t.Definition
			}
		}
		if len(definitions) == len(s.Tools) {
			s.Lazy, s.OnCall, s.Definitions = true, true, definitions
		}
	}
	return specs
}

// Manager runs the servers of one agent.
type Manager struct {
	servers map[string]*server
	order   []*server
}

// Start starts and verifies all servers of an agent at the same time. It always returns a manager. If a server fails,
// its proof contains the reason, and calls to its tools are refused. The caller must close the manager.
func Start(ctx context.Context, a *agent.Agent, o Options) *Manager {
	o.startTimeout = cmp.Or(o.startTimeout, 90*time.Second)
	o.greetTimeout = cmp.Or(o.greetTimeout, 30*time.Second)
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
	if o.Output == nil {
		o.Output = o.Log
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
		o.Servers = Declared(a)
	}
	m := &Manager{servers: map[string]*server{}}
	for _, spec := range o.Servers {
		s := newServer(a.ID, spec, o)
		m.servers[s.alias] = s
		m.order = append(m.order, s)
	}
	m.each(func(s *server) { s.boot(ctx) })
	return m
}

// each calls a function for all servers in parallel and waits until all calls have returned.
func (m *Manager) each(do func(*server)) {
	var wg sync.WaitGroup
	for _, s := range m.order {
		wg.Go(func() { do(s) })
	}
	wg.Wait()
}

// Proofs returns the proofs of the servers in the manifest's order. It omits a lazy server that is not running, unless
// the server's last start failed.
func (m *Manager) Proofs() []Proof {
	proofs := make([]Proof, 0, len(m.order))
	for _, s := range m.order {
		if p := s.lastProof(); p.Refusal != nil || !s.sleeping() {
			p.Lazy = p.Lazy || s.waitsForCallers(&p)
			proofs = append(proofs, p)
		}
	}
	return proofs
}

// Proven reports whether every server in Proofs passed its verification.
func (m *Manager) Proven() bool {
	return !slices.ContainsFunc(m.Proofs(), func(p Proof) bool { return !p.OK })
}

// Definition returns the definition of a tool from the last verification. It returns nil for an unknown tool.
func (m *Manager) Definition(t *agent.Tool) []byte {
	on, ok := t.Binding.(agent.OnServer)
	if !ok || m.servers[on.Alias] == nil {
		return nil
	}
	s := m.servers[on.Alias]
	if own := s.definition(t.Name); own != nil {
		return own
	}
	return s.offered(t.Name)
}

// Close stops every server.
func (m *Manager) Close() { m.each((*server).close) }

var _ call.Binding = (*Manager)(nil)

// stage is the stage name in every refusal from this package.
const stage = "act"
