package toolserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/pack"
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
	// Mismatch: it has another digest than declared.
	Mismatch PackageStatus = "mismatch"
)

// PackageDigest compares the declared digest of a package with the real one.
type PackageDigest struct {
	Declared string        `json:"declared"`
	Actual   string        `json:"actual"`
	Status   PackageStatus `json:"status"`
}

// launch is a server that is ready to be started.
type launch struct {
	argv   []string
	digest PackageDigest
	// show is the folder of the package in the store, which the program may
	// read although the rest of ambit's home is hidden from it.
	show string
	// warning is for whoever starts it, if there is one.
	warning string
}

// prepare finds out what a stdio server runs, and makes sure that it is what
// the manifest declares.
func (s *server) prepare(ctx context.Context) (*launch, error) {
	l := &launch{digest: PackageDigest{Declared: s.spec.Digest, Status: Placeholder}}
	ref, err := pack.Identify(*s.spec)
	if s.spec.Placeholder || s.spec.Digest == "" {
		l.argv = append([]string{s.spec.Command}, s.spec.Args...)
		l.warning = "its package is not pinned: what runs is whatever the command fetches today"
		if err == nil && ref.Kind == pack.File {
			p, err := pack.OpenLocal(ref, s.options.Folder, "")
			if err != nil {
				return l, s.unfit(l, err)
			}
			l.argv, l.digest.Actual = p.Argv(ref.Args), p.Digest
		}
		return l, nil
	}
	if err != nil {
		return l, s.unfit(l, err)
	}
	p, err := s.open(ctx, ref)
	if err != nil {
		return l, s.unfit(l, err)
	}
	l.argv, l.show = p.Argv(ref.Args), p.Dir
	l.digest.Actual, l.digest.Status = p.Digest, Verified
	return l, nil
}

// open gets the package from the store, fetching it if it is not there.
func (s *server) open(ctx context.Context, ref pack.Ref) (*pack.Package, error) {
	if ref.Kind == pack.File || ref.Kind == pack.Program {
		return pack.OpenLocal(ref, s.options.Folder, s.spec.Digest)
	}
	want := pack.Want{Digest: s.spec.Digest}
	if locked := s.locked(); locked != nil {
		if locked.Package.Digest != s.spec.Digest {
			return nil, call.Refuse(stage, call.ServerDrifted, "server %s: the manifest declares another package than the lock", s.spec.Alias)
		}
		want = s.options.Lock.Want(locked.Package)
	}
	// What is damaged is refused, not quietly replaced: somebody has been there.
	store := pack.Store{Dir: s.options.Home.Packages()}
	p, err := store.Open(ref, want)
	if errors.Is(err, pack.NotStored) {
		return store.Fetch(ctx, ref, want, func(step string) { s.options.Progress(s.spec.Alias, step) })
	}
	return p, err
}

// locked is what the lock holds of this server, or nil.
func (s *server) locked() *pack.LockedServer {
	if s.options.Lock == nil {
		return nil
	}
	return s.options.Lock.Server(s.agent.ID, s.spec.Alias)
}

// unfit turns an error of the package store into a refusal.
func (s *server) unfit(l *launch, err error) error {
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		return r
	}
	code := call.ServerUnavailable
	switch pack.CodeOf(err) {
	case pack.DigestMismatch, pack.Tampered, pack.VersionConflict, pack.Unsafe:
		code = call.ServerDrifted
		l.digest.Status = Mismatch
	case pack.NotFound:
		if errors.Is(err, os.ErrNotExist) {
			l.digest.Status = Mismatch
		}
	}
	r := call.Refuse(stage, code, "server %s: %v", s.spec.Alias, err)
	if hint := pack.HintOf(err); hint != "" {
		r.Hint = hint
	}
	return r
}

// environment is everything that a server gets: what every program needs, and
// what the manifest declares, with its references resolved.
func (s *server) environment() ([]string, error) {
	var env []string
	for _, name := range agent.PlainEnv {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
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
	value := set.Value
	for _, ref := range set.Refs {
		secret, ok := s.options.Lookup(ref)
		if !ok {
			r := call.Refuse(stage, call.CredentialMissing, "server %s needs %s, and it is not set", s.spec.Alias, ref)
			r.Hint = fmt.Sprintf("set the environment variable %s", ref)
			return "", r
		}
		value = strings.Replace(value, "$env:"+ref, secret, 1)
	}
	return value, nil
}
