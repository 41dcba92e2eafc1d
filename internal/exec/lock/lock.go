// Package lock pins an agent to exact packages and tool definitions, and records them in the lock file ambit.lock.
//
// [Locking.Run] takes these steps:
//
//  1. It fetches the package of every server. For each server that the manifest declares, it puts the digest and
//     version into the text of the manifest.
//  2. It shows the local files that differ from their pins, and asks the user to accept the differences.
//  3. It starts the pinned servers and compares their tools with the manifest. With [Locking.WriteTools], it first adds
//     the tools that the manifest lacks.
//  4. It shows the changes since the last lock file, and asks the user to accept the changes.
//  5. It writes the lock file and the manifest.
//
// If the user refuses, or if Run is interrupted before the last step, neither file changes.
package lock

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/internal/supply/registry"
	"github.com/ambit-run/ambit/manifest"
)

// ErrNotRemembered means that the lock file was written, but could not be recorded in the store.
var ErrNotRemembered = errors.New("the lock file was written, but could not be recorded in the store")

// UnprovenError means that at least one server does not match the manifest.
type UnprovenError struct{ Proofs []toolserver.Proof }

func (e *UnprovenError) Error() string { return "a server does not match the manifest" }

// ServerError is the reason why a server's package is unavailable.
type ServerError struct {
	Alias string
	Err   error
}

func (e *ServerError) Error() string { return fmt.Sprintf("server %s: %v", e.Alias, e.Err) }
func (e *ServerError) Unwrap() error { return e.Err }

// UnavailableError lists required servers that were not found.
type UnavailableError struct {
	Servers []string
	Lacking bool // every server is unavailable because a registry or program is missing
}

func (e *UnavailableError) Error() string {
	return "nothing was locked, because these servers are unavailable: " + strings.Join(e.Servers, ", ")
}

// LeftoverError means that a server is in the lock file but not in the manifest.
type LeftoverError struct{ Alias, Path string }

func (e *LeftoverError) Error() string {
	return fmt.Sprintf("the lock file contains the server %s, but %s does not", diag.Quote(e.Alias), e.Path)
}

// Resolved is an agent with the servers that were found for its requirements.
type Resolved interface {
	Agent() *agent.Agent
	Found() []registry.Found
	Fetched(alias, digest string)
	Servers(o toolserver.Options, client *egress.Client, lazy bool) []toolserver.Spec
	Trust(f *registry.Found, p pack.LockedPackage) error
}

// Locking locks one manifest.
type Locking struct {
	Manifest *manifest.Manifest
	Resolved Resolved           // the manifest's agent with its servers
	Servers  toolserver.Options // Servers.Lock is the existing lock file; may be nil
	Update   bool               // update each package to its newest version
	Scripts  []string           // the packages that may run their install scripts
	// WriteTools adds the servers' undeclared tools to the manifest.
	WriteTools bool
	// Allow also allows the side-effect classes of added tools, except shell.
	Allow bool
	// Partial locks the servers that match the manifest. The lock file's entries for the other servers stay
	// unchanged. Locking fails only if no server matches.
	Partial bool
	// If a server lacks a credential, StandIn starts the server with a made-up credential, in a sandbox without network,
	// to read its list of tools.
	StandIn bool
	// Confine sets o.Confine to the access that the agent's tools need. If the callback Confine is nil, the options
	// stay unchanged.
	Confine func(ctx context.Context, o *toolserver.Options, a *agent.Agent) error
	// Agree asks the user to accept differences. If Agree returns an error, Run stops and returns the error.
	Agree func(ctx context.Context, asked Asked, differences []pack.Difference) error
	// OpenStore opens the store in which the lock file is recorded.
	OpenStore func(context.Context) (*store.Store, error)
	// Remember marks the lock file in the store as the agent's newest lock file. The path is the path of the manifest.
	Remember func(ctx context.Context, b *store.Store, path string, a *agent.Agent, lock *pack.Lock) error

	packages map[string]*pack.Package // the fetched packages, by server alias
	text     []byte                   // the text of the manifest with the new pins
	pinned   map[string]bool          // the server aliases that have a new pin in the text
	repinned map[string]bool          // the aliases of servers whose changed local files the user has already seen
	accepted []pack.Difference        // the differences from the existing lock file
	failed   map[string]error         // the errors of packages that could not be fetched, by server alias
	added    map[string][]registry.Proposal
	lacks    map[string]*call.Refusal // the missing credentials of servers that were proven without them, by alias
	// classified contains the tool definitions from which ambit derived the classes of the added tools, by server alias.
	classified map[string]map[string][]byte
}

// Asked is the reason for asking the user to accept differences.
type Asked int

const (
	// Repinned means that local files differ from the digests in the manifest or the lock file.
	Repinned Asked = iota
	// Changed means that servers differ from the lock file.
	Changed
)

// Server is one locked server.
type Server struct {
	Agent         string   `json:"agent"`
	Alias         string   `json:"alias"`
	PackageDigest string   `json:"package_digest"`
	Version       string   `json:"version"`
	Tools         []string `json:"tools"`
	// Rewritten reports whether a new digest or version was written into the manifest.
	Rewritten bool `json:"rewritten"`
	// Uncovered describes the code that the lock file does not cover.
	Uncovered string `json:"uncovered,omitempty"`
	// Kind is the kind of package. Kind is set only for a server that was found for a requirement.
	Kind pack.Kind `json:"kind,omitempty"`
	// Added lists the tools that were added to the manifest.
	Added []registry.Proposal `json:"added,omitempty"`
	// Lacks names the credential that the server needs for calls. The server was locked without the credential.
	Lacks *call.Refusal `json:"lacks,omitempty"`
	// Warnings are messages for the user, such as about hidden text in a description.
	Warnings []string `json:"warnings,omitempty"`
}

// Result describes the lock file that was written.
type Result struct {
	File    string
	Changed bool // the content of the file changed
	Servers []Server
	// Refused contains the servers that were left out. It is empty unless Locking.Partial is set.
	Refused []toolserver.Proof
}

// Run locks the manifest. If Run returns both a result and an error, the lock file was written but not recorded in
// the store.
func (l *Locking) Run(ctx context.Context) (*Result, error) {
	if err := l.checkAvailable(); err != nil {
		return nil, err
	}
	if err := l.pin(ctx); err != nil {
		return nil, err
	}
	if err := l.agree(ctx, Repinned, l.changedLocalFiles()); err != nil {
		return nil, err
	}
	a, proofs, err := l.prove(ctx)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	proofs = slices.Concat(l.sameAsClassified(proofs), l.unfetched())
	refused := slices.DeleteFunc(slices.Clone(proofs), func(p toolserver.Proof) bool { return p.OK })
	if len(refused) > 0 && (!l.Partial || len(refused) == len(proofs)) {
		return nil, &UnprovenError{proofs}
	}
	entry, locked := &pack.LockedAgent{Servers: map[string]*pack.LockedServer{}}, []Server{}
	for _, p := range proofs {
		if !p.OK {
			if was := l.previousEntry(p.Alias); was != nil {
				entry.Servers[p.Alias] = was
			} else {
				entry.Quarantined = append(entry.Quarantined, p.Alias)
			}
			continue
		}
		one, report, err := l.entry(a.Server(p.Alias), p)
		if err != nil {
			return nil, err
		}
		entry.Servers[p.Alias] = one
		locked = append(locked, report)
	}
	slices.Sort(entry.Quarantined)
	r, err := l.write(ctx, entry, locked)
	if err != nil {
		return nil, err
	}
	r.Refused = refused
	return r, l.trust(entry)
}

// Check starts every server and compares the servers with the existing lock file.
func (l *Locking) Check(ctx context.Context) ([]toolserver.Proof, error) {
	if err := l.checkAvailable(); err != nil {
		return nil, err
	}
	a := l.Resolved.Agent()
	for alias := range l.Servers.Lock.Agents[a.ID].Servers {
		if a.Server(alias) == nil && l.found(alias) == nil {
			return nil, &LeftoverError{alias, l.Manifest.Path}
		}
	}
	proofs, err := l.proofs(ctx, a, l.Servers, nil)
	return proofs, cmp.Or(err, ctx.Err())
}

// checkAvailable returns an error if a required server was not found. Missing optional servers are ignored.
func (l *Locking) checkAvailable() error {
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

// found returns the server that was found for a requirement. It returns nil for a server that the manifest declares.
func (l *Locking) found(alias string) *registry.Found {
	for _, f := range l.Resolved.Found() {
		if f.Requirement.Server == alias {
			return &f
		}
	}
	return nil
}

// trust marks the servers that were found for requirements as locked on this machine (see
// [registry.Resolver.Trust]).
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

// pin fetches every package. For each server that the manifest declares, pin writes the digest and version into the
// text of the manifest.
func (l *Locking) pin(ctx context.Context) error {
	l.text, l.pinned, l.packages = []byte(l.Manifest.Source.Text), map[string]bool{}, map[string]*pack.Package{}
	l.failed = map[string]error{}
	servers := l.Resolved.Agent().Servers
	fetched, failed := l.fetchAll(ctx, servers)
	for i := range servers {
		s, p, err := &servers[i], fetched[i], failed[i]
		if err != nil && l.Partial && ctx.Err() == nil {
			l.failed[s.Alias] = err
			continue
		}
		if err != nil {
			return &ServerError{s.Alias, err}
		}
		if p == nil {
			continue
		}
		l.packages[s.Alias] = p
		if f := l.found(s.Alias); f != nil {
			if f.Package == nil { // not a bundle; the digest of a bundle is already known
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
	for _, name := range l.Scripts {
		if len(l.failed) == 0 && !slices.ContainsFunc(fetched, func(p *pack.Package) bool {
			return p != nil && slices.Contains(p.Scripts, name)
		}) {
			return pack.ErrUnknownScripts(name)
		}
	}
	return nil
}

// maxFetches is the maximum number of packages that are fetched at the same time.
const maxFetches = 4

// fetchAll fetches the packages of all servers. For remote and built-in servers, the package is nil.
func (l *Locking) fetchAll(ctx context.Context, servers []agent.Server) ([]*pack.Package, []error) {
	packages, failed := make([]*pack.Package, len(servers)), make([]error, len(servers))
	var wg sync.WaitGroup
	turns := make(chan struct{}, maxFetches)
	for i := range servers {
		s := &servers[i]
		f := l.found(s.Alias)
		if s.Transport == agent.StreamableHTTP || f != nil && f.Recipe.Kind == pack.Builtin {
			continue
		}
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			packages[i], failed[i] = l.fetch(ctx, s, f)
		})
	}
	wg.Wait()
	return packages, failed
}

// fetch fetches the package of a server. The last argument is nil for a server that the manifest declares.
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
		return pack.OpenLocal(ref, l.Manifest.Path)
	}
	store, want := pack.Store{Dir: l.Servers.Home.Packages()}, pack.Want{Scripts: l.Scripts}
	if f != nil {
		want.Digest = f.Recipe.Digest // use the digest of the version that was just resolved
	} else if l.Update {
		ref.Version = ""
	} else if !s.Placeholder {
		want.Digest = s.Digest
		if locked := l.previousEntry(s.Alias); locked != nil && slices.Equal(locked.Package.Scripts, want.Scripts) {
			// If the package store contains the locked package, use it without asking the registry.
			if p, err := store.Open(ref, l.Servers.Lock.Want(locked.Package)); err == nil && p.Digest == s.Digest {
				return p, nil
			}
		}
	}
	if l.Partial && s.Placeholder && len(want.Scripts) == 0 {
		// FetchOnce reuses a package that an earlier import or the command verify has downloaded.
		return store.FetchOnce(ctx, ref, progress)
	}
	return store.Fetch(ctx, ref, want, progress)
}

// previousEntry returns the entry of a server in the existing lock file, or nil.
func (l *Locking) previousEntry(alias string) *pack.LockedServer {
	return l.Servers.Lock.Server(l.Manifest.Agent().ID, alias)
}

// fetchedOptions returns server options that accept only the packages that were just fetched.
func (l *Locking) fetchedOptions() toolserver.Options {
	o := l.Servers
	o.Lock, o.Want = nil, map[string]pack.Want{}
	for alias, p := range l.packages {
		o.Want[alias] = p.Want()
	}
	return o
}

// changedLocalFiles returns the servers whose local files differ from the digests in the manifest or the lock file.
// No server starts before the user accepts these differences. Downloaded packages are skipped, because their digests
// were already compared.
func (l *Locking) changedLocalFiles() []pack.Difference {
	var out []pack.Difference
	l.repinned = map[string]bool{}
	a := l.Manifest.Agent()
	for i := range a.Servers {
		s := &a.Servers[i]
		p := l.packages[s.Alias]
		if p == nil || p.File == "" {
			continue
		}
		pin, folder := "", ""
		if locked := l.previousEntry(s.Alias); locked != nil {
			pin, folder = locked.Package.Digest, locked.Package.Folder
		}
		if !s.Placeholder && s.Digest != "" && (pin == "" || s.Digest != p.Digest) {
			pin = s.Digest
		}
		if d, changed := pack.Repinned(s.Alias, pin, folder, p); changed {
			l.repinned[s.Alias] = true
			out = append(out, d)
		}
	}
	return out
}

// entry returns the lock file entry and the report for a server that matches the manifest.
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
		if old := l.previousEntry(p.Alias); old != nil {
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
		Tools: slices.Sorted(maps.Keys(p.Tools)), Rewritten: l.pinned[p.Alias], Uncovered: p.Package.Uncovered,
		Added: l.added[p.Alias], Lacks: l.lacks[p.Alias], Warnings: p.Warnings,
	}
	if f != nil {
		report.PackageDigest, report.Version, report.Kind = locked.Package.Digest, f.Version, f.Recipe.Kind
	}
	return locked, report, nil
}

// write asks the user to accept the changes since the last lock file. The method then writes the lock file and, if
// there are new pins, the manifest. The store is opened before a file is written. If the store is unavailable,
// neither file changes.
func (l *Locking) write(ctx context.Context, entry *pack.LockedAgent, locked []Server) (*Result, error) {
	a := l.Manifest.Agent()
	if before := l.Servers.Lock; before != nil && before.Agents[a.ID] != nil {
		l.accepted = pack.Compare(before.Agents[a.ID], entry)
		if err := l.agree(ctx, Changed, l.unseenChanges()); err != nil {
			return nil, err
		}
	}
	b, err := l.OpenStore(ctx)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(filepath.Dir(l.Manifest.Path), pack.LockName)
	lock, changed, err := l.replace(file, entry)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	if err := errors.Join(l.Remember(ctx, b, l.Manifest.Path, a, lock), b.Close()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotRemembered, err)
	}
	return &Result{File: file, Changed: changed, Servers: locked}, nil
}

func (l *Locking) agree(ctx context.Context, asked Asked, differences []pack.Difference) error {
	if len(differences) == 0 {
		return nil
	}
	return l.Agree(ctx, asked, differences)
}

// unseenChanges returns the changes that the user has not seen yet. The user has already seen the digests that
// changedLocalFiles returned.
func (l *Locking) unseenChanges() []pack.Difference {
	var out []pack.Difference
	for _, d := range l.accepted {
		if d.What == pack.Changed && d.Tool == "" && l.repinned[d.Server] {
			d.Changes = slices.DeleteFunc(slices.Clone(d.Changes), func(c pack.Change) bool {
				return c.Field == "digest" || c.Field == "folder"
			})
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
		if err := l.checkUnchanged(); err != nil {
			return err
		}
		id := l.Manifest.Agent().ID
		if was := lock.Agents[id]; was != nil && !reflect.DeepEqual(pack.Compare(was, entry), l.accepted) {
			return errors.New("nothing was written, because another process locked the same agent in the meantime; " +
				"run the command again")
		}
		lock.Agents[id] = entry
		for _, p := range l.packages {
			lock.Keep(p)
		}
		// Before writing the manifest, check that the lock file can be encoded.
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

// checkUnchanged returns an error if the manifest was edited after it was read. Without this check, Run would
// overwrite the edit, or lock servers that are no longer in the manifest.
func (l *Locking) checkUnchanged() error {
	now, err := manifest.Load(l.Manifest.Path, manifest.Options{Dialect: l.Manifest.Dialect})
	if now == nil {
		return fmt.Errorf("nothing was written, because the manifest could not be reread: %w", err)
	}
	if now.Source.Text != l.Manifest.Source.Text {
		return fmt.Errorf("nothing was written, because %s was edited in the meantime; run the command again",
			l.Manifest.Path)
	}
	return nil
}

// rewrite replaces a file's content atomically. The file keeps its mode. If the path is a symbolic link, the link's
// target is replaced.
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
