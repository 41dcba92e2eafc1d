package toolserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/importer"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// PackageStatus is the result of checking a server's package.
type PackageStatus string

// A package has one of these states.
const (
	// Verified means that the program has the declared digest.
	Verified PackageStatus = "verified"
	// Placeholder means that the manifest declares no digest, or only a placeholder.
	Placeholder PackageStatus = "placeholder"
	// Unverifiable means that the server is remote, so its program cannot be hashed.
	Unverifiable PackageStatus = "unverifiable"
	// Mismatch means that the digest differs from the declared or locked digest.
	Mismatch PackageStatus = "mismatch"
	// Absent means that the package is not available.
	Absent PackageStatus = "absent"
)

// PackageDigest holds the declared and the actual digest of a package, and the result of the comparison.
type PackageDigest struct {
	Declared string        `json:"declared"`
	Actual   string        `json:"actual"`
	Status   PackageStatus `json:"status"`
	// Uncovered describes the code that was not verified.
	Uncovered string `json:"uncovered,omitempty"`
}

// plan describes the program that will be started.
type plan struct {
	argv   []string
	digest PackageDigest
	// visible is the only folder in ambit's home that the program can read. See [server.visibleDir].
	visible string
	// hidden lists folders outside ambit's home that are hidden from the program. Otherwise, the program could load
	// code from these folders, whose content was not hashed.
	hidden []string
	// file is the local file that contains the server's program. It is "" if the program is not a local file.
	file string
	// env holds the environment variables that the package sets.
	env      map[string]string
	warnings []string
	// greeting is the time that the server has left to answer greetings.
	greeting time.Duration
	// scripts lists the dependencies whose install scripts did not run.
	scripts []string
	// lacking reports whether a runtime, a setting or access to the package is missing on this machine.
	lacking bool
}

// prepare finds the program of a server and compares it with the manifest and the lock file. It returns a plan even
// if it returns an error.
func (s *server) prepare(ctx context.Context) (*plan, error) {
	l := &plan{digest: PackageDigest{Declared: s.spec.Digest, Status: Absent}}
	switch {
	case s.uncontained():
		return l, call.Refuse(stage, call.IsolationUnavailable,
			"server %s cannot be contained, and --production requires containment", s.alias)
	case s.remote():
		l.digest.Status = Unverifiable
		if s.spec.Digest != "" && !s.spec.Placeholder {
			l.warnings = []string{"package_digest has no effect for a remote server; remove it from the manifest"}
		}
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
		return l, s.prepareUnpinned(ctx, l, ref, err)
	}
	if err != nil {
		return l, s.packageRefusal(l, err)
	}
	p, err := s.open(ctx, l, ref)
	if err != nil {
		return l, s.packageRefusal(l, err)
	}
	l.argv, l.file, l.visible, l.hidden, l.env = p.Argv(ref.Args), p.File, s.visibleDir(p), p.Strays, p.Env
	l.digest.Actual, l.digest.Status, l.scripts = p.Digest, Verified, p.ScriptsNotRun()
	l.digest.Uncovered = p.Uncovered(s.wantedPackage().Tree != "")
	return l, nil
}

// prepareUnpinned fills in the plan for a server whose digest is a placeholder. The parameter unknown is nil if the
// server's code can be identified. Otherwise, it is the reason why the code cannot be identified.
func (s *server) prepareUnpinned(ctx context.Context, l *plan, ref pack.Ref, unknown error) error {
	var p *pack.Package
	var err error
	switch {
	case unknown == nil && ref.Kind == pack.File:
		p, err = pack.OpenLocal(ref, s.options.Manifest)
		l.warnings = []string{"the file is not pinned, so its content may differ at each start"}
	case unknown == nil && (ref.Kind == pack.NPM || ref.Kind == pack.PyPI):
		store := pack.Store{Dir: s.options.Home.Packages()}
		p, err = store.FetchOnce(ctx, ref, s.progress)
		l.warnings = []string{"the package is not pinned, so its content may differ on another machine"}
	default:
		l.argv = append([]string{s.spec.Command}, s.spec.Args...)
		l.warnings = []string{"the program is not pinned, so its content may differ at each start"}
		return nil
	}
	if err != nil {
		return s.packageRefusal(l, err)
	}
	l.argv, l.file, l.visible, l.hidden = p.Argv(ref.Args), p.File, s.visibleDir(p), p.Strays
	l.digest.Actual, l.scripts = p.Digest, p.ScriptsNotRun()
	return nil
}

// uncontained reports whether [Options.Contain] is set but the server's program cannot be contained. Such a server is
// refused. The result is the same for every start of the server.
func (s *server) uncontained() bool {
	return s.options.Contain && !s.remote() && s.spec.Launch == nil && !containable()
}

// preparePackage fills in the plan for the package that [Spec.Package] returns. It refuses the server if a required
// variable or argument is not set.
func (s *server) preparePackage(ctx context.Context, l *plan) error {
	p, err := s.spec.Package(ctx, s.wantedPackage(), s.progress)
	if err != nil {
		return s.packageRefusal(l, err)
	}
	l.argv, l.visible, l.hidden, l.env = p.Argv(s.spec.Args), p.Dir, p.Strays, p.Env
	l.digest.Actual, l.digest.Status, l.scripts = p.Digest, Verified, p.ScriptsNotRun()
	lacks := p.Lacks(s.spec.Args, func(name string) bool {
		return slices.ContainsFunc(s.spec.Env, func(v agent.Setting) bool { return v.Name == name })
	})
	if len(lacks) == 0 {
		return nil
	}
	l.lacking = true
	r := call.Refuse(stage, call.ServerUnavailable, "server %s needs %s", s.alias, strings.Join(lacks, ", ")).Again()
	r.Hint = fmt.Sprintf("set variables in `env` and arguments in `args`, under [server.%q] in config.toml", s.alias)
	return r
}

// compareWithLock refuses a server whose declaration in the manifest differs from the lock file.
func (s *server) compareWithLock(l *plan) error {
	if s.options.Lock == nil || s.options.Lock.Agents[s.agent] == nil {
		return nil
	}
	drift := ""
	switch locked := s.lockEntry(); {
	case locked == nil && slices.Equal(s.spec.Tools, []string{importer.UnknownTool}):
		r := call.Refuse(stage, call.ServerUnavailable, "server %s is not in the lock file yet", s.alias)
		r.Hint = "to pin and start the server, and write its tools into the manifest, run"
		r.Command = diag.Command{Verb: "lock --write-tools"}
		return r
	case locked == nil:
		drift = "the lock file contains the agent, but not this server"
	case s.remote() && (locked.Package.Kind != pack.Remote || locked.Package.Name != s.spec.Endpoint):
		drift = "the manifest and the lock file have different addresses"
	case !s.remote() && locked.Package.Digest != s.spec.Digest:
		l.digest.Status = Mismatch
		l.digest.Actual = locked.Package.Digest
		drift = "the manifest and the lock file have different packages"
	default:
		return nil
	}
	return call.Refuse(stage, call.ServerDrifted, "server %s: %s", s.alias, drift)
}

// open returns the local program, or the package from the package store. If the package is not in the store, open
// downloads it.
func (s *server) open(ctx context.Context, l *plan, ref pack.Ref) (*pack.Package, error) {
	if ref.Kind == pack.File || ref.Kind == pack.Program {
		p, err := pack.OpenLocal(ref, s.options.Manifest)
		if err != nil {
			return nil, err
		}
		l.digest.Actual = p.Digest
		return p, p.Compare(pack.Want{Digest: s.spec.Digest, Tree: s.wantedPackage().Tree})
	}
	// A damaged package is refused and not downloaded again, because the damage may be a sign of tampering.
	store := pack.Store{Dir: s.options.Home.Packages()}
	want := s.wantedPackage()
	p, err := store.Open(ref, want)
	if errors.Is(err, pack.NotStored) {
		if len(want.Scripts) > 0 {
			return nil, pack.ErrScripts(ref, want.Scripts)
		}
		return store.Fetch(ctx, ref, want, s.progress)
	}
	return p, err
}

// visibleDir returns the folder in ambit's home that a server can read. For a package, it returns the package folder.
// For a local file of an installed agent, it returns the folder of the file. For any other file, it returns "", because
// the file's folder may contain private files. If such a file is inside ambit's home, it is therefore hidden and cannot
// be started.
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

// wantedPackage returns the package that the server is required to have.
func (s *server) wantedPackage() pack.Want {
	if locked := s.lockEntry(); locked != nil {
		return s.options.Lock.Want(locked.Package)
	}
	if want, ok := s.options.Want[s.alias]; ok {
		return want
	}
	return pack.Want{Digest: s.spec.Digest}
}

// lockEntry returns the server's entry in the lock file, or nil.
func (s *server) lockEntry() *pack.LockedServer {
	if s.options.Lock == nil {
		return nil
	}
	return s.options.Lock.Server(s.agent, s.alias)
}

func (s *server) packageRefusal(l *plan, err error) error {
	code := call.ServerUnavailable
	switch pack.CodeOf(err) {
	case pack.DigestMismatch, pack.Tampered, pack.VersionConflict, pack.Unsafe:
		code, l.digest.Status = call.ServerDrifted, Mismatch
	}
	l.lacking = pack.Lacking(err)
	r := call.Refuse(stage, code, "server %s: %v", s.alias, err)
	if code == call.ServerUnavailable {
		r = r.Again() // ambit prepares the package again at the next start
	}
	if e, ok := errors.AsType[*pack.Error](err); ok && e.Hint != "" {
		r.Hint, r.Command = e.Hint, e.Command
	}
	return r
}

// environment returns the complete environment of the program. It consists of basic variables, the variables of the
// package, and the variables of the manifest. References in the manifest's variables are resolved.
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

// resolve replaces the $env: references in a setting with their values. The values are secrets and never appear in
// an error.
func (s *server) resolve(set agent.Setting) (string, error) {
	var value strings.Builder
	rest := set.Value
	for _, ref := range set.Refs {
		secret, ok := s.options.Lookup(ref)
		if !ok {
			r := call.Refuse(stage, call.CredentialMissing, "server %s needs %s, which is not set", s.alias, ref)
			r.Hint = "set the environment variable " + ref + ", or store the secret"
			r.Command = diag.Command{Verb: "secret set", Arg: ref}
			return "", r
		}
		s.secrets.add(ref, secret)
		// Replace from left to right, so that references inside an inserted value are not replaced.
		before, after, _ := strings.Cut(rest, "$env:"+ref)
		value.WriteString(before + secret)
		rest = after
	}
	return value.String() + rest, nil
}

// arguments returns the command line of the program. It resolves only the references that the arguments in the manifest
// contain.
func (s *server) arguments(argv []string) ([]string, error) {
	argv = slices.Clone(argv)
	for i, arg := range argv {
		set := agent.Setting{Value: arg}
		for _, m := range reference.FindAllStringSubmatch(arg, -1) {
			if slices.Contains(s.spec.ArgRefs, m[1]) {
				set.Refs = append(set.Refs, m[1])
			}
		}
		var err error
		if argv[i], err = s.resolve(set); err != nil {
			return nil, err
		}
	}
	return argv, nil
}

// reference matches a reference in an argument, and captures its name.
var reference = regexp.MustCompile(`\$env:([A-Za-z_][A-Za-z0-9_]*)`)
