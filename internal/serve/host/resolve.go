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

// Resolved is an agent whose requirements were resolved to servers. An agent that declares its own
// servers stays unchanged.
//
// Tools that neither the lock, the catalogue nor an earlier start names are unknown until the
// server is proven. [Resolved.Agent] then returns a copy of the agent with them; it never changes
// an agent that a call holds.
type Resolved struct {
	// Resolver looked up the requirements; nil if there are none.
	Resolver *registry.Resolver

	declared *agent.Agent
	name     string

	mu    sync.Mutex
	found []registry.Found
	agent atomic.Pointer[agent.Agent]
}

// ResolveOptions say where to look up servers.
type ResolveOptions struct {
	Home home.Home
	// Lock is the lock in the manifest's folder; nil if there is none.
	Lock *pack.Lock
	// Offline uses no registry.
	Offline bool
	// Anew ignores the dependencies in the lock: packages are installed again.
	Anew bool
}

// Resolve resolves the server ids, version constraints and scopes that an agent requires to servers
// and tools, from the lock, the catalogue and registries. It starts nothing. An unmet requirement
// is no error: its [registry.Found] has the problem. The agent runs under the name.
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

// Agent returns the agent with the servers and tools that are known now.
func (r *Resolved) Agent() *agent.Agent { return r.agent.Load() }

// Found returns the result of each requirement, in the manifest's order.
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

// Servers returns the specs of the resolved servers; nil for an agent that declares its servers.
// Requests to addresses from a registry go through the client.
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

// prepare looks up a server again if it was not found, creates its work folder and pins its
// package.
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
			return nil, unavailable(&f, fmt.Errorf("cannot create its work folder: %w", err))
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
	r.Hint = "see the server and its needs: ambit catalog show " + f.Requirement.Server
	return &toolserver.Unavailable{
		Refusal: r, NotFound: f.Problem != nil, Lacking: registry.Lacking(why),
	}
}

// complete returns the spec of a server that was found.
func complete(f *registry.Found, s toolserver.Spec, o toolserver.Options, client *egress.Client) toolserver.Spec {
	s.Server, s.Definitions, s.Find, s.Problem = f.Server, f.Definitions, nil, nil
	for i := range f.Tools {
		s.Tools = append(s.Tools, f.Tools[i].Name)
	}
	// Tools from an earlier start are not promised by the registry.
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

// public sends requests to addresses from a registry, which must be public.
type public struct{ client *egress.Client }

func (p public) RoundTrip(req *http.Request) (*http.Response, error) { return p.client.Do(req) }

// launch starts a built-in server in this process. Its commands run in their own sandbox.
func launch(ctx context.Context, f *registry.Found, o toolserver.Options) (*toolserver.Launched, error) {
	if f.Recipe.Name != bashserver.Name {
		return nil, fmt.Errorf("this version of ambit has no built-in server %s", f.Recipe.Name)
	}
	if err := sandbox.Check(ctx, sandbox.Standard, o.Home.Dir()); err != nil {
		return nil, err
	}
	// The server ends when it is stopped, so that its end does not count as a crash.
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

// Learn stores the definitions that a required server was proven with. The error means that the
// next process will not have them.
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
