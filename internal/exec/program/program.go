// Package program runs the programs of agents that are one: a line of JSON in, a
// line of JSON out, in a sandbox.
//
// The contract is taken at its word. The program reads exactly one line, its
// intent, and then the end of input. It writes exactly one line, its answer, and
// ends well; blank lines are nothing. Whatever else it does is a [Failure] with a
// reason of its own, so that whoever wrote it knows what to mend. What it writes
// to stderr goes to the operator's log.
//
// A program has the network, memory, disk and time that its manifest says, and
// those are walls, not advice. It sees the folder of its manifest, read-only, as
// its working directory, or, if its manifest lies in a folder of manifests, the
// folder of its entry. It never sees a folder that holds what ambit keeps, or
// somebody's whole home.
//
// What a failed run did to the world depends on what it could reach. Without a
// network that is nothing. With one, a run that was ended from outside leaves it
// unknown; one that came to its own end is done, for better or worse.
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

// Options say how an agent's program is run.
type Options struct {
	// Manifest is the path of the manifest. A relative entry starts at its folder.
	Manifest string
	// Isolation is the tier; empty is the standard one.
	Isolation sandbox.Tier
	// Unconfined runs the program without a sandbox. Nothing but an explicit flag
	// of the operator may set it.
	Unconfined bool
	// Egress are the development switches of the way out.
	Egress egress.Switches
	// Pubkey is the public key of a principal, as its agents see it; nil leaves
	// it empty.
	Pubkey func(principal string) string
	// Memory is what agents remember; nil if nothing is remembered.
	Memory Memory
	// Log is told what the program writes to stderr, and what became of its
	// connections.
	Log func(line string)
	// Pool may have a sandbox waiting; nil makes one for every run.
	Pool *sandbox.Pool
	// Home is what no program may see into, but for agents in it. Sandboxes
	// remember there what this machine can do.
	Home home.Home
}

// Reason is how a program broke its contract.
type Reason string

// The reasons.
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

// Unwrap gives the refusal.
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

// New is the binding of an agent's program.
func New(a *agent.Agent, o Options) call.Binding {
	if o.Log == nil {
		o.Log = func(string) {}
	}
	return &binding{a, o}
}

// maxAnswer bounds the one line, and maxLog what may go to the log.
const (
	maxAnswer = 16 << 20
	maxLog    = 16 << 20
	processes = 256
)

// Act dispatches one intent.
func (b *binding) Act(ctx context.Context, t *agent.Tool, c *call.Call) (call.Result, error) {
	if _, ok := t.Binding.(agent.RunProgram); !ok || b.agent.Program == nil || b.agent.Program.Contract != agent.OneLine {
		return call.Result{}, failed(NotStarted, "%s is not a program that takes one line", diag.Quote(t.Name))
	}
	line, id, err := b.intent(c)
	if err != nil {
		return call.Result{}, call.Unsent(err)
	}
	spec, err := b.spec(line)
	if err != nil {
		return call.Result{}, err
	}
	done, err := b.remind(ctx, c, &spec)
	if err != nil {
		return call.Result{}, call.Unsent(err)
	}
	defer done()
	said := &transcript{to: spec.OnStderr, sum: sha256.New()}
	spec.OnStderr = said.line
	out, err := b.run(ctx, spec)
	if err != nil {
		err = b.notRun(ctx, err)
	} else if f := ended(&out, spec.Wall); f != nil {
		err = b.weigh(f)
	}
	result := call.Result{Duration: out.Duration, Log: said.reference()}
	if err != nil {
		return result, err
	}
	a, f := readAnswer(out.Stdout, id)
	if f != nil {
		return result, b.weigh(f)
	}
	result.Raw, err = a.result()
	return result, err
}

// transcript hands on what a program writes to stderr, and keeps what it takes to
// recognise it in a log.
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

// reference is what the journal says of it; empty if there was nothing.
func (t *transcript) reference() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines == 0 {
		return ""
	}
	return fmt.Sprintf("stderr: %d lines, %d bytes, sha256:%x", t.lines, t.bytes, t.sum.Sum(nil))
}

// notRun is why there is no outcome.
func (b *binding) notRun(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, sandbox.ErrNotStarted):
		f := failed(NotStarted, "%v", err)
		f.Hint = "check runtime and entry; entry must be executable for rust-bin, and python3 or node be installed under /usr"
		return f
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return b.weigh(failed(TimedOut, "the caller's time was up, and the program was ended"))
	case ctx.Err() != nil:
		return b.weigh(failed(Cancelled, "the call was cancelled, and the program was ended"))
	}
	return call.Unsent(err) // there was no sandbox for it
}

// ended judges how a program ended; nil if it ended well.
func ended(out *sandbox.Outcome, wall time.Duration) *Failure {
	switch {
	case out.TimedOut:
		f := failed(TimedOut, "the program did not end within %s and was killed", wall)
		f.Hint = "make it quicker, or raise cpu_ms_per_task in the manifest"
		return f
	case out.TooLarge != "":
		return failed(TooLarge, "the program wrote more to %s than is allowed and was killed", out.TooLarge)
	case out.ExitCode != 0 && out.OOM:
		f := failed(OOM, "the program took more memory than it has and was killed")
		f.Hint = "make it take less, or raise memory_mb in the manifest; files that it writes count too"
		return f
	case out.Signal != 0:
		return failed(ExitCode, "the program was ended by signal %d", out.Signal)
	case out.ExitCode != 0:
		return failed(ExitCode, "the program ended with exit code %d", out.ExitCode)
	}
	return nil
}

// weigh says what a run that failed may have done.
func (b *binding) weigh(f *Failure) error {
	if b.network() == agent.NetworkOff {
		return f
	}
	switch f.Reason {
	case NotStarted:
	case TimedOut, Cancelled, TooLarge, OOM:
		f.Effect = call.EffectUnknown
	default:
		f.Effect = call.EffectDone
	}
	return f
}

func (b *binding) network() agent.NetworkAccess {
	if b.options.Unconfined {
		return agent.NetworkFull // whatever the manifest says, nothing holds it
	}
	if b.agent.Resources == nil {
		return agent.NetworkOff
	}
	return b.agent.Resources.Network
}

// spec is the run of one intent.
func (b *binding) spec(line []byte) (sandbox.Spec, error) {
	s := sandbox.Spec{
		Tier: b.options.Isolation, Stdin: line, PIDs: processes, MaxStdout: maxAnswer, MaxStderr: maxLog,
		OnStderr: b.options.Log, Proofs: b.options.Home.Dir(), Pool: b.options.Pool,
	}
	if r := b.agent.Resources; r != nil {
		s.MemoryMB, s.DiskMB, s.Wall = r.MemoryMB, r.DiskMB, r.WallClock
	}
	if f := b.place(&s); f != nil {
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
	s.Egress = egress.NewProxy(egress.NewDialer(b.options.Egress), policy, b.decided).Serve
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

func (b *binding) decided(d egress.Decision) {
	if d.Refusal != nil {
		b.options.Log("egress: " + d.Refusal.Error())
		return
	}
	b.options.Log("egress: connected to " + d.Host + ":" + d.Port)
}

// Where a program sees its files.
const (
	agentDir = "/agent"
	entryDir = "/entry"
)

// place finds the entry and decides what the program sees.
func (b *binding) place(s *sandbox.Spec) *Failure {
	p := b.agent.Program
	folder, err := resolved(filepath.Dir(b.options.Manifest))
	if err != nil {
		return failed(NotStarted, "the manifest's folder cannot be found: %v", err)
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
		return failed(NotStarted, "the entry %s leads out of the manifest's folder", diag.Quote(p.Entry))
	}
	flat := filepath.Base(b.options.Manifest) != "agent.toml"
	s.Dir = agentDir
	switch {
	case flat:
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
		return failed(NotStarted, "there is no runtime %s", diag.Quote(string(p.Runtime)))
	}
	return nil
}

// visible refuses to show a folder that holds more than a program.
func (b *binding) visible(folder string) *Failure {
	whole := []string{"/"} // not these as a whole
	if home, err := os.UserHomeDir(); err == nil {
		whole = append(whole, home)
	}
	var private []string // and nothing of these
	if dir := b.options.Home.Dir(); dir != "" {
		whole = append(whole, dir)
		private = []string{filepath.Dir(b.options.Home.Root()), b.options.Home.State(), filepath.Join(dir, "secrets")}
	}
	for _, path := range append(whole, private...) {
		path, err := resolved(path)
		if err == nil && within(folder, path) {
			return unseen(folder)
		}
	}
	for _, path := range private {
		path, err := resolved(path)
		if err == nil && within(path, folder) {
			return unseen(folder)
		}
	}
	return nil
}

func unseen(folder string) *Failure {
	f := failed(NotStarted, "the program's folder %s holds things that it must not see", diag.Quote(folder))
	f.Hint = "put the program into a folder of its own"
	return f
}

// readable looks whether root's program can be read by the user that it will
// run as, who is nobody in particular. Folders count up to the top one that it
// sees: what lies above is not in its way. Without a sandbox it runs as root.
func (b *binding) readable(entry, top string) *Failure {
	info, err := os.Stat(entry)
	if err == nil && !info.Mode().IsRegular() {
		return failed(NotStarted, "the entry is not a file")
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
			f := failed(NotStarted, "%s is closed to everybody but its owner, and a program never runs as root", what)
			f.Hint = "open the program's folder to others with chmod -R o+rX; if it is installed, the one that it was installed from, and install it again"
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

// within reports whether path is folder or lies in it.
func within(folder, path string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}
