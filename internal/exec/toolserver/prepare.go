package toolserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// PackageStatus says what is known of the package behind a server.
type PackageStatus string

// The states of a package.
const (
	// Verified: what runs has the declared digest.
	Verified PackageStatus = "verified"
	// Placeholder: the manifest declares no real digest.
	Placeholder PackageStatus = "placeholder"
	// Unverifiable: it runs elsewhere.
	Unverifiable PackageStatus = "unverifiable"
	// Mismatch: it has another digest than declared, or than locked.
	Mismatch PackageStatus = "mismatch"
	// Absent: it could not be had, so nothing is known.
	Absent PackageStatus = "absent"
)

// PackageDigest compares the declared digest of a package with the real one.
type PackageDigest struct {
	Declared string        `json:"declared"`
	Actual   string        `json:"actual"`
	Status   PackageStatus `json:"status"`
}

// plan is what there is to start.
type plan struct {
	argv   []string
	digest PackageDigest
	// show is the folder of the package in the store, or that of the file in an
	// installed agent, which the program may read although the rest of ambit's
	// home is hidden from it. hide are folders outside from which it could load
	// code that nobody has hashed.
	show string
	hide []string
	// env are variables that the package itself sets.
	env map[string]string
	// warnings are for whoever starts it.
	warnings []string
	// lacking says that this machine lacks something that is needed.
	lacking bool
}

// prepare finds out what a server runs, and makes sure that it is what the
// manifest declares and the lock holds. The plan is never nil.
func (s *server) prepare(ctx context.Context) (*plan, error) {
	l := &plan{digest: PackageDigest{Declared: s.spec.Digest, Status: Absent}}
	switch {
	case s.uncontained():
		return l, call.Refuse(stage, call.IsolationUnavailable,
			"server %s is not contained, and --production requires that", s.alias)
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
		return l, s.given(ctx, l)
	}
	ref, err := pack.Identify(s.spec.Server)
	if l.digest.Status == Placeholder {
		l.argv = append([]string{s.spec.Command}, s.spec.Args...)
		l.warnings = []string{"its package is not pinned: what runs is whatever the command fetches today"}
		if err == nil && ref.Kind == pack.File {
			p, err := pack.OpenLocal(ref, s.options.Folder, "")
			if err != nil {
				return l, s.unfit(l, err)
			}
			l.argv, l.show, l.digest.Actual = p.Argv(ref.Args), s.shown(p), p.Digest
			l.warnings = []string{"its file is not pinned: what runs is whatever stands in it today"}
		}
		return l, nil
	}
	if err != nil {
		return l, s.unfit(l, err)
	}
	p, err := s.open(ctx, l, ref)
	if err != nil {
		return l, s.unfit(l, err)
	}
	l.argv, l.show, l.hide = p.Argv(ref.Args), s.shown(p), p.Strays
	l.digest.Actual, l.digest.Status = p.Digest, Verified
	return l, nil
}

// uncontained reports whether the server's program would see what ambit keeps, where
// that is not allowed. The answer is the same for as long as this process runs.
func (s *server) uncontained() bool {
	return s.options.Contain && !s.remote() && s.spec.Launch == nil && !containable()
}

// given plans a package that somebody else gets. It runs only with everything that
// it says it needs.
func (s *server) given(ctx context.Context, l *plan) error {
	if err := s.turn.wait(ctx); err != nil {
		return err
	}
	p, err := s.spec.Package(ctx, s.want(), s.progress)
	if err != nil {
		return s.unfit(l, err)
	}
	l.argv, l.show, l.hide, l.env = p.Argv(s.spec.Args), p.Dir, p.Strays, p.Env
	l.digest.Actual, l.digest.Status = p.Digest, Verified
	set := func(name string) bool {
		return slices.ContainsFunc(s.spec.Env, func(v agent.Setting) bool { return v.Name == name })
	}
	if lacks := p.Lacks(s.spec.Args, set); len(lacks) > 0 {
		l.lacking = true
		r := call.Refuse(stage, call.ServerUnavailable, "server %s needs %s", s.alias, strings.Join(lacks, ", "))
		r.Hint = fmt.Sprintf("set it in config.toml, under [server.%q], in env or args", s.alias)
		return r
	}
	return nil
}

// compareWithLock refuses a server that is declared otherwise than it was
// locked.
func (s *server) compareWithLock(l *plan) error {
	if s.options.Lock == nil || s.options.Lock.Agents[s.agent] == nil {
		return nil
	}
	drift := ""
	switch locked := s.locked(); {
	case locked == nil:
		drift = "it is not in the lock, and the agent is"
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

// open gets the package from the store, fetching it if it is not there.
func (s *server) open(ctx context.Context, l *plan, ref pack.Ref) (*pack.Package, error) {
	if ref.Kind == pack.File || ref.Kind == pack.Program {
		p, err := pack.OpenLocal(ref, s.options.Folder, "")
		if err != nil || p.Digest == s.spec.Digest {
			return p, err
		}
		l.digest.Actual = p.Digest
		return pack.OpenLocal(ref, s.options.Folder, s.spec.Digest) // says what is wrong
	}
	if err := s.turn.wait(ctx); err != nil {
		return nil, err
	}
	// What is damaged is refused, not quietly replaced: somebody has been there.
	store := pack.Store{Dir: s.options.Home.Packages()}
	p, err := store.Open(ref, s.want())
	if errors.Is(err, pack.NotStored) {
		s.turn.pass() // nobody waits for a download
		return store.Fetch(ctx, ref, s.want(), s.progress)
	}
	return p, err
}

// shown is the folder within ambit's home that a server may see: that of its
// package, or the one that holds its file, if that is part of an installed
// agent. A file anywhere else in there stays hidden and does not start: its
// folder would show what the server must not see.
func (s *server) shown(p *pack.Package) string {
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

// want is what the server's package must be.
func (s *server) want() pack.Want {
	if locked := s.locked(); locked != nil {
		return s.options.Lock.Want(locked.Package)
	}
	if want, ok := s.options.Want[s.alias]; ok {
		return want
	}
	return pack.Want{Digest: s.spec.Digest}
}

// locked is what the lock holds of this server, or nil.
func (s *server) locked() *pack.LockedServer {
	if s.options.Lock == nil {
		return nil
	}
	return s.options.Lock.Server(s.agent, s.alias)
}

// unfit turns an error of the package store into a refusal.
func (s *server) unfit(l *plan, err error) error {
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

// lacking reports whether a server could not be started for want of something
// on this machine.
func lacking(err error) bool {
	r, ok := errors.AsType[*call.Refusal](err)
	return ok && r.Code == call.CredentialMissing || errors.Is(err, exec.ErrNotFound)
}

// environment is everything that a server gets: what every program needs, what its
// package sets, and what the manifest declares, with its references resolved.
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

// resolve puts the values of its references into a setting. The value is a
// secret: it is in no error.
func (s *server) resolve(set agent.Setting) (string, error) {
	var value strings.Builder
	rest := set.Value
	for _, ref := range set.Refs {
		secret, ok := s.options.Lookup(ref)
		if !ok {
			r := call.Refuse(stage, call.CredentialMissing, "server %s needs %s, and it is not set", s.alias, ref)
			r.Hint = "set the environment variable " + ref + ", or store it"
			r.Command = diag.Command{Verb: "secret set", Arg: ref}
			return "", r
		}
		s.secrets.keep(ref, secret)
		// From left to right, never looking into what was put in.
		before, after, _ := strings.Cut(rest, "$env:"+ref)
		value.WriteString(before + secret)
		rest = after
	}
	return value.String() + rest, nil
}
