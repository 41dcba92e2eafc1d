package program

import (
	"context"
	"crypto/rand"
	"encoding/json"
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

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/bundle"
)

// BundleOptions configure a code bundle.
type BundleOptions struct {
	// Path is the path of the bundle's folder, manifest or archive.
	Path string
	// Manifest is the digest of the manifest that the caller has read. The bundle must contain the same manifest.
	// If Manifest is empty, any manifest is accepted.
	Manifest  string
	Isolation sandbox.Tier
	// Egress holds the development switches for network access.
	Egress egress.Switches
	// Credentials finds the credentials of slots.
	Credentials *credential.Source
	// Settings holds values for the environment variables that the manifest declares, by name. The code gets no
	// other variables.
	Settings map[string]string
	// Reviewed returns an error if the bundle with the given digest is not allowed to run. If Reviewed is nil, every
	// bundle is allowed to run.
	Reviewed func(ctx context.Context, digest string) error
	// Log receives the lines of the code's output and a line for each connection.
	Log func(line string)
	// Pool provides prepared sandboxes for wrapped code. If Pool is nil, every call gets a new sandbox.
	Pool *sandbox.Pool
	Home home.Home
}

// Lacking is the error for a bundle that this machine cannot run, for example because an interpreter is not installed.
type Lacking struct{ *call.Refusal }

// Unwrap returns the refusal.
func (l *Lacking) Unwrap() error { return l.Refusal }

// Bundle is a code bundle that is ready to run. The code runs in a sandbox, from a private, read-only copy of the
// files that were checked.
//
// Wrapped code is started again for each call, so calls share no state. A bundle that is an MCP server is started by
// [Bundle.Launch].
//
// The code gets the interpreter, the settings and the credentials that the manifest declares. If the code can reach a
// host that is not allowed to receive a credential, the code gets a placeholder ([egress.Swap]) instead of the
// credential's value.
type Bundle struct {
	agent   *agent.Agent
	options BundleOptions
	digest  string
	dir     string // contains the code, the harness and the files of runs
	lock    io.Closer
	code    string
	argv    []string
	turns   chan struct{} // holds one value for each run in progress

	mu     sync.Mutex
	server *Server // server that was launched last
	lacks  bool    // whether the server lacks a required credential
}

// The code sees these folders inside the sandbox.
const (
	bundleDir  = "/bundle"
	harnessDir = "/harness"
)

const bundleWall = 5 * time.Minute

// OpenBundle checks a bundle and prepares it to run. The caller must close the bundle. The error is a refusal. It
// is a [*Lacking] if this machine cannot run the bundle.
func OpenBundle(ctx context.Context, o BundleOptions) (*Bundle, error) {
	if o.Log == nil {
		o.Log = func(string) {}
	}
	read, err := bundle.Open(o.Path)
	if err != nil {
		return nil, failed(NotStarted, "the bundle cannot be read: %v", err)
	}
	if read.Errors() > 0 {
		f := failed(NotStarted, "the bundle is not allowed to run: %v", &bundle.Invalid{Bundle: read})
		f.Hint = "list all problems: ambit bundle scan " + o.Path
		return nil, f
	}
	if o.Manifest != "" && read.Manifest.Digest() != o.Manifest {
		return nil, failed(NotStarted, "the given manifest is not the same as %s in the bundle", bundle.ManifestName)
	}
	b := &Bundle{
		agent: read.Agent(), options: o, digest: read.Tree.Digest(), turns: make(chan struct{}, 2*runtime.NumCPU()),
	}
	if o.Reviewed != nil {
		if err := o.Reviewed(ctx, b.digest); err != nil {
			r := call.Refuse(sandbox.Stage, call.PolicyDenied, "the bundle is not allowed to run: %v", err)
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
			o.Log("the setting " + diag.Quote(name) + " in config.toml is ignored, because the manifest does not declare it")
		}
	}
	return b, nil
}

// Digest returns the digest of the bundle.
func (b *Bundle) Digest() string { return b.digest }

// Agent returns the bundle's agent.
func (b *Bundle) Agent() *agent.Agent { return b.agent }

// Code returns the folder of the private copy of the code.
func (b *Bundle) Code() string { return b.code }

// Close removes the private copy of the code.
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

// stage copies the code to a private folder. Other users cannot enter the folder.
func (b *Bundle) stage(t bundle.Tree) error {
	var err error
	if b.dir, err = sandbox.TempDir(); err != nil {
		return err
	}
	dir, err := filepath.EvalSymlinks(b.dir)
	if err != nil {
		return err
	}
	b.dir, b.code = dir, filepath.Join(dir, "code")
	if b.lock, err = lockShared(dir); err != nil {
		return err
	}
	harness := filepath.Join(dir, "harness")
	if err := errors.Join(os.Mkdir(b.code, 0o755), os.Mkdir(harness, 0o755)); err != nil {
		return err
	}
	if err := errors.Join(t.Write(b.code), writeHarness(harness)); err != nil {
		return err
	}
	// The user of the sandbox must be able to read the inner folders, but the umask may have removed the permission.
	// The outer folder stays private.
	return filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() && path != dir {
			err = os.Chmod(path, 0o755)
		}
		return err
	})
}

func (b *Bundle) command(ctx context.Context) ([]string, error) {
	p := b.agent.Program
	kind := string(p.Runtime)
	interpreter, warning, err := findInterpreter(ctx, kind, p.RuntimeVersion)
	if err != nil {
		return nil, err
	}
	if warning != "" {
		b.options.Log(warning)
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

// run is one run of the code, with its own credentials.
type run struct {
	sandbox.Spec
	credentials *runCredentials
	dir         string
}

// prepare makes a run with the given credentials. The caller must end the run with [run.end].
func (b *Bundle) prepare(l *runCredentials) (*run, error) {
	var err error
	r := &run{credentials: l}
	var keys guard.KeyLines
	if r.dir, err = os.MkdirTemp(b.dir, "run-"); err != nil {
		return nil, unprepared(err)
	}
	r.Spec = sandbox.Spec{
		Tier: b.options.Isolation, Argv: b.argv, Dir: bundleDir, PIDs: maxProcesses, Wall: bundleWall,
		MaxStdout: maxAnswer, MaxStderr: maxLog, Proofs: b.options.Home.Dir(), Pool: b.options.Pool,
		Mounts: []sandbox.Mount{
			{Source: b.code, To: bundleDir}, {Source: filepath.Join(b.dir, "harness"), To: harnessDir},
		},
		OnStderr: func(line string) { b.options.Log(l.redact(keys.Hide(line))) },
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

func (r *run) end() { os.RemoveAll(r.dir) }

// openEgress gives a run access to the hosts that the manifest lists.
func (b *Bundle) openEgress(r *run) error {
	hosts := b.agent.Program.Hosts
	if len(hosts) == 0 {
		return nil
	}
	policy := egress.Policy{Mode: egress.ModeAllowlist, Hosts: hosts, Swaps: r.credentials.swaps}
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
		policy.Authority, policy.Finder = authority, r.credentials.echo
		extra = append(extra, authority.PEM()...)
	}
	if err := r.trust(extra); err != nil {
		return err
	}
	r.Network = egress.NewNetwork(egress.NewDialer(b.options.Egress), policy, logEgress(b.options.Log))
	return nil
}

// systemAuthorities lists the files in which various systems keep their trusted certificate authorities.
var systemAuthorities = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

// trust adds certificate authorities to those that the code trusts. Node reads a file that contains only the additional
// authorities. Other programs read a file that replaces their own list, so this file also contains the system's
// authorities.
func (r *run) trust(extra []byte) error {
	if len(extra) == 0 {
		return nil
	}
	r.Pool = nil // use a new sandbox, because prepared sandboxes lack these files
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

// setEffect records the effect of a failed run in the refusal, and returns the refusal. A run has no effect if the
// code has no network access or if the tool only reads. setEffect also clears Unsent: even if the code could not be
// loaded, the call is treated as sent.
func (b *Bundle) setEffect(t *agent.Tool, f *call.Refusal) error {
	f.Unsent = false
	if len(b.agent.Program.Hosts) > 0 && t.SideEffect != agent.Read {
		f.Effect = effectOf(f.Reason)
	}
	return f
}

// Settings reads the environment variables of a bundle from config.toml:
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

// runCredentials holds the credentials of one run.
type runCredentials struct {
	env   []string // variables that contain credentials or placeholders
	swaps []egress.Swap
	// known finds credential values in output.
	known *secret.Known
	// echo finds credential values, and parts of credential values, in the responses of hosts.
	echo *secret.Echo
	// missing contains one refusal for each required credential slot that is empty.
	missing []*call.Refusal
}

// complete checks the required credentials. If one is missing, it returns a refusal.
func (l *runCredentials) complete() error {
	if len(l.missing) == 0 {
		return nil
	}
	return l.missing[0]
}

// credentials decides for each credential slot whether the run gets the value or a placeholder.
func (b *Bundle) credentials() (*runCredentials, error) {
	l := &runCredentials{}
	var values, nested []secret.Value
	for i := range b.agent.Slots {
		slot := &b.agent.Slots[i]
		s, err := b.options.Credentials.Slot(b.agent, slot)
		switch r, ok := errors.AsType[*call.Refusal](err); {
		case ok && !slot.Required, err == nil && s.IsZero():
			continue
		case ok:
			l.missing = append(l.missing, r)
			continue
		case err != nil:
			return nil, err
		}
		values = append(values, secret.Value{Name: slot.Ref, Secret: s.Reveal()})
		if b.mayHold(slot, s) {
			l.env = append(l.env, slot.Env+"="+s.Reveal())
			continue
		}
		text, err := l.substitute(slot, s, &nested)
		if err != nil {
			return nil, call.Refuse(sandbox.Stage, call.CredentialMissing,
				"cannot make a placeholder for the credential %s: %v", slot.Ref, err)
		}
		l.env = append(l.env, slot.Env+"="+text)
	}
	for _, v := range values {
		if len(l.swaps) > 0 && len(v.Secret) < minSecret {
			return nil, call.Refuse(sandbox.Stage, call.CredentialMissing,
				"the credential %s cannot be hidden from the code, because it is too short to be found in responses", v.Name)
		}
	}
	var err error
	if l.known, err = secret.NewKnown(append(nested, values...)); err == nil && len(l.swaps) > 0 {
		l.echo = secret.NewEcho(l.known, values)
	}
	if err != nil {
		return nil, call.Refuse(sandbox.Stage, call.CredentialMissing,
			"the code's output cannot be scanned for credentials: %v", err)
	}
	return l, nil
}

// minSecret is the minimum length of a secret. Shorter values cannot be found reliably in responses.
const minSecret = 6

// mayHold reports whether the code is allowed to have the value of a secret. The slot and the secret must allow
// every host that the code can reach.
func (b *Bundle) mayHold(slot *agent.Slot, s credential.Secret) bool {
	return !slices.ContainsFunc(b.agent.Program.Hosts, func(host string) bool {
		return !slot.Covers(host) || len(s.Hosts()) > 0 && !agent.Covers(s.Hosts(), host)
	})
}

// substitute returns a placeholder for a secret and adds the placeholder to the swaps. For a JSON object, it returns
// an object of the same structure in which each string is a placeholder.
func (l *runCredentials) substitute(slot *agent.Slot, s credential.Secret, nested *[]secret.Value) (string, error) {
	hosts := commonHosts(slot.Hosts, s.Hosts())
	add := func(value string) string {
		p := "ambit-placeholder-" + strings.ToLower(rand.Text())
		l.swaps = append(l.swaps, egress.Swap{Placeholder: p, Value: func() string { return value }, Hosts: hosts})
		return p
	}
	if s.Type() != credential.JSON || jsontext.Value(s.Reveal()).Kind() != '{' {
		return add(s.Reveal()), nil
	}
	var document any
	if err := json.Unmarshal([]byte(s.Reveal()), &document); err != nil {
		return "", errors.New("the value of the credential is not JSON")
	}
	text, err := json.Marshal(replaceStrings(document, func(value string) string {
		if len(value) < minSecret {
			return "" // values that are too short cannot be found in responses
		}
		*nested = append(*nested, secret.Value{Name: slot.Ref, Secret: value})
		return add(value)
	}))
	return string(text), err
}

// replaceStrings returns a copy of a JSON document in which every string is replaced. Numbers and booleans become null.
func replaceStrings(v any, replace func(string) string) any {
	switch v := v.(type) {
	case string:
		return replace(v)
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, member := range v {
			out[key] = replaceStrings(member, replace)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = replaceStrings(item, replace)
		}
		return out
	}
	return nil
}

// commonHosts returns the hosts that both the slot and the stored secret allow. If the secret was stored without
// hosts, the result is all hosts of the slot.
func commonHosts(slot, stored []string) []string {
	if len(stored) == 0 {
		return slot
	}
	var hosts []string
	for _, a := range slot {
		for _, b := range stored {
			switch {
			case agent.Covers([]string{b}, a):
				hosts = append(hosts, a)
			case agent.Covers([]string{a}, b):
				hosts = append(hosts, b)
			}
		}
	}
	return hosts
}

// redact replaces credential values in a log line with [secret], and everything else that looks like a secret with a
// placeholder.
func (l *runCredentials) redact(line string) string {
	out, at := "", 0
	for _, f := range l.known.Find([]byte(line)) {
		out += line[at:f[0]] + "[secret]"
		at = f[1]
	}
	return string(guard.Redact([]byte(out + line[at:])))
}
