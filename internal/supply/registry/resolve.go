package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
)

// The places where a server is found.
const (
	FromLock      = "lock"
	FromCatalogue = "catalogue"
	FromRegistry  = "registry"
)

// Found is the result of resolving a requirement.
type Found struct {
	Requirement agent.Requirement
	// Version is the server's, empty if none was found.
	Version string
	// From is lock, catalogue or registry; empty if none was found.
	From string
	// Recipe is the way to start it; zero if none was found.
	Recipe Recipe
	// Server is the recipe with the user's settings applied.
	Server agent.Server
	// Package opens the package of a bundle; nil for other kinds.
	Package func(ctx context.Context, want pack.Want, progress pack.Progress) (*pack.Package, error)
	// Work is the server's work folder, empty if it has none.
	Work string
	// Own means that ambit created that folder for the agent.
	Own bool
	// Tools are the known tools, with their definitions if they are known.
	Tools       []agent.Tool
	Definitions map[string][]byte
	// Problem is why there is no server, or why it cannot be started.
	Problem error
	// Warnings are messages for the user.
	Warnings []string

	// untrusted means that only a lock gave the recipe or its dependencies.
	untrusted bool
}

// Lacking reports whether a server is unavailable because a registry is unreachable or
// this machine lacks something.
func Lacking(err error) bool { return errors.Is(err, ErrUnreachable) || pack.Lacking(err) }

// Recipe is the way to start a server, without the user's settings.
type Recipe = pack.Recipe

// Resolver resolves requirements.
type Resolver struct {
	Home    home.Home
	Catalog *catalog.Catalog
	Config  Config
	// Lock is the lock of the manifest's folder; nil if there is none.
	Lock *pack.Lock
	// Anew means that packages are installed anew: the lock's dependencies are
	// ignored.
	Anew bool
	// Client queries registries; nil disables requests.
	Client *Client
}

// NewResolver returns a resolver with a home's catalogue and settings.
func NewResolver(h home.Home, lock *pack.Lock) (*Resolver, error) {
	c, err := catalog.Open(h)
	if err != nil {
		return nil, err
	}
	config, err := ReadConfig(h)
	if err != nil {
		return nil, err
	}
	return &Resolver{Home: h, Catalog: c, Config: config, Lock: lock, Client: NewClient(h, config)}, nil
}

// Resolve resolves all requirements of an agent that runs under a name, a few at a
// time.
func (r *Resolver) Resolve(ctx context.Context, a *agent.Agent, name string) []Found {
	found := make([]Found, len(a.Requirements))
	var wg sync.WaitGroup
	turn := make(chan struct{}, 4)
	for i := range a.Requirements {
		wg.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			found[i] = r.One(ctx, a, name, a.Requirements[i])
		})
	}
	wg.Wait()
	return found
}

// Agent returns a copy of an agent with the servers and tools that were found.
func Agent(a *agent.Agent, found []Found) *agent.Agent {
	copied := *a
	copied.Servers, copied.Tools = nil, nil
	for i := range found {
		f := &found[i]
		if f.Server.Alias != "" {
			copied.Servers = append(copied.Servers, f.Server)
		}
		copied.Tools = append(copied.Tools, f.Tools...)
	}
	return &copied
}

// One resolves one requirement.
func (r *Resolver) One(ctx context.Context, a *agent.Agent, name string, q agent.Requirement) Found {
	f := Found{Requirement: q}
	constraint := q.Version
	if constraint == "" {
		constraint = "*" // an optional entry may have no version
	}
	versions, err := ParseRange(constraint)
	if err != nil {
		f.Problem = err
		return f
	}
	switch locked := r.Lock.Server(a.ID, q.Server); {
	case locked == nil:
		if r.lookUp(ctx, &f, versions); f.Recipe.Kind != "" {
			r.noteResolved(&f)
		}
	case locked.Resolved == nil: // its dependencies would be installed with another recipe
		f.Problem = errors.New("the lock does not say which package it is; resolve it again with ambit lock --update")
	default:
		r.fromLock(ctx, &f, locked, versions)
	}
	if f.Recipe.Kind != "" {
		r.settle(&f, name)
	}
	if len(f.Tools) == 0 {
		f.Tools, f.Definitions = r.seen(q.Server, f.Recipe)
	}
	if len(f.Tools) == 0 {
		f.Tools = r.listed(q.Server) // the tools are known by name, so calls can be refused by name
	}
	return f
}

func (r *Resolver) fromLock(ctx context.Context, f *Found, locked *pack.LockedServer, versions Range) {
	v, ok := ParseVersion(locked.Resolved.Version)
	f.Tools, f.Definitions = lockedTools(f.Requirement.Server, locked, r.Catalog.Entries[f.Requirement.Server])
	if !ok || !versions.Contains(v) {
		f.Problem = fmt.Errorf("it is locked at version %s, which does not satisfy %s", locked.Resolved.Version, diag.Quote(f.Requirement.Version))
		return
	}
	f.Version, f.From, f.Recipe = locked.Resolved.Version, FromLock, locked.Resolved.Recipe
	var with lists
	if !r.Anew {
		with = listsOf(f.Recipe, locked.Package)
	}
	if !r.trusted(ctx, f, with) {
		r.distrust(f, with)
	}
}

func (r *Resolver) lookUp(ctx context.Context, f *Found, versions Range) {
	id := f.Requirement.Server
	host, _, _ := strings.Cut(id, "/")
	entry := r.Catalog.Entries[id]
	if entry != nil && !r.Config.Hosts[host].configured {
		r.fromCatalogue(f, entry, versions)
		return
	}
	err := r.fromRegistry(ctx, f, host, versions)
	if err != nil && entry != nil && errors.Is(err, ErrNotFound) {
		r.fromCatalogue(f, entry, versions)
		return
	}
	f.Problem = err
}

func (r *Resolver) fromCatalogue(f *Found, e *catalog.Entry, versions Range) {
	v, ok := ParseVersion(e.Version)
	if !ok || !versions.Contains(v) {
		f.Problem = fmt.Errorf("%w: the catalogue has version %s, but %s is required", ErrUnsatisfied, e.Version, diag.Quote(f.Requirement.Version))
		return
	}
	f.Version, f.From, f.Recipe = e.Version, FromCatalogue, RecipeOf(e)
}

// RecipeOf returns the recipe of a catalogue entry.
func RecipeOf(e *catalog.Entry) Recipe {
	return Recipe{Kind: pack.Kind(e.Package.Kind), Name: e.Package.Name, Version: e.Package.Version, Digest: e.Package.Digest, Args: e.Args, Env: e.Env}
}

// settle applies the user's settings to a recipe, unless it is untrusted.
func (r *Resolver) settle(f *Found, name string) {
	id := f.Requirement.Server
	var set Settings
	if !f.untrusted {
		set = r.Config.Servers[id]
	}
	work := set.Work
	if work == "" {
		work = catalog.Work(r.Home, name)
	}
	server, err := Server(id, f.Recipe, set, work)
	if err != nil {
		f.Problem = err
		return
	}
	f.Server = server
	if f.Recipe.Kind == pack.MCPB {
		f.Package = r.bundle(id, f.Recipe)
	}
	if uses(f.Recipe, set) {
		f.Work, f.Own = work, set.Work == ""
	}
}

// uses reports whether a server is given the work folder.
func uses(recipe Recipe, set Settings) bool {
	texts := slices.Concat(recipe.Args, set.Args, slices.Collect(maps.Values(recipe.Env)), slices.Collect(maps.Values(set.Env)))
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, "{work}") })
}

var envRef = regexp.MustCompile(`\$env:([A-Za-z_][A-Za-z0-9_]*)`)

// Server applies a user's settings to a recipe.
func Server(id string, recipe Recipe, set Settings, work string) (agent.Server, error) {
	s := agent.Server{Alias: id, Transport: agent.Stdio, Version: recipe.Version, Digest: recipe.Digest, Placeholder: recipe.Digest == ""}
	fill := func(text string) string { return strings.ReplaceAll(text, "{work}", work) }
	args := recipe.Args
	if set.Args != nil {
		args = set.Args
	}
	args = slices.Clone(args)
	for i := range args {
		args[i] = fill(args[i])
	}
	env := maps.Clone(recipe.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, set.Env)
	var missing []string
	for _, name := range recipe.Needs {
		if _, ok := env[name]; !ok {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return s, fmt.Errorf("it needs %s: set it in config.toml, under [server.%q] env", strings.Join(missing, ", "), id)
	}
	trusted := func(name string) bool { _, own := set.Env[name]; return own || !recipe.Foreign }
	settings := make([]agent.Setting, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		v := agent.Setting{Name: name, Value: fill(env[name])}
		if trusted(name) {
			for _, m := range envRef.FindAllStringSubmatch(v.Value, -1) {
				v.Refs = append(v.Refs, m[1])
			}
		}
		settings = append(settings, v)
	}
	switch recipe.Kind {
	case pack.NPM:
		s.Command, s.Args, s.Env = "npx", append([]string{"-y", recipe.Name + "@" + recipe.Version}, args...), settings
	case pack.PyPI:
		s.Command, s.Args, s.Env = "uvx", append([]string{recipe.Name + "==" + recipe.Version}, args...), settings
	case pack.MCPB:
		s.Command, s.Args, s.Env = string(pack.MCPB), args, settings // the code is in the bundle: see Found.Package
	case pack.Builtin:
		exe, err := os.Executable()
		if err != nil {
			return s, err
		}
		s.Command, s.Args, s.Env = exe, append([]string{"tool-server", recipe.Name}, args...), settings
	case pack.Remote:
		s.Transport, s.Endpoint, s.Headers, s.Placeholder = agent.StreamableHTTP, recipe.Name, settings, false
	default:
		return s, fmt.Errorf("packages of kind %s are not supported", diag.Quote(string(recipe.Kind)))
	}
	return s, nil
}
