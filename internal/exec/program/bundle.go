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

// BundleOptions configure a code bundle.
type BundleOptions struct {
	// Path is the bundle's folder, its manifest, or its archive.
	Path string
	// Manifest is the digest of the manifest that was read before; empty accepts any.
	Manifest  string
	Isolation sandbox.Tier
	// Egress holds the development switches for network access.
	Egress egress.Switches
	// Credentials finds the secrets of slots.
	Credentials *credential.Source
	// Settings are the values of the manifest's env, by name. The code does not see
	// others.
	Settings map[string]string
	// Reviewed returns an error if a bundle with that digest may not run; nil runs
	// all.
	Reviewed func(ctx context.Context, digest string) error
	// Log receives the code's output and its connections, line by line.
	Log func(line string)
	// Pool provides prepared sandboxes for wrapped code; nil makes one for every
	// call.
	Pool *sandbox.Pool
	Home home.Home
}

// Lacking is a refusal because something is not installed on this machine.
type Lacking struct{ *call.Refusal }

// Unwrap returns the refusal.
func (l *Lacking) Unwrap() error { return l.Refusal }

// Bundle is a code bundle that is ready to run. It runs a private copy of the code
// that was checked, which the sandbox sees read-only.
//
// Wrapped code runs once for each call, so calls share no state. Code that is an MCP
// server is started by [Bundle.Launch].
//
// The code gets the interpreter that the manifest requires and the settings that it
// declares. It gets the value of a credential only if it can reach no hosts other
// than the slot's. Otherwise it gets a placeholder ([egress.Swap]).
type Bundle struct {
	agent   *agent.Agent
	options BundleOptions
	digest  string
	dir     string // contains code, the harness and the files of runs
	lock    io.Closer
	code    string
	argv    []string
	turns   chan struct{} // has one element for each current run

	mu     sync.Mutex
	server *Server // launched last
	lacks  bool    // server was launched without a required credential
}

// The folders that the code sees.
const (
	bundleDir  = "/bundle"
	harnessDir = "/harness"
)

const bundleWall = 5 * time.Minute

// OpenBundle checks a bundle and prepares it. The caller closes it. The error is a
// refusal, and a [*Lacking] if something is not installed.
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
		f.Hint = "list all problems: ambit bundle scan " + o.Path
		return nil, f
	}
	if o.Manifest != "" && read.Manifest.Digest() != o.Manifest {
		return nil, failed(NotStarted, "the manifest differs from %s at the top of the bundle", bundle.ManifestName)
	}
	b := &Bundle{
		agent: read.Agent(), options: o, digest: read.Tree.Digest(), turns: make(chan struct{}, 2*runtime.NumCPU()),
	}
	if o.Reviewed != nil {
		if err := o.Reviewed(ctx, b.digest); err != nil {
			r := call.Refuse(sandbox.Stage, call.PolicyDenied, "the bundle may not run: %v", err)
			r.Hint = "read the code, then approve it: ambit bundle review " + o.Path + " --approve"
			return nil, r
		}
	}
	if b.argv, err = b.command(ctx); err != nil {
		return nil, err
	}
	if err := b.stage(read.Tree); err != nil {
		b.Close()
		return nil, &Lacking{call.Refuse(sandbox.Stage, call.ServerUnavailable, "the bundle cannot be unpacked: %v", err)}
	}
	for name := range o.Settings {
		if !slices.ContainsFunc(b.agent.Program.Env, func(e agent.EnvVar) bool { return e.Name == name }) {
			o.Log("config.toml sets " + diag.Quote(name) + ", which the manifest does not declare: the code does not get it")
		}
	}
	return b, nil
}

// Digest returns the digest of the bundle.
func (b *Bundle) Digest() string { return b.digest }

// Agent returns the bundle's agent.
func (b *Bundle) Agent() *agent.Agent { return b.agent }

// Code returns the folder of the copy that runs.
func (b *Bundle) Code() string { return b.code }

// Close removes the copy.
func (b *Bundle) Close() error {
	if b.dir == "" {
		return nil
	}
	err := os.RemoveAll(b.dir)
	if b.lock != nil {
		err = errors.Join(err, b.lock.Close())
		b.lock = nil
	}
	return err
}

// stage copies the code to a folder that only this user can change.
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
	if b.lock, err = lockShared(dir); err != nil {
		return err
	}
	// The outer folder is private. The sandbox's user reads these.
	for _, d := range []string{b.code, filepath.Join(dir, "harness")} {
		if err := errors.Join(os.Mkdir(d, 0o755), os.Chmod(d, 0o755)); err != nil {
			return err
		}
	}
	if err := t.Write(b.code); err != nil {
		return err
	}
	// The umask may have removed permissions.
	err = filepath.WalkDir(b.code, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			err = os.Chmod(path, 0o755)
		}
		return err
	})
	return errors.Join(err, writeHarness(filepath.Join(dir, "harness")))
}

// command returns the command that runs inside the sandbox.
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

// run is one run of the code, with the credentials that it gets.
type run struct {
	sandbox.Spec
	lent *lent
	dir  string
}

// prepare makes a run. The caller ends it.
func (b *Bundle) prepare(l *lent) (*run, error) {
	var err error
	r := &run{lent: l}
	if r.dir, err = os.MkdirTemp(b.dir, "run-"); err != nil {
		return nil, unprepared(err)
	}
	r.Spec = sandbox.Spec{
		Tier: b.options.Isolation, Argv: b.argv, Dir: bundleDir, PIDs: maxProcesses, Wall: bundleWall,
		MaxStdout: maxAnswer, MaxStderr: maxLog, Proofs: b.options.Home.Dir(), Pool: b.options.Pool,
		Mounts: []sandbox.Mount{
			{Source: b.code, To: bundleDir}, {Source: filepath.Join(b.dir, "harness"), To: harnessDir},
		},
		OnStderr: func(line string) { b.options.Log(l.redact(line)) },
	}
	for _, e := range b.agent.Program.Env {
		if value, ok := b.options.Settings[e.Name]; ok {
			r.Env = append(r.Env, e.Name+"="+value)
		}
	}
	r.Env = append(r.Env, l.env...)
	if err := b.openEgress(r); err != nil {
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

// end removes the files of a run.
func (r *run) end() { os.RemoveAll(r.dir) }

// openEgress gives a run access to the hosts that the manifest lists.
func (b *Bundle) openEgress(r *run) error {
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
	r.Egress = egress.NewProxy(egress.NewDialer(b.options.Egress), policy, logEgress(b.options.Log)).Serve
	return nil
}

// systemAuthorities are the files in which systems store the authorities they trust.
var systemAuthorities = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
}

// trust makes the code trust further authorities. Node adds them to its own list.
// All other programs replace their list, so they get all authorities in one file.
func (r *run) trust(extra []byte) error {
	if len(extra) == 0 {
		return nil
	}
	r.Pool = nil // a prepared sandbox does not have these files
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

// setEffect sets the possible effect of a failed run: none without network or if the
// tool only reads. The call counts as sent, even if the harness reports that the
// code could not be loaded.
func (b *Bundle) setEffect(t *agent.Tool, f *Failure) error {
	f.Unsent = false
	if len(b.agent.Program.Hosts) > 0 && t.SideEffect != agent.Read {
		f.Effect = effectOf(f.Reason)
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
