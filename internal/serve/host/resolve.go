package host

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/bashserver"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/internal/supply/registry"
)

// Resolved is an agent whose requirements were turned into servers. An agent that
// declares its own servers is resolved as it is.
//
// Tools that neither a lock, the catalogue nor an earlier start of the server on this
// machine names are unknown until the server has been proven once. [Resolved.Agent]
// then returns a copy of the agent with them; the agent that a call holds is never
// changed.
type Resolved struct {
	// Resolver is how the requirements were looked up; nil if there are none.
	Resolver *registry.Resolver

	declared *agent.Agent
	name     string

	mu    sync.Mutex
	found []registry.Found
	agent atomic.Pointer[agent.Agent]
}

// ResolveOptions say where servers are looked up.
type ResolveOptions struct {
	Home home.Home
	// Lock is that of the manifest's folder; nil if there is none.
	Lock *pack.Lock
	// Offline asks no registry.
	Offline bool
	// Anew leaves out which dependencies a lock lists: packages are installed anew.
	Anew bool
}

// Resolve turns the server ids, version constraints and scopes that an agent requires
// into servers and tools: from the lock, the catalogue and registries. It starts
// nothing. A requirement that nothing meets is no error: its [registry.Found] has the
// problem. The agent runs under the name.
func Resolve(ctx context.Context, a *agent.Agent, name string, o ResolveOptions) (*Resolved, error) {
	r := &Resolved{declared: a, name: name}
	r.agent.Store(a)
	if len(a.Requirements) == 0 {
		return r, nil
	}
	var err error
	if r.Resolver, err = registry.NewResolver(o.Home, o.Lock); err != nil {
		return nil, err
	}
	r.Resolver.Anew = o.Anew
	if o.Offline {
		r.Resolver.Client = nil
	}
	r.found = r.Resolver.Resolve(ctx, a, name)
	r.agent.Store(registry.Agent(a, r.found))
	return r, nil
}

// Agent returns the agent with the servers and tools that are known by now.
func (r *Resolved) Agent() *agent.Agent { return r.agent.Load() }

// Found returns what each requirement came to, in the manifest's order.
func (r *Resolved) Found() []registry.Found {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.found)
}

// Fetched records the digest of a required server's package, which the caller fetched.
func (r *Resolved) Fetched(alias, digest string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.found {
		if f := &r.found[i]; f.Requirement.Server == alias {
			f.Recipe.Digest, f.Server.Digest, f.Server.Placeholder = digest, digest, false
		}
	}
	r.agent.Store(registry.Agent(r.declared, r.found))
}

// Trust records that this machine resolved a server to the package that is locked.
func (r *Resolved) Trust(f *registry.Found, p pack.LockedPackage) error {
	return r.Resolver.Trust(f, p)
}

// Servers are the servers as the tool server manager starts them; nil for an agent that
// declares them. Requests to addresses that a registry named go through the client.
func (r *Resolved) Servers(o toolserver.Options, client *egress.Client, lazy bool) []toolserver.Spec {
	var specs []toolserver.Spec
	for i, f := range r.Found() {
		s := toolserver.Spec{Server: f.Server, Definitions: f.Definitions, Lazy: lazy, Optional: f.Requirement.Optional}
		s.Alias = f.Requirement.Server
		if f.Problem != nil {
			s.Problem = unavailable(&f, f.Problem)
		}
		s.Find = func(ctx context.Context, progress pack.Progress) (toolserver.Spec, error) {
			f, err := r.prepare(ctx, i, progress)
			if err != nil {
				return toolserver.Spec{}, err
			}
			return complete(f, s, o, client), nil
		}
		specs = append(specs, s)
	}
	return specs
}

// prepare looks a server up again if nothing provided it, makes its work folder and pins
// its package.
func (r *Resolved) prepare(ctx context.Context, i int, progress pack.Progress) (*registry.Found, error) {
	f := r.Found()[i]
	if f.Problem != nil {
		f = r.Resolver.One(ctx, r.declared, r.name, f.Requirement)
	}
	if f.Problem != nil {
		return nil, unavailable(&f, f.Problem)
	}
	if f.Work != "" {
		if err := os.MkdirAll(f.Work, 0o700); err != nil {
			return nil, unavailable(&f, fmt.Errorf("it has no work folder: %w", err))
		}
	}
	if err := registry.Pin(ctx, r.Resolver.Home, &f, progress); err != nil {
		return nil, unavailable(&f, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found[i] = f
	return &f, nil
}

// unavailable is why the server of a requirement cannot be started.
func unavailable(f *registry.Found, why error) *toolserver.Unavailable {
	r := call.Refuse("act", call.ServerUnavailable, "server %s is unavailable: %v", f.Requirement.Server, why).Again()
	r.Hint = "see what it is and what it needs: ambit catalog show " + f.Requirement.Server
	return &toolserver.Unavailable{
		Refusal: r, NotFound: f.Problem != nil, Lacking: registry.Lacking(why),
	}
}

// complete is the spec of a server that was found.
func complete(f *registry.Found, s toolserver.Spec, o toolserver.Options, client *egress.Client) toolserver.Spec {
	s.Server, s.Definitions, s.Find, s.Problem = f.Server, f.Definitions, nil, nil
	for i := range f.Tools {
		s.Tools = append(s.Tools, f.Tools[i].Name)
	}
	// Tools that were seen at an earlier start are no promise of the registry.
	s.Learn = f.From == registry.FromRegistry || len(f.Tools) == 0
	switch {
	case f.Recipe.Kind == pack.Builtin:
		s.Launch = func(ctx context.Context) (*toolserver.Launched, error) { return launch(ctx, f, o) }
	case f.Recipe.Kind == pack.MCPB:
		s.Package = f.Package
	case f.Recipe.Kind == pack.Remote && f.Recipe.Foreign:
		s.RoundTripper = public{client}
	}
	return s
}

// public sends requests to addresses that a registry named: to public ones only.
type public struct{ client *egress.Client }

func (p public) RoundTrip(req *http.Request) (*http.Response, error) { return p.client.Do(req) }

// launch starts a server that is a part of ambit, within this process. Its commands run
// in a sandbox of their own.
func launch(ctx context.Context, f *registry.Found, o toolserver.Options) (*toolserver.Launched, error) {
	if f.Recipe.Name != bashserver.Name {
		return nil, fmt.Errorf("this ambit has no server %s", f.Recipe.Name)
	}
	if err := sandbox.Check(ctx, sandbox.Standard, o.Home.Dir()); err != nil {
		return nil, err
	}
	// The server ends when it is stopped, so that its end is not taken for a crash.
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

// Learn keeps the definitions that a required server was proven with. The error says
// that they are not remembered for the next process.
func (r *Resolved) Learn(alias string, definitions map[string][]byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.found, func(f registry.Found) bool { return f.Requirement.Server == alias })
	if i < 0 {
		return nil
	}
	f := &r.found[i]
	was := f.Tools
	f.Tools, f.Definitions = registry.Tools(alias, definitions, r.Resolver.Catalog.Entries[alias]), definitions
	same := func(a, b agent.Tool) bool { return a.Name == b.Name && a.SideEffect == b.SideEffect }
	if !slices.EqualFunc(was, f.Tools, same) || r.Agent().Server(alias) == nil {
		r.agent.Store(registry.Agent(r.declared, r.found))
	}
	return r.Resolver.Remember(f, definitions)
}
