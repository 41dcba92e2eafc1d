package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/bundle"
)

// BundleOptions say how a code bundle is run.
type BundleOptions struct {
	// Path is the bundle's folder, its manifest, or its archive.
	Path string
	// Manifest is the digest of the manifest that was read before; empty takes
	// any.
	Manifest  string
	Isolation sandbox.Tier
	// Egress are the development switches of the way out.
	Egress egress.Switches
	// Credentials finds the secrets of slots.
	Credentials *credential.Source
	// Settings are the values of the manifest's env, by name. Others are not
	// given to the code.
	Settings map[string]string
	// Reviewed says why a bundle of that digest may not run; nil runs all.
	Reviewed func(ctx context.Context, digest string) error
	// Log is told what the code writes, and what became of its connections.
	Log func(line string)
	// Pool may have a sandbox waiting for code that is wrapped; nil makes one for
	// every call.
	Pool *sandbox.Pool
	Home home.Home
}

// Lacking is a refusal for want of something on this machine.
type Lacking struct{ *call.Refusal }

// Unwrap gives the refusal.
func (l *Lacking) Unwrap() error { return l.Refusal }

// Bundle is a code bundle that is ready to run. The code is a copy of what was
// checked, in a folder of its own, and is shown to the sandbox read-only.
//
// Code that is wrapped runs once for each call and ends with it: nothing of one
// call is left for the next. Code that is its own server is started by
// [Bundle.Launch] and talked with.
//
// What it gets of this machine: the interpreter that the manifest asks for, the
// settings that it declares, and of a credential the value only where it can
// reach no host but the slot's. Otherwise it gets a placeholder ([egress.Swap]).
type Bundle struct {
	agent   *agent.Agent
	options BundleOptions
	digest  string
	dir     string // holds what follows
	held    io.Closer
	code    string
	argv    []string
	turns   chan struct{} // one for each run that may be under way

	mu     sync.Mutex
	server *Server // the one that was launched last
	lacks  bool    // it was launched without a credential that it requires
}

// Where the code sees its files.
const (
	bundleDir  = "/bundle"
	harnessDir = "/harness"
)

// Bounds of one run.
const (
	bundleWall      = 5 * time.Minute
	bundleProcesses = 256
)

// OpenBundle checks a bundle and makes it ready. The error is a refusal, and a
// [*Lacking] if something is missing here. It must be closed.
func OpenBundle(ctx context.Context, o BundleOptions) (*Bundle, error) {
	if o.Log == nil {
		o.Log = func(string) {}
	}
	read, err := bundle.Open(o.Path)
	if err != nil {
		return nil, failed(NotStarted, "the bundle cannot be read: %v", err)
	}
	if read.Errors() > 0 {
		f := failed(NotStarted, "the bundle may not run: %v", &bundle.Invalid{Bundle: read})
		f.Hint = "see everything that is wrong: ambit bundle scan " + o.Path
		return nil, f
	}
	if o.Manifest != "" && read.Manifest.Digest() != o.Manifest {
		return nil, failed(NotStarted, "the manifest is not the one in the bundle: a bundle has it at the top, as %s", bundle.ManifestName)
	}
	b := &Bundle{agent: read.Agent(), options: o, digest: read.Tree.Digest(), turns: make(chan struct{}, 2*runtime.NumCPU())}
	if o.Reviewed != nil {
		if err := o.Reviewed(ctx, b.digest); err != nil {
			r := call.Refuse(sandbox.Stage, call.PolicyDenied, "the bundle may not run: %v", err)
			r.Hint = "read it, then say so: ambit bundle review " + o.Path + " --approve"
			return nil, r
		}
	}
	if b.argv, err = b.command(ctx); err != nil {
		return nil, err
	}
	if err := b.stage(read.Tree); err != nil {
		b.Close()
		return nil, &Lacking{call.Refuse(sandbox.Stage, call.ServerUnavailable, "the bundle cannot be unpacked here: %v", err)}
	}
	b.unused()
	return b, nil
}

// Digest is that of the bundle.
func (b *Bundle) Digest() string { return b.digest }

// Agent is who the bundle is.
func (b *Bundle) Agent() *agent.Agent { return b.agent }

// Code is the folder of the copy that runs.
func (b *Bundle) Code() string { return b.code }

// Close removes the copy.
func (b *Bundle) Close() error {
	if b.dir == "" {
		return nil
	}
	err := os.RemoveAll(b.dir)
	if b.held != nil {
		err = errors.Join(err, b.held.Close())
		b.held = nil
	}
	return err
}

// stage copies the code to where only we can change it.
func (b *Bundle) stage(t bundle.Tree) error {
	dir, err := sandbox.TempDir()
	if err != nil {
		return err
	}
	b.dir = dir
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	b.dir, b.code = dir, filepath.Join(dir, "code")
	if b.held, err = hold(dir); err != nil {
		return err
	}
	// The outer folder is ours alone; whoever the sandbox makes up reads these.
	for _, d := range []string{b.code, filepath.Join(dir, "harness")} {
		if err := errors.Join(os.Mkdir(d, 0o755), os.Chmod(d, 0o755)); err != nil {
			return err
		}
	}
	if err := t.Write(b.code); err != nil {
		return err
	}
	// What a restrictive umask took away.
	err = filepath.WalkDir(b.code, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			err = os.Chmod(path, 0o755)
		}
		return err
	})
	return errors.Join(err, writeHarness(filepath.Join(dir, "harness")))
}

// command is what is executed inside.
func (b *Bundle) command(ctx context.Context) ([]string, error) {
	p := b.agent.Program
	kind := string(p.Runtime)
	interpreter, err := findInterpreter(ctx, kind, p.RuntimeVersion)
	if err != nil {
		return nil, err
	}
	if p.Contract == agent.Wrapped {
		return harness(kind, interpreter), nil
	}
	command := p.Command
	switch {
	case command == "node" && kind == "node", slices.Contains([]string{"python", "python3"}, command) && kind == "python3":
		command = interpreter
	case strings.Contains(command, "/") && !path.IsAbs(command):
		command = path.Join(bundleDir, command)
	}
	return append([]string{command}, p.Args...), nil
}

// unused tells the operator of settings that nothing asks for.
func (b *Bundle) unused() {
	for name := range b.options.Settings {
		if !slices.ContainsFunc(b.agent.Program.Env, func(e agent.EnvVar) bool { return e.Name == name }) {
			b.options.Log("config.toml sets " + diag.Quote(name) + ", which the manifest does not declare: it is not given to the code")
		}
	}
}

// run is one run of the code: what it may see, and what it was lent.
type run struct {
	sandbox.Spec
	lent *lent
	dir  string
}

// prepare makes a run. It must be ended.
func (b *Bundle) prepare(l *lent) (*run, error) {
	var err error
	r := &run{lent: l}
	if r.dir, err = os.MkdirTemp(b.dir, "run-"); err != nil {
		return nil, unprepared(err)
	}
	r.Spec = sandbox.Spec{
		Tier: b.options.Isolation, Argv: b.argv, Dir: bundleDir, PIDs: bundleProcesses, Wall: bundleWall, MaxStdout: maxAnswer, MaxStderr: maxLog,
		Mounts:   []sandbox.Mount{{Source: b.code, To: bundleDir}, {Source: filepath.Join(b.dir, "harness"), To: harnessDir}},
		OnStderr: func(line string) { b.options.Log(l.hush(line)) }, Proofs: b.options.Home.Dir(), Pool: b.options.Pool,
	}
	for _, e := range b.agent.Program.Env {
		if value, ok := b.options.Settings[e.Name]; ok {
			r.Env = append(r.Env, e.Name+"="+value)
		}
	}
	r.Env = append(r.Env, l.env...)
	if err := b.wayOut(r); err != nil {
		r.end()
		return nil, unprepared(err)
	}
	return r, nil
}

func unprepared(err error) error {
	r := call.Refuse(sandbox.Stage, call.ServerUnavailable, "the run cannot be prepared: %v", err)
	r.Unsent = true
	return &Lacking{r}
}

// end removes what a run was shown.
func (r *run) end() { os.RemoveAll(r.dir) }

// wayOut opens the way to the hosts that the manifest lists, if it lists any.
func (b *Bundle) wayOut(r *run) error {
	hosts := b.agent.Program.Hosts
	if len(hosts) == 0 {
		return nil
	}
	policy := egress.Policy{Mode: egress.ModeAllowlist, Hosts: hosts, Swaps: r.lent.swaps}
	var extra []byte
	if file := b.options.Egress.CAFile(); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		extra = append(text, '\n')
	}
	if len(policy.Swaps) > 0 {
		var names []string
		for _, s := range policy.Swaps {
			names = append(names, s.Hosts...)
		}
		authority, err := egress.NewAuthority(names)
		if err != nil {
			return err
		}
		policy.Authority, policy.Finder = authority, r.lent.known
		extra = append(extra, authority.PEM()...)
	}
	if err := r.trust(extra); err != nil {
		return err
	}
	r.Egress = egress.NewProxy(egress.NewDialer(b.options.Egress), policy, b.decided).Serve
	return nil
}

func (b *Bundle) decided(d egress.Decision) {
	if d.Refusal != nil {
		b.options.Log("egress: " + d.Refusal.Error())
		return
	}
	b.options.Log("egress: connected to " + d.Host + ":" + d.Port)
}

// systemAuthorities are where systems keep the authorities that they trust, in
// one file.
var systemAuthorities = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}

// trust has the code trust further authorities. Node adds to those it has,
// everything else replaces them, so it gets all in one file.
func (r *run) trust(extra []byte) error {
	if len(extra) == 0 {
		return nil
	}
	r.Pool = nil // these files are this run's alone
	all := extra
	for _, file := range systemAuthorities {
		if text, err := os.ReadFile(file); err == nil {
			all = slices.Concat(text, []byte("\n"), extra)
			break
		}
	}
	for _, f := range []struct {
		inside string
		text   []byte
		env    []string
	}{
		{"/authority.pem", extra, []string{"NODE_EXTRA_CA_CERTS"}},
		{"/authorities.pem", all, []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}},
	} {
		file := filepath.Join(r.dir, filepath.Base(f.inside))
		if err := errors.Join(os.WriteFile(file, f.text, 0o644), os.Chmod(file, 0o644)); err != nil {
			return err
		}
		r.Mounts = append(r.Mounts, sandbox.Mount{Source: file, To: f.inside})
		for _, name := range f.env {
			r.Env = append(r.Env, name+"="+f.inside)
		}
	}
	return nil
}

// notRun is why a run has no outcome.
func (b *Bundle) notRun(ctx context.Context, t *agent.Tool, err error) error {
	switch {
	case errors.Is(err, sandbox.ErrNotStarted):
		return failed(NotStarted, "%v", err)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return b.weigh(t, failed(TimedOut, "the caller's time was up, and the code was ended"))
	case ctx.Err() != nil:
		return b.weigh(t, failed(Cancelled, "the call was cancelled, and the code was ended"))
	}
	return call.Unsent(err) // there was no sandbox for it
}

// weigh says what a run that failed may have done: without a network nothing,
// and a tool that only reads does no harm. It ran, also if its own word is that it
// did not start.
func (b *Bundle) weigh(t *agent.Tool, f *Failure) error {
	f.Unsent = false
	if len(b.agent.Program.Hosts) == 0 || t.SideEffect == agent.Read || f.Reason == NotStarted {
		return f
	}
	f.Effect = call.EffectDone
	if slices.Contains([]Reason{TimedOut, Cancelled, TooLarge, OOM}, f.Reason) {
		f.Effect = call.EffectUnknown
	}
	return f
}

// Settings reads the values of a bundle's env from config.toml:
//
//	[bundles.NAME.env]
//	SETTING = "value"
func Settings(h home.Home, name string) (map[string]string, error) {
	var bundles map[string]struct {
		Env map[string]string `toml:"env"`
	}
	if _, err := home.ReadTable(h.Config(), "bundles", &bundles); err != nil {
		return nil, fmt.Errorf("the settings of bundles cannot be read: %w", err)
	}
	return bundles[name].Env, nil
}
