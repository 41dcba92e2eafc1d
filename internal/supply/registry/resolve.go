package registry

import (
	"cmp"
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

// The values of Found.From.
const (
	FromLock      = "lock"
	FromCatalogue = "catalogue"
	FromRegistry  = "registry"
)

// Found is the result of resolving a requirement.
type Found struct {
	Requirement agent.Requirement
	// Version is the version of the server. It is empty if no server was found.
	Version string
	// From is FromLock, FromCatalogue or FromRegistry. It is empty if no server was found.
	From string
	// Recipe describes how to start the server. It is the zero Recipe if no server was found.
	Recipe Recipe
	// Server is the result of applying the user's settings to Recipe.
	Server agent.Server
	// Package opens the package of a bundle. It is nil for other kinds of servers.
	Package opener
	// Work is the path of the server's work folder. It is empty if the server uses no work folder.
	Work string
	// Own is true if Work is ambit's folder for the agent, not a folder that the user chose.
	Own bool
	// Tools lists the known tools of the server. Definitions maps tool names to the definitions that are known.
	Tools       []agent.Tool
	Definitions map[string][]byte
	// Problem is the reason why no server was found or why the server cannot be started.
	Problem error
	// Warnings lists messages for the user.
	Warnings []string

	// untrusted is true if the recipe or its dependencies come only from a lock file.
	untrusted bool
}

// Lacking reports whether err means that a server is unavailable because a registry is unreachable or something is
// missing on this machine.
func Lacking(err error) bool { return errors.Is(err, ErrUnreachable) || pack.Lacking(err) }

// Recipe describes how to start a server, without the user's settings.
type Recipe = pack.Recipe

// Resolver resolves requirements.
type Resolver struct {
	Home    home.Home
	Catalog *catalog.Catalog
	Config  Config
	// Lock is the lock file in the manifest's folder, or nil.
	Lock *pack.Lock
	// Anew is true if dependencies must be resolved again. The lists of dependencies in Lock are then ignored.
	Anew bool
	// Client queries registries. If Client is nil, the resolver sends no requests.
	Client *Client
}

// NewResolver returns a resolver that uses the catalogue and settings in h. The lock can be nil.
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

// Resolve resolves all requirements of an agent, up to four at the same time. The agent runs under the given name.
func (r *Resolver) Resolve(ctx context.Context, a *agent.Agent, name string) []Found {
	found := make([]Found, len(a.Requirements))
	var wg sync.WaitGroup
	slots := make(chan struct{}, 4)
	for i := range a.Requirements {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			found[i] = r.One(ctx, a, name, a.Requirements[i])
		})
	}
	wg.Wait()
	return found
}

// Agent returns a copy of an agent. The copy has the servers and tools of the given results.
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
	versions, err := ParseRange(cmp.Or(q.Version, "*")) // an optional requirement may lack a version
	if err != nil {
		f.Problem = err
		return f
	}
	switch locked := r.Lock.Server(a.ID, q.Server); {
	case locked == nil:
		if r.lookUp(ctx, &f, versions); f.Recipe.Kind != "" {
			r.noteResolved(&f)
		}
	case locked.Resolved == nil: // without the recipe, the locked dependencies could belong to a different package
		f.Problem = errors.New("the lock file has no package for the server; to add the package, run: ambit lock --update")
	default:
		r.fromLock(ctx, &f, locked, versions)
	}
	if f.Recipe.Kind != "" {
		r.applySettings(&f, name)
	}
	if len(f.Tools) == 0 {
		f.Tools, f.Definitions = r.lastTools(q.Server, f.Recipe)
	}
	if len(f.Tools) == 0 {
		// The catalogue has no tool definitions. If a call is rejected, the tool's name is enough to explain why.
		f.Tools = r.catalogueTools(q.Server)
	}
	return f
}

func (r *Resolver) fromLock(ctx context.Context, f *Found, locked *pack.LockedServer, versions Range) {
	v, ok := ParseVersion(locked.Resolved.Version)
	f.Tools, f.Definitions = lockedTools(f.Requirement.Server, locked, r.Catalog.Entries[f.Requirement.Server])
	if !ok || !versions.Contains(v) {
		f.Problem = fmt.Errorf("the server is locked at version %s, which does not satisfy %s", locked.Resolved.Version,
			diag.Quote(f.Requirement.Version))
		return
	}
	f.Version, f.From, f.Recipe = locked.Resolved.Version, FromLock, locked.Resolved.Recipe
	var with lockedExtras
	if !r.Anew {
		with = extrasOf(f.Recipe, locked.Package)
	}
	if !r.trusted(ctx, f, with) {
		r.distrust(f, with)
	}
}

func (r *Resolver) lookUp(ctx context.Context, f *Found, versions Range) {
	id := f.Requirement.Server
	host := r.Config.hostOf(id)
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
		f.Problem = fmt.Errorf("%w: the catalogue has version %s, but %s is required", ErrUnsatisfied, e.Version,
			diag.Quote(f.Requirement.Version))
		return
	}
	f.Version, f.From, f.Recipe = e.Version, FromCatalogue, RecipeOf(e)
}

// RecipeOf returns the recipe of a catalogue entry.
func RecipeOf(e *catalog.Entry) Recipe {
	return Recipe{
		Kind: pack.Kind(e.Package.Kind), Name: e.Package.Name, Version: e.Package.Version, Digest: e.Package.Digest,
		Args: e.Args, Env: e.Env,
	}
}

// applySettings derives f.Server from the recipe and the user's settings. If f is untrusted, it ignores the settings.
func (r *Resolver) applySettings(f *Found, name string) {
	id := f.Requirement.Server
	var set Settings
	if !f.untrusted {
		set = r.Config.Servers[id]
	}
	work := cmp.Or(set.Work, catalog.Work(r.Home, name))
	server, err := Server(id, f.Recipe, set, work)
	if err != nil {
		f.Problem = err
		return
	}
	f.Server = server
	f.Server.Proposed = f.Requirement.Proposed
	if f.Recipe.Kind == pack.MCPB {
		f.Package = r.bundle(id, f.Recipe)
	}
	if usesWork(f.Recipe, set) {
		f.Work, f.Own = work, set.Work == ""
	}
}

// usesWork reports whether an argument or a variable of a server refers to the work folder.
func usesWork(recipe Recipe, set Settings) bool {
	texts := slices.Concat(recipe.Args, set.Args, slices.Collect(maps.Values(recipe.Env)),
		slices.Collect(maps.Values(set.Env)))
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, "{work}") })
}

var envRef = regexp.MustCompile(`\$env:([A-Za-z_][A-Za-z0-9_]*)`)

// Server applies the user's settings to a recipe and returns the resulting server. It replaces {work} with the path of
// the given work folder.
func Server(id string, recipe Recipe, set Settings, work string) (agent.Server, error) {
	s := agent.Server{
		Alias: id, Transport: agent.Stdio, Version: recipe.Version, Digest: recipe.Digest, Placeholder: recipe.Digest == "",
	}
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
		return s, fmt.Errorf("the server needs a value for %s; add it to [server.%q.env] in config.toml",
			strings.Join(missing, ", "), id)
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
		// Found.Package opens the bundle and finds its command.
		s.Command, s.Args, s.Env = string(pack.MCPB), args, settings
	case pack.Builtin:
		exe, err := os.Executable()
		if err != nil {
			return s, err
		}
		s.Command, s.Args, s.Env = exe, append([]string{"tool-server", recipe.Name}, args...), settings
	case pack.Remote:
		s.Transport, s.Endpoint, s.Headers, s.Placeholder = agent.StreamableHTTP, recipe.Name, settings, false
	default:
		return s, fmt.Errorf("ambit does not support packages of kind %s", diag.Quote(string(recipe.Kind)))
	}
	return s, nil
}
