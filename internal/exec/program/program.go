// Package program runs agents that are programs. A program runs in a sandbox, reads one line of JSON and writes one
// line of JSON. The package also runs code bundles ([Bundle]).
//
// The contract is strict. The program reads exactly one line, the intent. It must write exactly one line, the answer,
// and exit with code 0. Blank lines in the output are ignored. If the program does anything else, the call is
// refused. The [Reason] of the refusal helps the program's author to fix the program. Stderr goes to the operator's
// log.
//
// The sandbox enforces the manifest's limits on network access, memory, disk and time. The program sees the folder of
// its manifest, read-only, as its working directory. If the manifest is not named agent.toml, the folder may contain
// several manifests, so the program sees only the folder of its entry. The program never sees ambit's own files or a
// whole home directory.
//
// The effect of a failed run depends on its network access. A run without network access has no effect. A run that was
// killed has an unknown effect. Any other run with network access is treated as carried out.
package program

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
)

// Options configure the runs of an agent's program.
type Options struct {
	// Manifest is the path of the manifest. If the entry is a relative path, it is relative to the manifest's folder.
	Manifest string
	// Isolation is the tier of the sandbox. It defaults to the standard tier.
	Isolation sandbox.Tier
	// Unconfined runs the program without a sandbox. Set it only if the operator passed an explicit flag.
	Unconfined bool
	// Egress holds the development switches for network access.
	Egress egress.Switches
	// Pubkey returns the public key of a principal. The key becomes part of the intent. If Pubkey is nil, the
	// intent contains no key.
	Pubkey func(principal string) string
	// Memory holds the agent's earlier answers. It is nil if the agent has no memory.
	Memory Memory
	// Log receives the lines of the program's stderr and a line for each connection.
	Log func(line string)
	// Pool provides prepared sandboxes. If Pool is nil, every run gets a new sandbox.
	Pool *sandbox.Pool
	// Home is ambit's home folder. Programs cannot see anything in it except installed agents. The folder also stores
	// which isolation tiers this machine supports.
	Home home.Home
}

// Reason explains why a program failed. It is stored in [call.Refusal.Reason].
type Reason = string

const (
	NotStarted  Reason = "not_started"
	NoAnswer    Reason = "no_answer"
	TwoAnswers  Reason = "two_answers"
	BadJSON     Reason = "bad_json"
	WrongIntent Reason = "wrong_intent"
	BadStatus   Reason = "bad_status"
	ExitCode    Reason = "exit_code"
	TooLarge    Reason = "too_large"
	OOM         Reason = "oom"
	TimedOut    Reason = "timed_out"
	Cancelled   Reason = "cancelled"
)

// failed returns a refusal with the code program_failed and the given reason.
func failed(reason Reason, format string, args ...any) *call.Refusal {
	r := call.Refuse(sandbox.Stage, call.ProgramFailed, "%s: %s", reason, fmt.Sprintf(format, args...))
	r.Reason, r.Unsent = reason, reason == NotStarted
	return r
}

type binding struct {
	agent   *agent.Agent
	options Options
}

// New returns the binding of an agent's program.
func New(a *agent.Agent, o Options) call.Binding {
	if o.Log == nil {
		o.Log = func(string) {}
	}
	return &binding{a, o}
}

// These are the limits of one run.
const (
	maxAnswer    = 16 << 20  // bytes of stdout
	maxLog       = maxAnswer // bytes of stderr
	maxProcesses = 256
)

// Act runs the program for one intent.
func (b *binding) Act(ctx context.Context, t *agent.Tool, c *call.Call) (call.Result, error) {
	if _, ok := t.Binding.(agent.RunProgram); !ok || b.agent.Program == nil || b.agent.Program.Contract != agent.OneLine {
		return call.Result{}, failed(NotStarted,
			"the tool %s is not implemented by a program that reads and writes one line of JSON", diag.Quote(t.Name))
	}
	line, id, err := b.intent(c)
	if err != nil {
		return call.Result{}, call.Unsent(err)
	}
	if b.options.Unconfined && b.agent.Program.Isolation != "" {
		r := call.Refuse(sandbox.Stage, call.IsolationUnavailable, "the manifest requires a sandbox")
		r.Hint, r.Unsent = "leave out --isolation none", true
		return call.Result{}, r
	}
	stderr := &transcript{to: b.options.Log, sum: sha256.New()}
	spec, err := b.spec(line, stderr.egress)
	if err != nil {
		return call.Result{}, err
	}
	removeMemory, err := b.mountMemory(ctx, c, &spec)
	if err != nil {
		return call.Result{}, call.Unsent(err)
	}
	defer removeMemory()
	spec.OnStderr = stderr.line
	run := sandbox.Run
	if b.options.Unconfined {
		run = unconfined
	}
	out, err := run(ctx, spec)
	if err != nil {
		err = notRun(ctx, err, b.setEffect)
		if f, ok := errors.AsType[*call.Refusal](err); ok && f.Reason == NotStarted {
			f.Hint = "for the runtime rust-bin, make the entry executable; for python3 or node, install it under /usr"
		}
	} else if f := exitFailure(&out, spec.Wall); f != nil {
		err = b.setEffect(f)
	}
	result := call.Result{Duration: out.Duration, Log: stderr.reference()}
	if err != nil {
		result.Log = stderr.failure()
		return result, err
	}
	a, f := readAnswer(out.Stdout, id)
	if f != nil {
		result.Log = stderr.failure()
		return result, b.setEffect(f)
	}
	result.IsError = a.isError()
	result.Raw, err = a.result()
	return result, err
}

// transcript forwards the lines of stderr to the log, without secrets. It also counts and hashes the lines for the
// journal, and keeps what explains a failure: the last line and the refused hosts.
type transcript struct {
	to   func(line string)
	keys guard.KeyLines

	mu      sync.Mutex
	lines   int
	bytes   int64
	sum     hash.Hash
	last    string
	refused []string
}

// These constants limit the description of a failed program in the journal: the length of the last line, and the
// number of refused hosts.
const (
	maxLastLine = 200
	maxRefused  = 4
)

func (t *transcript) line(text string) {
	t.mu.Lock()
	t.lines++
	t.bytes += int64(len(text)) + 1
	t.sum.Write([]byte(text + "\n"))
	t.mu.Unlock()
	clean := string(guard.Redact([]byte(t.keys.Hide(text))))
	if strings.TrimSpace(clean) != "" {
		t.mu.Lock()
		t.last = clean
		t.mu.Unlock()
	}
	t.to(clean)
}

// egress logs a decision about a connection of the program.
func (t *transcript) egress(d egress.Decision) {
	logEgress(t.to)(d)
	host := string(guard.Redact([]byte(diag.Cut(d.Host, maxLastLine) + ":" + d.Port)))
	t.mu.Lock()
	defer t.mu.Unlock()
	if d.Refusal != nil && len(t.refused) < maxRefused && !slices.Contains(t.refused, host) {
		t.refused = append(t.refused, host)
	}
}

// failure returns a description of stderr (see reference) with its last line, and the first hosts that were refused.
func (t *transcript) failure() string {
	parts := []string{t.reference()}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last != "" {
		parts = append(parts, "last line: "+diag.Quote(diag.Cut(t.last, maxLastLine)))
	}
	if len(t.refused) > 0 {
		parts = append(parts, "refused connections to "+diag.Printable(diag.Words(t.refused, "and")))
	}
	return strings.TrimPrefix(strings.Join(parts, "; "), "; ")
}

// reference returns the line count, the size and the hash of stderr as a text for the journal. It returns "" if there
// are no lines.
func (t *transcript) reference() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines == 0 {
		return ""
	}
	return fmt.Sprintf("stderr: %d lines, %d bytes, sha256:%x", t.lines, t.bytes, t.sum.Sum(nil))
}

// notRun converts the error of a run to the error of the call. If the call timed out or was cancelled, notRun also
// calls setEffect, because the program may have had an effect.
func notRun(ctx context.Context, err error, setEffect func(*call.Refusal) error) error {
	switch {
	case errors.Is(err, sandbox.ErrNotStarted):
		return failed(NotStarted, "%v", err)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return setEffect(failed(TimedOut, "the call timed out and the program was killed"))
	case ctx.Err() != nil:
		return setEffect(failed(Cancelled, "the call was cancelled and the program was killed"))
	}
	return call.Unsent(err) // the sandbox could not be created
}

// exitFailure returns a refusal if the program was killed or exited with a code other than 0. Otherwise, it returns
// nil.
func exitFailure(out *sandbox.Outcome, wall time.Duration) *call.Refusal {
	switch {
	case out.TimedOut:
		f := failed(TimedOut, "the program did not exit within %s and was killed", wall)
		f.Hint = "make the program faster, or raise cpu_ms_per_task in the manifest"
		return f
	case out.TooLarge == "stdout", out.TooLarge == "stderr":
		f := failed(TooLarge, "the program was killed because it wrote more than %d MiB to %s", maxAnswer>>20, out.TooLarge)
		f.Hint = "make the program write less to " + out.TooLarge
		return f
	case out.TooLarge != "":
		return failed(TooLarge, "the program was killed because it wrote too much to %s", out.TooLarge)
	case out.ExitCode != 0 && out.OOM:
		f := failed(OOM, "the program exceeded its memory limit and was killed")
		f.Hint = "make the program use less memory, or raise memory_mb in the manifest; files it writes also count"
		return f
	case out.Signal != 0:
		return failed(ExitCode, "the program was killed by signal %d", out.Signal)
	case out.ExitCode != 0:
		return failed(ExitCode, "the program exited with code %d", out.ExitCode)
	}
	return nil
}

// setEffect records the effect that a failed run may have had, and returns the refusal.
func (b *binding) setEffect(f *call.Refusal) error {
	if b.network() != agent.NetworkOff {
		f.Effect = effectOf(f.Reason)
	}
	return f
}

// effectOf returns the effect of a failed run that had network access.
func effectOf(r Reason) call.Effect {
	switch r {
	case NotStarted:
		return call.NoEffect
	case TimedOut, Cancelled, TooLarge, OOM:
		return call.EffectUnknown
	}
	return call.EffectDone
}

func (b *binding) network() agent.NetworkAccess {
	if b.options.Unconfined {
		return agent.NetworkFull // without a sandbox, the manifest's network setting is not enforced
	}
	if b.agent.Resources == nil {
		return agent.NetworkOff
	}
	return b.agent.Resources.Network
}

func (b *binding) spec(line []byte, decided func(egress.Decision)) (sandbox.Spec, error) {
	s := sandbox.Spec{
		Tier: b.options.Isolation, Stdin: line, PIDs: maxProcesses, MaxStdout: maxAnswer, MaxStderr: maxLog,
		OnStderr: b.options.Log, Proofs: b.options.Home.Dir(), Pool: b.options.Pool,
	}
	if b.agent.Program.Isolation == agent.StrongIsolation {
		s.Tier = sandbox.Strong
	}
	if r := b.agent.Resources; r != nil {
		// The sandbox reads 0 as its default, but in a manifest 0 means none.
		s.MemoryMB, s.DiskMB, s.Wall, s.NoDisk = r.MemoryMB, r.DiskMB, r.WallClock, r.DiskMB == 0
		switch {
		case r.WallClock == 0:
			return s, noBudget("cpu_ms_per_task is 0, so the program has no time to run")
		case r.MemoryMB == 0:
			return s, noBudget("memory_mb is 0, so the program has no memory")
		}
	}
	if f := b.findEntry(&s); f != nil {
		return s, f
	}
	var policy egress.Policy
	switch b.network() {
	case agent.NetworkHTTPS:
		policy.Mode = egress.ModeHTTPS
	case agent.NetworkFull:
		policy.Mode = egress.ModeFull
	default:
		return s, nil
	}
	s.Network = egress.NewNetwork(egress.NewDialer(b.options.Egress), policy, decided)
	if file := b.options.Egress.CAFile(); file != "" {
		file, err := resolved(file)
		if err != nil {
			return s, failed(NotStarted, "the certificate authority for development cannot be read: %v", err)
		}
		const inside = "/authority.pem"
		s.Mounts = append(s.Mounts, sandbox.Mount{Source: file, To: inside})
		s.Env = append(s.Env, "SSL_CERT_FILE="+inside, "NODE_EXTRA_CA_CERTS="+inside)
	}
	return s, nil
}

func noBudget(why string) *call.Refusal {
	f := failed(NotStarted, "%s", why)
	f.Hint = "set the budget that a task needs in the manifest"
	return f
}

// logEgress returns a function that logs the decisions of a proxy.
func logEgress(log func(string)) func(egress.Decision) {
	return func(d egress.Decision) {
		if d.Refusal != nil {
			log("egress: " + d.Refusal.Error())
			return
		}
		log("egress: connected to " + d.Host + ":" + d.Port)
	}
}

// A program sees these folders inside the sandbox.
const (
	agentDir = "/agent"
	entryDir = "/entry"
)

// findEntry finds the entry file. It sets the command, the mounts and the working directory of a run.
func (b *binding) findEntry(s *sandbox.Spec) *call.Refusal {
	p := b.agent.Program
	folder, err := resolved(filepath.Dir(b.options.Manifest))
	if err != nil {
		return failed(NotStarted, "the manifest's folder was not found: %v", err)
	}
	entry := p.Entry
	if !filepath.IsAbs(entry) {
		entry = filepath.Join(folder, entry)
	}
	if entry, err = resolved(entry); err != nil {
		f := failed(NotStarted, "the entry %s cannot be found", diag.Quote(p.Entry))
		f.Hint = "build the program first, or correct its path in the manifest; the path is relative to the manifest"
		return f
	}
	inside := sandbox.Inside(entry, folder)
	if !inside && !filepath.IsAbs(p.Entry) {
		return failed(NotStarted, "the entry %s is outside the manifest's folder", diag.Quote(p.Entry))
	}
	s.Dir = agentDir
	switch {
	case filepath.Base(b.options.Manifest) != "agent.toml": // other manifests in the folder may belong to other agents
		folder = filepath.Dir(entry)
		inside = true
	case !inside && !sandbox.Inside(entry, "/usr"):
		if f := b.checkVisible(filepath.Dir(entry)); f != nil {
			return f
		}
		s.Mounts = append(s.Mounts, sandbox.Mount{Source: filepath.Dir(entry), To: entryDir})
	}
	if f := b.checkVisible(folder); f != nil {
		return f
	}
	s.Mounts = append(s.Mounts, sandbox.Mount{Source: folder, To: agentDir})
	seen, top := entry, filepath.Dir(entry)
	switch {
	case inside:
		top = folder
		seen = agentDir + strings.TrimPrefix(entry, strings.TrimSuffix(folder, "/"))
	case !sandbox.Inside(entry, "/usr"):
		seen = filepath.Join(entryDir, filepath.Base(entry))
	}
	if f := b.checkReadable(entry, top); f != nil {
		return f
	}
	switch p.Runtime {
	case agent.RustBin:
		s.Argv = []string{seen}
	case agent.Python3, agent.Node:
		s.Argv = []string{string(p.Runtime), seen}
	default:
		return failed(NotStarted, "unknown runtime %s", diag.Quote(string(p.Runtime)))
	}
	return nil
}

// checkVisible refuses a folder that contains files that the program must not see.
func (b *binding) checkVisible(folder string) *call.Refusal {
	f := failed(NotStarted, "the program's folder %s contains files that the program must not see", diag.Quote(folder))
	f.Hint = "move the program to a folder of its own"
	whole := []string{"/"} // the program's folder must not contain any of these folders
	if home, err := os.UserHomeDir(); err == nil {
		whole = append(whole, home)
	}
	var private []string // the program's folder must neither contain these folders nor be inside them
	if dir := b.options.Home.Dir(); dir != "" {
		whole = append(whole, dir)
		private = []string{filepath.Dir(b.options.Home.Root()), b.options.Home.State(), filepath.Join(dir, "secrets")}
	}
	for i, path := range append(whole, private...) {
		path, err := resolved(path)
		if err == nil && (sandbox.Inside(path, folder) || i >= len(whole) && sandbox.Inside(folder, path)) {
			return f
		}
	}
	return nil
}

// checkReadable checks that the entry is a regular file. If ambit is root, the unprivileged user of the sandbox must
// also be able to read the entry and its folders. The second argument is the highest folder that the program sees.
// Without a sandbox, the program runs as root, and permissions are not checked.
func (b *binding) checkReadable(entry, top string) *call.Refusal {
	info, err := os.Stat(entry)
	if err == nil && !info.Mode().IsRegular() {
		return failed(NotStarted, "the entry is not a regular file")
	}
	rust := b.agent.Program.Runtime == agent.RustBin
	if rust && err == nil && info.Mode()&0o111 == 0 && runtime.GOOS != "windows" {
		f := failed(NotStarted, "the entry is not executable")
		f.Hint = "run: chmod +x " + diag.ShellWord(entry)
		return f
	}
	if os.Geteuid() != 0 || b.options.Unconfined {
		return nil
	}
	what, need := "the entry", os.FileMode(0o004)
	if rust {
		need = 0o001
	}
	for path := entry; sandbox.Inside(path, top); path = filepath.Dir(path) {
		if info, err := os.Stat(path); err == nil && info.Mode()&need == 0 {
			f := failed(NotStarted, "%s is readable only by its owner, but the program runs as another user", what)
			f.Hint = "to make the program's folder readable, run: chmod -R o+rX FOLDER; " +
				"for an installed program, do this in the folder it was installed from, then install it again"
			return f
		}
		what, need = "the entry's folder", 0o001
	}
	return nil
}

func resolved(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}
