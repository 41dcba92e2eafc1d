// Package program runs agents that are programs, in a sandbox: one line of JSON in,
// one line of JSON out. It also runs code bundles ([Bundle]).
//
// The contract is enforced strictly. The program reads exactly one line, its intent,
// and then the end of input. It writes exactly one line, its answer, and exits with
// code 0. Blank lines are ignored. Any other behaviour is a [Failure] whose [Reason]
// shows the program's author what to fix. Stderr goes to the operator's log.
//
// The sandbox enforces the network access, memory, disk and time of the manifest.
// The program sees the folder of its manifest, read-only, as its working directory.
// If the manifest is in a folder of manifests, it sees the folder of its entry
// instead. It never sees a folder with ambit's own files, or a whole home directory.
//
// The effect of a failed run depends on its network access. Without network there
// is none. With network, a run that was killed has an unknown effect, and a run that
// exited by itself counts as done.
package program

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
)

// Options configure the runs of an agent's program.
type Options struct {
	// Manifest is the path of the manifest. A relative entry starts at its folder.
	Manifest string
	// Isolation is the tier; empty means the standard one.
	Isolation sandbox.Tier
	// Unconfined runs the program without a sandbox. Only an explicit flag of the
	// operator may set it.
	Unconfined bool
	// Egress holds the development switches for network access.
	Egress egress.Switches
	// Pubkey returns the public key of a principal for the intent; nil leaves it
	// empty.
	Pubkey func(principal string) string
	// Memory holds the agent's earlier answers; nil if there is no memory.
	Memory Memory
	// Log receives the program's stderr and its connections, line by line.
	Log func(line string)
	// Pool provides prepared sandboxes; nil makes one for every run.
	Pool *sandbox.Pool
	// Home is hidden from programs, except for the agents in it. Sandboxes store
	// there what this machine supports.
	Home home.Home
}

// Reason is how a program broke its contract.
type Reason string

const (
	NotStarted  Reason = "not_started"
	NoAnswer    Reason = "no_answer"
	TwoAnswers  Reason = "two_answers"
	BadJSON     Reason = "bad_json"
	WrongIntent Reason = "wrong_intent"
	BadStatus   Reason = "bad_status"
	StatusError Reason = "status_error"
	ExitCode    Reason = "exit_code"
	TooLarge    Reason = "too_large"
	OOM         Reason = "oom"
	TimedOut    Reason = "timed_out"
	Cancelled   Reason = "cancelled"
)

// Failure is a refusal with the code program_failed, and its reason.
type Failure struct {
	*call.Refusal
	Reason Reason
}

// Unwrap returns the refusal.
func (f *Failure) Unwrap() error { return f.Refusal }

func failed(reason Reason, format string, args ...any) *Failure {
	r := call.Refuse(sandbox.Stage, call.ProgramFailed, "%s: %s", reason, fmt.Sprintf(format, args...))
	r.Reason, r.Unsent = string(reason), reason == NotStarted
	return &Failure{r, reason}
}

// binding runs the program of one agent.
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

// The bounds of one run.
const (
	maxAnswer    = 16 << 20 // bytes of stdout
	maxLog       = 16 << 20 // bytes of stderr
	maxProcesses = 256
)

// Act runs the program for one intent.
func (b *binding) Act(ctx context.Context, t *agent.Tool, c *call.Call) (call.Result, error) {
	if _, ok := t.Binding.(agent.RunProgram); !ok || b.agent.Program == nil || b.agent.Program.Contract != agent.OneLine {
		return call.Result{}, failed(NotStarted, "%s is not a program that reads one line", diag.Quote(t.Name))
	}
	line, id, err := b.intent(c)
	if err != nil {
		return call.Result{}, call.Unsent(err)
	}
	spec, err := b.spec(line)
	if err != nil {
		return call.Result{}, err
	}
	removeMemory, err := b.mountMemory(ctx, c, &spec)
	if err != nil {
		return call.Result{}, call.Unsent(err)
	}
	defer removeMemory()
	stderr := &transcript{to: spec.OnStderr, sum: sha256.New()}
	spec.OnStderr = stderr.line
	run := sandbox.Run
	if b.options.Unconfined {
		run = unconfined
	}
	out, err := run(ctx, spec)
	if err != nil {
		err = notRun(ctx, err, b.setEffect)
		if f, ok := errors.AsType[*Failure](err); ok && f.Reason == NotStarted {
			f.Hint = "check runtime and entry: rust-bin needs an executable entry; python3 and node must be installed under /usr"
		}
	} else if f := exitFailure(&out, spec.Wall); f != nil {
		err = b.setEffect(f)
	}
	result := call.Result{Duration: out.Duration, Log: stderr.reference()}
	if err != nil {
		return result, err
	}
	a, f := readAnswer(out.Stdout, id)
	if f != nil {
		return result, b.setEffect(f)
	}
	result.Raw, err = a.result()
	return result, err
}

// transcript forwards the lines of stderr, and computes what identifies them in a
// log.
type transcript struct {
	to func(line string)

	mu    sync.Mutex
	lines int
	bytes int64
	sum   hash.Hash
}

func (t *transcript) line(text string) {
	t.mu.Lock()
	t.lines++
	t.bytes += int64(len(text)) + 1
	t.sum.Write([]byte(text + "\n"))
	t.mu.Unlock()
	t.to(text)
}

// reference returns the journal's reference to the lines; empty if there were none.
func (t *transcript) reference() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines == 0 {
		return ""
	}
	return fmt.Sprintf("stderr: %d lines, %d bytes, sha256:%x", t.lines, t.bytes, t.sum.Sum(nil))
}

// notRun converts the error of a run without an outcome. setEffect adds the effect
// of a run that was interrupted.
func notRun(ctx context.Context, err error, setEffect func(*Failure) error) error {
	switch {
	case errors.Is(err, sandbox.ErrNotStarted):
		return failed(NotStarted, "%v", err)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return setEffect(failed(TimedOut, "the call timed out and the program was killed"))
	case ctx.Err() != nil:
		return setEffect(failed(Cancelled, "the call was cancelled and the program was killed"))
	}
	return call.Unsent(err) // no sandbox could be made
}

// exitFailure returns the failure of a program that did not exit with code 0.
func exitFailure(out *sandbox.Outcome, wall time.Duration) *Failure {
	switch {
	case out.TimedOut:
		f := failed(TimedOut, "the program did not exit within %s and was killed", wall)
		f.Hint = "make it faster, or raise cpu_ms_per_task in the manifest"
		return f
	case out.TooLarge != "":
		return failed(TooLarge, "the program wrote more to %s than is allowed and was killed", out.TooLarge)
	case out.ExitCode != 0 && out.OOM:
		f := failed(OOM, "the program exceeded its memory limit and was killed")
		f.Hint = "make it use less memory, or raise memory_mb in the manifest; files that it writes count too"
		return f
	case out.Signal != 0:
		return failed(ExitCode, "the program was killed by signal %d", out.Signal)
	case out.ExitCode != 0:
		return failed(ExitCode, "the program exited with code %d", out.ExitCode)
	}
	return nil
}

// setEffect sets the possible effect of a failed run.
func (b *binding) setEffect(f *Failure) error {
	if b.network() != agent.NetworkOff {
		f.Effect = effectOf(f.Reason)
	}
	return f
}

// effectOf returns the effect of a failed run that could reach a host.
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
		return agent.NetworkFull // the manifest's setting is not enforced
	}
	if b.agent.Resources == nil {
		return agent.NetworkOff
	}
	return b.agent.Resources.Network
}

// spec describes the run for one intent.
func (b *binding) spec(line []byte) (sandbox.Spec, error) {
	s := sandbox.Spec{
		Tier: b.options.Isolation, Stdin: line, PIDs: maxProcesses, MaxStdout: maxAnswer, MaxStderr: maxLog,
		OnStderr: b.options.Log, Proofs: b.options.Home.Dir(), Pool: b.options.Pool,
	}
	if r := b.agent.Resources; r != nil {
		s.MemoryMB, s.DiskMB, s.Wall = r.MemoryMB, r.DiskMB, r.WallClock
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
	s.Egress = egress.NewProxy(egress.NewDialer(b.options.Egress), policy, logEgress(b.options.Log)).Serve
	if file := b.options.Egress.CAFile(); file != "" {
		file, err := resolved(file)
		if err != nil {
			return s, failed(NotStarted, "the development authority cannot be read: %v", err)
		}
		const inside = "/authority.pem"
		s.Mounts = append(s.Mounts, sandbox.Mount{Source: file, To: inside})
		s.Env = append(s.Env, "SSL_CERT_FILE="+inside, "NODE_EXTRA_CA_CERTS="+inside)
	}
	return s, nil
}

// logEgress logs the decisions of a proxy.
func logEgress(log func(string)) func(egress.Decision) {
	return func(d egress.Decision) {
		if d.Refusal != nil {
			log("egress: " + d.Refusal.Error())
			return
		}
		log("egress: connected to " + d.Host + ":" + d.Port)
	}
}

// The folders that a program sees.
const (
	agentDir = "/agent"
	entryDir = "/entry"
)

// findEntry finds the entry and sets the command and the mounts of a run.
func (b *binding) findEntry(s *sandbox.Spec) *Failure {
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
		f.Hint = "build the program first, or correct entry; it is relative to the manifest"
		return f
	}
	inside := within(folder, entry)
	if !inside && !filepath.IsAbs(p.Entry) {
		return failed(NotStarted, "the entry %s is outside the manifest's folder", diag.Quote(p.Entry))
	}
	s.Dir = agentDir
	switch {
	case filepath.Base(b.options.Manifest) != "agent.toml": // in a folder of manifests
		folder = filepath.Dir(entry)
		inside = true
	case !inside && !within("/usr", entry):
		if f := b.visible(filepath.Dir(entry)); f != nil {
			return f
		}
		s.Mounts = append(s.Mounts, sandbox.Mount{Source: filepath.Dir(entry), To: entryDir})
	}
	if f := b.visible(folder); f != nil {
		return f
	}
	s.Mounts = append(s.Mounts, sandbox.Mount{Source: folder, To: agentDir})
	seen, top := entry, filepath.Dir(entry)
	switch {
	case inside:
		top = folder
		seen = agentDir + strings.TrimPrefix(entry, strings.TrimSuffix(folder, "/"))
	case !within("/usr", entry):
		seen = filepath.Join(entryDir, filepath.Base(entry))
	}
	if f := b.readable(entry, top); f != nil {
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

// visible refuses a folder that contains more than the program may see.
func (b *binding) visible(folder string) *Failure {
	f := failed(NotStarted, "the program's folder %s contains files that the program must not see", diag.Quote(folder))
	f.Hint = "move the program to a folder of its own"
	whole := []string{"/"} // folders that must not be seen as a whole
	if home, err := os.UserHomeDir(); err == nil {
		whole = append(whole, home)
	}
	var private []string // folders of which no part may be seen
	if dir := b.options.Home.Dir(); dir != "" {
		whole = append(whole, dir)
		private = []string{filepath.Dir(b.options.Home.Root()), b.options.Home.State(), filepath.Join(dir, "secrets")}
	}
	for _, path := range append(whole, private...) {
		path, err := resolved(path)
		if err == nil && within(folder, path) {
			return f
		}
	}
	for _, path := range private {
		path, err := resolved(path)
		if err == nil && within(path, folder) {
			return f
		}
	}
	return nil
}

// readable checks that the unprivileged user of the sandbox can read the entry, if
// ambit runs as root. It checks the folders up to top, the highest one that the
// program sees. Without a sandbox, the program runs as root and needs no check.
func (b *binding) readable(entry, top string) *Failure {
	info, err := os.Stat(entry)
	if err == nil && !info.Mode().IsRegular() {
		return failed(NotStarted, "the entry is not a regular file")
	}
	if os.Geteuid() != 0 || b.options.Unconfined {
		return nil
	}
	what, need := "the entry", os.FileMode(0o004)
	if b.agent.Program.Runtime == agent.RustBin {
		need = 0o001
	}
	for path := entry; within(top, path); path = filepath.Dir(path) {
		if info, err := os.Stat(path); err == nil && info.Mode()&need == 0 {
			f := failed(NotStarted, "%s is readable only by its owner, and programs never run as root", what)
			f.Hint = "make the program's folder readable with chmod -R o+rX; " +
				"for an installed program, change the folder it was installed from and install it again"
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

// within reports whether path is folder or inside it.
func within(folder, path string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}
