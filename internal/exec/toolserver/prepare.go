package toolserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// PackageStatus is the result of checking a server's package.
type PackageStatus string

// The states of a package.
const (
	// Verified: the program has the declared digest.
	Verified PackageStatus = "verified"
	// Placeholder: the manifest declares no real digest.
	Placeholder PackageStatus = "placeholder"
	// Unverifiable: the server is remote.
	Unverifiable PackageStatus = "unverifiable"
	// Mismatch: the digest differs from the declared or locked one.
	Mismatch PackageStatus = "mismatch"
	// Absent: the package is unavailable.
	Absent PackageStatus = "absent"
)

// PackageDigest compares the declared digest of a package with the actual one.
type PackageDigest struct {
	Declared string        `json:"declared"`
	Actual   string        `json:"actual"`
	Status   PackageStatus `json:"status"`
}

// plan describes the program to start.
type plan struct {
	argv   []string
	digest PackageDigest
	// show is the folder that the program may read inside ambit's hidden home: its package in the store, or
	// the folder of its file in an installed agent. hide lists folders outside from which the program could
	// load code that was not hashed.
	show string
	hide []string
	// env are variables that the package itself sets.
	env      map[string]string
	warnings []string
	// lacking reports that something is missing on this machine.
	lacking bool
}

// prepare finds the program of a server and checks it against the manifest and the lock. The plan is never
// nil.
func (s *server) prepare(ctx context.Context) (*plan, error) {
	l := &plan{digest: PackageDigest{Declared: s.spec.Digest, Status: Absent}}
	switch {
	case s.uncontained():
		return l, call.Refuse(stage, call.IsolationUnavailable,
			"server %s cannot be contained, and --production requires containment", s.alias)
	case s.remote():
		l.digest.Status = Unverifiable
	case s.spec.Placeholder || s.spec.Digest == "":
		l.digest.Status = Placeholder
	}
	if s.spec.Launch != nil {
		l.digest.Actual, l.digest.Status = s.spec.Digest, Verified
		return l, nil
	}
	if err := s.compareWithLock(l); err != nil || s.remote() {
		return l, err
	}
	if s.spec.Package != nil {
		return l, s.preparePackage(ctx, l)
	}
	ref, err := pack.Identify(s.spec.Server)
	if l.digest.Status == Placeholder {
		l.argv = append([]string{s.spec.Command}, s.spec.Args...)
		l.warnings = []string{"the package is not pinned: the command may fetch another version at each start"}
		if err == nil && ref.Kind == pack.File {
			p, err := pack.OpenLocal(ref, s.options.Folder, "")
			if err != nil {
				return l, s.packageRefusal(l, err)
			}
			l.argv, l.show, l.digest.Actual = p.Argv(ref.Args), s.visibleDir(p), p.Digest
			l.warnings = []string{"the file is not pinned: its content may differ at each start"}
		}
		return l, nil
	}
	if err != nil {
		return l, s.packageRefusal(l, err)
	}
	p, err := s.open(ctx, l, ref)
	if err != nil {
		return l, s.packageRefusal(l, err)
	}
	l.argv, l.show, l.hide = p.Argv(ref.Args), s.visibleDir(p), p.Strays
	l.digest.Actual, l.digest.Status = p.Digest, Verified
	return l, nil
}

// uncontained reports whether the program would see ambit's files although [Options.Contain] forbids that.
// The answer does not change while this process runs.
func (s *server) uncontained() bool {
	return s.options.Contain && !s.remote() && s.spec.Launch == nil && !containable()
}

// preparePackage plans a package that [Spec.Package] provides. It must have all the settings that it
// requires.
func (s *server) preparePackage(ctx context.Context, l *plan) error {
	if err := s.turn.wait(ctx); err != nil {
		return err
	}
	p, err := s.spec.Package(ctx, s.want(), s.progress)
	if err != nil {
		return s.packageRefusal(l, err)
	}
	l.argv, l.show, l.hide, l.env = p.Argv(s.spec.Args), p.Dir, p.Strays, p.Env
	l.digest.Actual, l.digest.Status = p.Digest, Verified
	lacks := p.Lacks(s.spec.Args, func(name string) bool {
		return slices.ContainsFunc(s.spec.Env, func(v agent.Setting) bool { return v.Name == name })
	})
	if len(lacks) == 0 {
		return nil
	}
	l.lacking = true
	r := call.Refuse(stage, call.ServerUnavailable, "server %s needs %s", s.alias, strings.Join(lacks, ", "))
	r.Hint = fmt.Sprintf("set it in config.toml, under [server.%q], in env or args", s.alias)
	return r
}

// compareWithLock refuses a server that the manifest declares differently from the lock.
func (s *server) compareWithLock(l *plan) error {
	if s.options.Lock == nil || s.options.Lock.Agents[s.agent] == nil {
		return nil
	}
	drift := ""
	switch locked := s.locked(); {
	case locked == nil:
		drift = "the lock contains the agent, but not this server"
	case s.remote() && (locked.Package.Kind != pack.Remote || locked.Package.Name != s.spec.Endpoint):
		drift = "the manifest declares another address than the lock"
	case !s.remote() && locked.Package.Digest != s.spec.Digest:
		l.digest.Status = Mismatch
		l.digest.Actual = locked.Package.Digest
		drift = "the manifest declares another package than the lock"
	default:
		return nil
	}
	return call.Refuse(stage, call.ServerDrifted, "server %s: %s", s.alias, drift)
}

// open returns the package from the store and downloads it if it is not stored.
func (s *server) open(ctx context.Context, l *plan, ref pack.Ref) (*pack.Package, error) {
	if ref.Kind == pack.File || ref.Kind == pack.Program {
		p, err := pack.OpenLocal(ref, s.options.Folder, "")
		if err != nil || p.Digest == s.spec.Digest {
			return p, err
		}
		l.digest.Actual = p.Digest
		return pack.OpenLocal(ref, s.options.Folder, s.spec.Digest) // returns the error
	}
	if err := s.turn.wait(ctx); err != nil {
		return nil, err
	}
	// A damaged package is refused and not replaced: someone may have tampered with it.
	store := pack.Store{Dir: s.options.Home.Packages()}
	p, err := store.Open(ref, s.want())
	if errors.Is(err, pack.NotStored) {
		s.turn.pass() // other servers do not wait for a download
		return store.Fetch(ctx, ref, s.want(), s.progress)
	}
	return p, err
}

// visibleDir returns the folder in ambit's home that a server may read: its package, or the folder of its
// file in an installed agent. A file elsewhere in ambit's home stays hidden and does not start, because its
// folder may contain private files.
func (s *server) visibleDir(p *pack.Package) string {
	if p.File == "" {
		return p.Dir
	}
	agents, err := filepath.EvalSymlinks(s.options.Home.Agents())
	if err != nil {
		return ""
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(p.File))
	if err != nil {
		return ""
	}
	if within, err := filepath.Rel(agents, dir); err != nil || within == "." || !filepath.IsLocal(within) {
		return ""
	}
	return dir
}

// want returns the expected package of the server.
func (s *server) want() pack.Want {
	if locked := s.locked(); locked != nil {
		return s.options.Lock.Want(locked.Package)
	}
	if want, ok := s.options.Want[s.alias]; ok {
		return want
	}
	return pack.Want{Digest: s.spec.Digest}
}

// locked returns the server's lock entry, or nil.
func (s *server) locked() *pack.LockedServer {
	if s.options.Lock == nil {
		return nil
	}
	return s.options.Lock.Server(s.agent, s.alias)
}

// packageRefusal converts an error of the package store to a refusal.
func (s *server) packageRefusal(l *plan, err error) error {
	code := call.ServerUnavailable
	switch pack.CodeOf(err) {
	case pack.DigestMismatch, pack.Tampered, pack.VersionConflict, pack.Unsafe:
		code, l.digest.Status = call.ServerDrifted, Mismatch
	}
	l.lacking = pack.Lacking(err)
	r := call.Refuse(stage, code, "server %s: %v", s.alias, err)
	if e, ok := errors.AsType[*pack.Error](err); ok && e.Hint != "" {
		r.Hint, r.Command = e.Hint, e.Command
	}
	return r
}

// environment returns the whole environment of a program: the variables that every program needs, those of
// its package, and those of the manifest with resolved references.
func (s *server) environment(l *plan) ([]string, error) {
	var env []string
	for _, name := range agent.PlainEnv {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	for name, value := range l.env {
		env = append(env, name+"="+value)
	}
	for _, set := range s.spec.Env {
		value, err := s.resolve(set)
		if err != nil {
			return nil, err
		}
		env = append(env, set.Name+"="+value)
	}
	return env, nil
}

// resolve replaces the references in a setting. The value is a secret and appears in no error.
func (s *server) resolve(set agent.Setting) (string, error) {
	var value strings.Builder
	rest := set.Value
	for _, ref := range set.Refs {
		secret, ok := s.options.Lookup(ref)
		if !ok {
			r := call.Refuse(stage, call.CredentialMissing, "server %s needs %s, which is not set", s.alias, ref)
			r.Hint = "set the environment variable " + ref + ", or store it"
			r.Command = diag.Command{Verb: "secret set", Arg: ref}
			return "", r
		}
		s.secrets.keep(ref, secret)
		// Replace from left to right, and never inside a replaced value.
		before, after, _ := strings.Cut(rest, "$env:"+ref)
		value.WriteString(before + secret)
		rest = after
	}
	return value.String() + rest, nil
}

// turn is a server's place in the queue for hashing.
type turn struct {
	before <-chan struct{} // closed when the previous package is hashed; nil for the first
	passed chan struct{}
	once   sync.Once
}

// orderHashing lets packages be hashed one after the other, the largest first. One hash uses all cores, so
// parallel hashing gains nothing. The largest package usually belongs to the slowest server, so the others
// are hashed while it starts.
func orderHashing(servers []*server, size func(*server) int64) {
	sizes := make(map[*server]int64, len(servers))
	for _, s := range servers {
		sizes[s] = size(s)
	}
	row := slices.Clone(servers)
	slices.SortStableFunc(row, func(a, b *server) int { return cmp.Compare(sizes[b], sizes[a]) })
	var before <-chan struct{}
	for _, s := range row {
		s.turn = &turn{before: before, passed: make(chan struct{})}
		before = s.turn.passed
	}
}

// wait returns when the server's package may be hashed.
func (t *turn) wait(ctx context.Context) error {
	if t.before == nil {
		return nil
	}
	select {
	case <-t.before:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pass lets the next server hash its package. Further calls do nothing.
func (t *turn) pass() { t.once.Do(func() { close(t.passed) }) }

// packageSize returns the stored size of a server's package; 0 if it is not stored.
func (s *server) packageSize() int64 {
	if s.remote() || s.spec.Placeholder || s.spec.Digest == "" {
		return 0
	}
	return (&pack.Store{Dir: s.options.Home.Packages()}).Size(s.want())
}
