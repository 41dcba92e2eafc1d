package host

import (
	"context"
	"errors"
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

// Resolved is an agent together with the servers that meet its requirements. If an agent declares its own servers, it
// has no requirements, and [Resolved.Agent] returns the agent unchanged.
//
// The tools of a server come from the lock file, the catalogue or an earlier start. If none of these sources lists the
// tools, the tools are unknown until the server has been verified. After the verification, [Resolved.Agent] returns a
// new copy of the agent that includes the tools. A returned copy never changes.
type Resolved struct {
	// Resolver is the resolver that looked up the requirements. It is nil if the agent has no requirements.
	Resolver *registry.Resolver

	declared *agent.Agent
	name     string

	mu    sync.Mutex
	found []registry.Found
	agent atomic.Pointer[agent.Agent]
}

// ResolveOptions specifies where servers are looked up.
type ResolveOptions struct {
	Home home.Home
	// Lock is the lock file in the manifest's folder, or nil.
	Lock *pack.Lock
	// If Offline is set, Resolve does not query any registry.
	Offline bool
	// If Anew is set, the dependencies in the lock file are ignored and packages are installed again.
	Anew bool
}

// Resolve finds a server for each requirement of an agent. A requirement is a server id with a version constraint and
// scopes. Resolve searches the lock file, the catalogue and the registries, but starts no server. If a requirement
// cannot be met, its [registry.Found] contains the problem. The agent's name determines the default work folder of the
// servers.
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

// Agent returns the agent with the servers and tools that are known so far.
func (r *Resolved) Agent() *agent.Agent { return r.agent.Load() }

// Found returns the result for each requirement, in the order of the manifest.
func (r *Resolved) Found() []registry.Found {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.found)
}

// Fetched stores the digest of a required server's package after the caller has fetched the package.
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

// Trust records that the server f was locked with the package p. See [registry.Resolver.Trust].
func (r *Resolved) Trust(f *registry.Found, p pack.LockedPackage) error {
	return r.Resolver.Trust(f, p)
}

// Servers returns the specifications of the resolved servers. It returns nil for an agent that declares its own
// servers. Lazy servers start on demand. If the address of a server comes from a registry, requests to the server are
// sent through the given client.
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

// prepare makes a server ready to start. It creates the server's work folder and pins the server's package. If the
// server was not found before, prepare looks it up again.
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
			return nil, unavailable(&f, fmt.Errorf("cannot create the server's work folder: %w", err))
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

// unavailable returns the error for a required server that cannot be started.
func unavailable(f *registry.Found, why error) *toolserver.Unavailable {
	r := call.Refuse("act", call.ServerUnavailable, "server %s is unavailable: %v", f.Requirement.Server, why).Again()
	r.Hint = "to see what the server needs, run: ambit catalog show " + f.Requirement.Server
	if errors.Is(why, registry.ErrUnreachable) { // without a registry, the command above would fail too
		r.Hint = "check the network connection and the registry's address in config.toml; for a package that you trust, run: " +
			"ambit catalog add " + f.Requirement.Server + " npm:NAME@VERSION"
	}
	return &toolserver.Unavailable{
		Refusal: r, NotFound: f.Problem != nil, Lacking: registry.Lacking(why),
	}
}

// complete returns the full specification of a server that was found.
func complete(f *registry.Found, s toolserver.Spec, o toolserver.Options, client *egress.Client) toolserver.Spec {
	s.Server, s.Definitions, s.Find, s.Problem = f.Server, f.Definitions, nil, nil
	for i := range f.Tools {
		s.Tools = append(s.Tools, f.Tools[i].Name)
	}
	// A registry does not pin the tools of a server, so the tools may have changed since an earlier start.
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

// public is an http.RoundTripper for addresses that come from a registry. Its client accepts only public addresses.
type public struct{ client *egress.Client }

func (p public) RoundTrip(req *http.Request) (*http.Response, error) { return p.client.Do(req) }

// launch starts a built-in server in this process. The server runs its commands in a sandbox.
func launch(ctx context.Context, f *registry.Found, o toolserver.Options) (*toolserver.Launched, error) {
	if f.Recipe.Name != bashserver.Name {
		return nil, fmt.Errorf("this version of ambit has no built-in server %s", f.Recipe.Name)
	}
	if err := sandbox.Check(ctx, sandbox.Standard, o.Home.Dir()); err != nil {
		return nil, err
	}
	// Only Stop is allowed to stop the server. If the parent context stopped the server, that would look like a crash.
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

// Learn stores the tool definitions of a required server that was verified. If Learn returns an error, this process
// still uses the definitions, but later processes do not know them.
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
