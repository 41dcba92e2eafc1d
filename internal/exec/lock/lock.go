// Package lock pins an agent to what it runs.
//
// Run fetches the package of every server, writes the digest and version of a declared
// server into the text of the manifest, shows local files that differ from their pins, starts the
// pinned servers, compares their tools with the manifest, shows what changed since
// the last lock, and only then writes ambit.lock and the manifest. A run that is
// refused or interrupted before that leaves both files as they were.
package lock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/importer"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/internal/supply/registry"
	"github.com/ambit-run/ambit/manifest"
)

// ErrUnknownVersion reports a version that an import invented because it knew none.
var ErrUnknownVersion = errors.New("its version is a placeholder for one that is not known")

// ErrNotRemembered reports that the lock was written but the store does not know of it.
var ErrNotRemembered = errors.New("the lock is written, but the store could not record it")

// UnprovenError reports servers that do not match the manifest.
type UnprovenError struct{ Proofs []toolserver.Proof }

func (e *UnprovenError) Error() string { return "a server does not match the manifest" }

// ServerError reports why the package of a server is unavailable.
type ServerError struct {
	Alias string
	Err   error
}

func (e *ServerError) Error() string { return fmt.Sprintf("server %s: %v", e.Alias, e.Err) }
func (e *ServerError) Unwrap() error { return e.Err }

// UnavailableError reports required servers that were not found.
type UnavailableError struct {
	Servers []string
	Lacking bool // a registry or a program was missing, and nothing else was wrong
}

func (e *UnavailableError) Error() string {
	return "nothing was locked; unavailable: " + strings.Join(e.Servers, ", ")
}

// LeftoverError reports a server that is in the lock and not in the manifest.
type LeftoverError struct{ Alias, Path string }

func (e *LeftoverError) Error() string {
	return fmt.Sprintf("the lock has a server %s, and %s has none", diag.Quote(e.Alias), e.Path)
}

// Resolved is an agent whose requirements were turned into servers.
type Resolved interface {
	Agent() *agent.Agent
	Found() []registry.Found
	Fetched(alias, digest string)
	Servers(o toolserver.Options, client *egress.Client, lazy bool) []toolserver.Spec
	Trust(f *registry.Found, p pack.LockedPackage) error
}

// Locking is one manifest on its way into a lock.
type Locking struct {
	Manifest *manifest.Manifest
	Resolved Resolved           // the manifest's agent with its servers
	Servers  toolserver.Options // its Lock is the lock that is there
	Update   bool               // move each package to its newest version
	Scripts  []string           // the packages whose install scripts may run
	// Agree shows differences; an error refuses them and ends the run.
	Agree func(ctx context.Context, asked Asked, differences []pack.Difference) error
	// Books opens the store that records the lock.
	Books func(context.Context) (*store.Store, error)
	// Remember makes a lock the newest one of the agent at path.
	Remember func(ctx context.Context, b *store.Store, path string, a *agent.Agent, lock *pack.Lock) error

	packages map[string]*pack.Package // by the alias of their server
	text     []byte                   // the manifest with its pins
	pinned   map[string]bool          // the servers whose pins text changes
	repinned map[string]bool          // the servers whose files were asked about
	accepted []pack.Difference        // the changes since the lock that is there
}

// Asked is the reason why differences are shown.
type Asked int

const (
	// Repinned files are not those that the manifest and the lock pin.
	Repinned Asked = iota
	// Changed servers are not as they were locked.
	Changed
)

// Server is one locked server.
type Server struct {
	Agent         string   `json:"agent"`
	Alias         string   `json:"alias"`
	PackageDigest string   `json:"package_digest"`
	Version       string   `json:"version"`
	Tools         []string `json:"tools"`
	// Rewritten means that its digest or version was written into the manifest.
	Rewritten bool `json:"rewritten"`
	// Kind is that of the package of a server that was found by its id.
	Kind pack.Kind `json:"kind,omitempty"`
}

// Result is a lock that was written.
type Result struct {
	File    string
	Changed bool // the file is not as it was
	Servers []Server
}

// Run locks the manifest. A result with an error means that the lock is written, but not
// recorded as one that this machine made.
func (l *Locking) Run(ctx context.Context) (*Result, error) {
	if err := l.available(); err != nil {
		return nil, err
	}
	if err := l.pin(ctx); err != nil {
		return nil, err
	}
	if err := l.agree(ctx, Repinned, l.swapped()); err != nil {
		return nil, err
	}
	pinned, err := manifest.Parse(l.Manifest.Path, l.text, manifest.Options{Dialect: l.Manifest.Dialect})
	if err != nil {
		return nil, fmt.Errorf("the pinned manifest would be invalid: %w", err)
	}
	a := pinned.Agent()
	if len(a.Requirements) > 0 {
		a = l.Resolved.Agent()
	}
	servers := l.start(ctx, a, l.fetched())
	defer servers.Close()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !servers.Proven() {
		return nil, &UnprovenError{servers.Proofs()}
	}
	entry, locked := &pack.LockedAgent{Servers: map[string]*pack.LockedServer{}}, []Server{}
	for _, p := range servers.Proofs() {
		one, report, err := l.entry(a.Server(p.Alias), p)
		if err != nil {
			return nil, err
		}
		entry.Servers[p.Alias] = one
		locked = append(locked, report)
	}
	r, err := l.write(ctx, entry, locked)
	if err != nil {
		return nil, err
	}
	return r, l.trust(entry)
}

// Check starts every server and compares it with the lock that is there.
func (l *Locking) Check(ctx context.Context) ([]toolserver.Proof, error) {
	if err := l.available(); err != nil {
		return nil, err
	}
	a := l.Resolved.Agent()
	for alias := range l.Servers.Lock.Agents[a.ID].Servers {
		if a.Server(alias) == nil && l.found(alias) == nil {
			return nil, &LeftoverError{alias, l.Manifest.Path}
		}
	}
	servers := l.start(ctx, a, l.Servers)
	defer servers.Close()
	return servers.Proofs(), ctx.Err()
}

// available refuses if a required server was not found. An optional one may be missing.
func (l *Locking) available() error {
	e := &UnavailableError{Lacking: true}
	for _, f := range l.Resolved.Found() {
		if f.Problem != nil && !f.Requirement.Optional {
			e.Servers = append(e.Servers, f.Requirement.Server)
			e.Lacking = e.Lacking && registry.Lacking(f.Problem)
		}
	}
	if len(e.Servers) > 0 {
		return e
	}
	return nil
}

// found returns the server of a requirement; nil for a server that the manifest declares.
func (l *Locking) found(alias string) *registry.Found {
	for _, f := range l.Resolved.Found() {
		if f.Requirement.Server == alias {
			return &f
		}
	}
	return nil
}

// start starts the servers that were found.
func (l *Locking) start(ctx context.Context, a *agent.Agent, o toolserver.Options) *toolserver.Manager {
	o.Servers = l.Resolved.Servers(o, egress.New(egress.Switches{}), false)
	o.Servers = slices.DeleteFunc(o.Servers, func(s toolserver.Spec) bool { return s.Problem != nil })
	return toolserver.Start(ctx, a, o)
}

// trust records that this machine made the lock's choice of dependencies.
func (l *Locking) trust(entry *pack.LockedAgent) error {
	var err error
	for _, f := range l.Resolved.Found() {
		if s := entry.Servers[f.Requirement.Server]; s != nil {
			err = errors.Join(err, l.Resolved.Trust(&f, s.Package))
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotRemembered, err)
	}
	return nil
}

// pin fetches every package. It writes the digest and version of a declared server into
// the text.
func (l *Locking) pin(ctx context.Context) error {
	l.text, l.pinned, l.packages = []byte(l.Manifest.Source.Text), map[string]bool{}, map[string]*pack.Package{}
	servers := l.Resolved.Agent().Servers
	for i := range servers {
		s := &servers[i]
		f := l.found(s.Alias)
		if s.Transport == agent.StreamableHTTP || f != nil && f.Recipe.Kind == pack.Builtin {
			continue
		}
		p, err := l.fetch(ctx, s, f)
		if errors.Is(err, pack.NotFound) && s.Placeholder && s.Version == importer.UnknownVersion {
			return fmt.Errorf("server %s: version %s: %w: %w", s.Alias, s.Version, ErrUnknownVersion, err)
		}
		if err != nil {
			return &ServerError{s.Alias, err}
		}
		l.packages[s.Alias] = p
		if f != nil {
			if f.Package == nil { // the digest of a bundle is known already
				l.Resolved.Fetched(s.Alias, p.Digest)
			}
			continue
		}
		text, err := pack.SetDigests(l.text, []pack.Pin{{Alias: s.Alias, Version: p.Version, Digest: p.Digest}})
		if err != nil {
			return err
		}
		l.pinned[s.Alias] = !bytes.Equal(text, l.text)
		l.text = text
	}
	return nil
}

// fetch fetches the package of a server; f is nil if the manifest declares the server.
func (l *Locking) fetch(ctx context.Context, s *agent.Server, f *registry.Found) (*pack.Package, error) {
	progress := func(step string) { l.Servers.Progress(s.Alias, step) }
	if f != nil && f.Package != nil {
		return f.Package(ctx, pack.Want{Digest: f.Recipe.Digest, Scripts: l.Scripts}, progress)
	}
	ref, err := pack.Identify(*s)
	if err != nil {
		return nil, err
	}
	if ref.Kind == pack.File || ref.Kind == pack.Program {
		return pack.OpenLocal(ref, l.Servers.Folder, "")
	}
	store, want := pack.Store{Dir: l.Servers.Home.Packages()}, pack.Want{Scripts: l.Scripts}
	if f != nil {
		want.Digest = f.Recipe.Digest // of the version that was just chosen
	} else if l.Update {
		ref.Version = ""
	} else if !s.Placeholder {
		want.Digest = s.Digest
		if locked := l.before(s.Alias); locked != nil && slices.Equal(locked.Package.Scripts, want.Scripts) {
			// A package that is locked and present is not resolved again.
			if p, err := store.Open(ref, l.Servers.Lock.Want(locked.Package)); err == nil && p.Digest == s.Digest {
				return p, nil
			}
		}
	}
	return store.Fetch(ctx, ref, want, progress)
}

// before returns what the lock that is there has for a server.
func (l *Locking) before(alias string) *pack.LockedServer {
	return l.Servers.Lock.Server(l.Manifest.Agent().ID, alias)
}

// fetched returns the options to prove exactly the packages that were fetched, and
// no other build of them.
func (l *Locking) fetched() toolserver.Options {
	o := l.Servers
	o.Lock, o.Want = nil, map[string]pack.Want{}
	for alias, p := range l.packages {
		o.Want[alias] = p.Want()
	}
	return o
}

// swapped returns the servers whose files are not those that the manifest and the
// lock pin; none of them is started before a person agrees. A fetched package has
// been compared with its digest already.
func (l *Locking) swapped() []pack.Difference {
	var out []pack.Difference
	l.repinned = map[string]bool{}
	a := l.Manifest.Agent()
	for i := range a.Servers {
		s := &a.Servers[i]
		p := l.packages[s.Alias]
		if p == nil || p.File == "" {
			continue
		}
		var pins []string
		if !s.Placeholder {
			pins = append(pins, s.Digest)
		}
		if locked := l.before(s.Alias); locked != nil {
			pins = append(pins, locked.Package.Digest)
		}
		if i := slices.IndexFunc(pins, func(pin string) bool { return pin != "" && pin != p.Digest }); i >= 0 {
			l.repinned[s.Alias] = true
			out = append(out, pack.Repinned(s.Alias, pins[i], p.Digest))
		}
	}
	return out
}

// entry returns what the lock holds of a proven server, and its report.
func (l *Locking) entry(s *agent.Server, p toolserver.Proof) (*pack.LockedServer, Server, error) {
	locked := &pack.LockedServer{
		Package:  pack.LockedPackage{Kind: pack.Remote, Name: s.Endpoint, Version: s.Version},
		Protocol: p.Protocol, Tools: map[string]pack.LockedTool{},
	}
	f := l.found(p.Alias)
	if f != nil {
		locked.Resolved = &pack.Resolved{Version: f.Version, Recipe: f.Recipe}
		locked.Package = pack.LockedPackage{Kind: f.Recipe.Kind, Name: f.Recipe.Name, Version: f.Recipe.Version}
	}
	if fetched := l.packages[p.Alias]; fetched != nil {
		var was *pack.LockedPackage
		if old := l.before(p.Alias); old != nil {
			was = &old.Package
		}
		locked.Package = fetched.Locked(was)
	}
	for name, raw := range p.Tools {
		tool, err := pack.LockTool(raw)
		if err != nil {
			return nil, Server{}, fmt.Errorf("server %s, tool %s: %w", p.Alias, diag.Quote(name), err)
		}
		locked.Tools[name] = tool
	}
	report := Server{
		Agent: l.Manifest.Agent().ID, Alias: p.Alias, PackageDigest: p.Package.Actual, Version: s.Version,
		Tools: diag.Sorted(slices.Collect(maps.Keys(p.Tools))), Rewritten: l.pinned[p.Alias],
	}
	if f != nil {
		report.PackageDigest, report.Version, report.Kind = locked.Package.Digest, f.Version, f.Recipe.Kind
	}
	return locked, report, nil
}

// write asks about the changes since the last lock, and writes the lock and, where
// it was pinned, the manifest. It opens the store first, so that a run that is
// interrupted or has no store leaves both files as they were.
func (l *Locking) write(ctx context.Context, entry *pack.LockedAgent, locked []Server) (*Result, error) {
	a := l.Manifest.Agent()
	if before := l.Servers.Lock; before != nil && before.Agents[a.ID] != nil {
		l.accepted = pack.Compare(before.Agents[a.ID], entry)
		if err := l.agree(ctx, Changed, l.unasked()); err != nil {
			return nil, err
		}
	}
	b, err := l.Books(ctx)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(l.Servers.Folder, pack.LockName)
	lock, changed, err := l.replace(file, entry)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	if err := errors.Join(l.Remember(ctx, b, l.Manifest.Path, a, lock), b.Close()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotRemembered, err)
	}
	return &Result{file, changed, locked}, nil
}

func (l *Locking) agree(ctx context.Context, asked Asked, differences []pack.Difference) error {
	if len(differences) == 0 {
		return nil
	}
	return l.Agree(ctx, asked, differences)
}

// unasked returns the accepted changes without the digests that swapped returned.
func (l *Locking) unasked() []pack.Difference {
	var out []pack.Difference
	for _, d := range l.accepted {
		if d.What == pack.Changed && d.Tool == "" && l.repinned[d.Server] {
			d.Changes = slices.DeleteFunc(slices.Clone(d.Changes), func(c pack.Change) bool { return c.Field == "digest" })
			if len(d.Changes) == 0 {
				continue
			}
		}
		out = append(out, d)
	}
	return out
}

func (l *Locking) replace(file string, entry *pack.LockedAgent) (lock *pack.Lock, changed bool, err error) {
	changed, err = pack.UpdateLock(file, func(lock *pack.Lock) error {
		if err := l.unchanged(); err != nil {
			return err
		}
		id := l.Manifest.Agent().ID
		if was := lock.Agents[id]; was != nil && !reflect.DeepEqual(pack.Compare(was, entry), l.accepted) {
			return errors.New("another process has locked the agent meanwhile, so nothing was written; run it again")
		}
		lock.Agents[id] = entry
		for _, p := range l.packages {
			lock.Keep(p)
		}
		// The manifest is not pinned to a lock that cannot be written.
		if _, err := lock.Encode(); err != nil {
			return err
		}
		if l.text != nil && string(l.text) != l.Manifest.Source.Text {
			if err := rewrite(l.Manifest.Path, l.text); err != nil {
				return fmt.Errorf("%s cannot be written: %w", l.Manifest.Path, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	lock, err = pack.ReadLock(file)
	return lock, changed, err
}

// unchanged refuses to overwrite a manifest that was edited since it was read, and
// to lock anything that is not in it.
func (l *Locking) unchanged() error {
	now, err := manifest.Load(l.Manifest.Path, manifest.Options{Dialect: l.Manifest.Dialect})
	if now == nil {
		return fmt.Errorf("nothing was written: %w", err)
	}
	if now.Source.Text != l.Manifest.Source.Text {
		return fmt.Errorf("%s was changed meanwhile, so nothing was written; run it again", l.Manifest.Path)
	}
	return nil
}

// rewrite replaces a file's content in one step. The file keeps its mode, and a
// link to it stays a link.
func rewrite(path string, content []byte) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return home.Replace(path, info.Mode().Perm(), content)
}
