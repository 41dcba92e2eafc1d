// Package sandbox runs untrusted programs.
//
// At the tier [Standard] a program gets its own unprivileged user, a cgroup that
// bounds memory, processes and CPU, and bubblewrap's namespaces. Package shim adds
// Landlock, a seccomp filter and rlimits. The program sees the runtimes of this
// machine and its mounts, all read-only. It writes to one memory disk of fixed size
// (HOME and /tmp). It inherits no environment and no files except its three pipes.
// Its only network is its own loopback, where a proxy may listen.
//
// The decisions:
//
//   - Never weaker than requested. Before the first run, canaries try forbidden
//     actions: they open a file, a socket and a namespace, look for inherited
//     descriptors, start processes, allocate memory and fill the disk. If one of
//     these is not stopped, every run is refused with isolation_unavailable. The
//     existence of a file such as bwrap proves nothing and is not used as a test.
//   - Every run fails closed. The shim reports when all restrictions are in force.
//     The same thread executes the program after that.
//   - The process tree dies as a whole. Its first process belongs to bubblewrap, not
//     to the program, and the kernel ends a pid namespace with its first process.
//     That process ends with bubblewrap, and bubblewrap ends with the thread that
//     started it, also if ambit is killed. This chain is not complete while a sandbox
//     is being made, so the program does not begin before, and a watcher process
//     kills what an ended ambit leaves in its cgroups. At the deadline all processes
//     in the cgroup are killed until it is empty.
//   - If ambit is root, bubblewrap runs as a user id that no account has, a new one
//     for each run, in a mount namespace where that user can reach the mounts.
//   - Network access is a listener that the shim opens inside and passes to ambit,
//     which accepts outside. There is no socket file and no process in between, and
//     the listener identifies the run, so its policy applies to all its connections.
//   - Files on the memory disk count as memory, because the kernel charges both
//     alike.
//   - A mount's source contains no symbolic link.
//   - A sandbox can be made before its run ([Pool]), by the same code. It is used
//     once.
//
// At the tier [Strong] gVisor's runsc replaces bubblewrap, Landlock and seccomp: the
// program's system calls go to gVisor's kernel. Cgroup, user, pipes and canaries are
// the same.
//
// Programs at the standard tier share the machine's kernel, so a vulnerability in
// the kernel can break the isolation.
package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// Tier is the strength of the isolation. An unavailable tier is never replaced by a
// weaker one.
type Tier string

const (
	// Standard is bubblewrap, cgroups, Landlock and seccomp.
	Standard Tier = "standard"
	// Strong is gVisor's own kernel.
	Strong Tier = "strong"
)

// Mount shows a file or folder of this machine to the program, read-only unless
// Write is set.
type Mount struct {
	// Source is the path on this machine, To the path inside. Both are absolute, and
	// Source contains no symbolic link.
	Source, To string
	// Write lets the program change a folder; the changes persist. DiskMB bounds
	// each file in it, but not its total size.
	Write bool
	// Give makes the program's user the owner of everything in a writable folder, if
	// ambit is root.
	Give bool
}

// Spec describes one run.
type Spec struct {
	// Tier defaults to Standard.
	Tier Tier
	// Argv is the program with its arguments, found by the sandbox's own PATH.
	Argv []string
	// Dir is the working directory; empty means Home.
	Dir    string
	Mounts []Mount
	// Env are further variables as NAME=value. Nothing else is inherited.
	Env []string
	// Stdin is the complete input.
	Stdin []byte
	// Talk receives the program's input and output, in place of Stdin and
	// Outcome.Stdout, for an interactive program. It must not block. Both are closed
	// at the end of the run. MaxStdout does not apply.
	Talk func(stdin io.WriteCloser, stdout io.ReadCloser)

	// MemoryMB, DiskMB and PIDs default to 512, 100 and 64. CPU is in cores and
	// defaults to 1.
	MemoryMB, DiskMB, PIDs int64
	CPU                    float64
	// Wall is the time limit of the run; 0 means 30 seconds.
	Wall time.Duration
	// MaxStdout and MaxStderr are in bytes, 16 MiB each by default. A program that
	// writes more is killed.
	MaxStdout, MaxStderr int64

	// Egress serves the program's network connections until the listener is closed;
	// nil means no network.
	Egress func(net.Listener)
	// OnStderr receives each line of stderr.
	OnStderr func(line string)
	// Pool provides prepared sandboxes; nil makes one for this run.
	Pool *Pool
	// Proofs is a folder that stores the results of the canaries; empty keeps them
	// in this process.
	Proofs string
}

// Outcome is the result of a run.
type Outcome struct {
	// ExitCode is the program's; above 128 it is a signal, by convention.
	ExitCode int
	// Signal killed the program; 0 if none did.
	Signal int
	// OOM reports that a process was killed because memory ran out.
	OOM bool
	// TimedOut reports that the program was killed at the deadline. TooLarge names
	// the stream that exceeded its limit: stdout or stderr.
	TimedOut bool
	TooLarge string
	Stdout   []byte
	Duration time.Duration
	// MaxRSS is the peak memory of all processes in bytes, with files on the disk.
	MaxRSS int64
}

// Home is the program's writable folder. /tmp is writable too.
const Home = "/scratch/home"

// ErrNotStarted means that the sandbox was ready but the program could not be
// executed.
var ErrNotStarted = errors.New("the program could not be started")

// Stage is the stage of the refusals of runs.
const Stage = "act"

// Run runs a program and returns when all its processes have ended. The error is a
// refusal with the code isolation_unavailable, or wraps ErrNotStarted or the cause
// of ctx's end.
func Run(ctx context.Context, s Spec) (Outcome, error) {
	s.defaults()
	if err := s.Tier.validate(); err != nil {
		return Outcome{}, err
	}
	if len(s.Argv) == 0 {
		return Outcome{}, fmt.Errorf("%w: there is no program to run", ErrNotStarted)
	}
	return run(ctx, s)
}

// Check returns an error that lists what a tier lacks on this machine.
func Check(ctx context.Context, t Tier, proofs string) error {
	if t == "" {
		t = Standard
	}
	if err := t.validate(); err != nil {
		return err
	}
	return check(ctx, t, proofs)
}

// validate refuses an unknown tier.
func (t Tier) validate() error {
	if t == Standard || t == Strong {
		return nil
	}
	return unavailable(t, []Missing{{"tier", "unknown name", "use --isolation standard or --isolation strong"}})
}

// maxMB is more than any machine has. A larger limit would overflow as a number of
// bytes, and so be no limit.
const maxMB = 1 << 30

func (s *Spec) defaults() {
	if s.Tier == "" {
		s.Tier = Standard
	}
	set := func(v *int64, to int64) {
		if *v <= 0 {
			*v = to
		}
	}
	set(&s.MemoryMB, 512)
	set(&s.DiskMB, 100)
	s.MemoryMB, s.DiskMB = min(s.MemoryMB, maxMB), min(s.DiskMB, maxMB)
	set(&s.PIDs, 64)
	set(&s.MaxStdout, 16<<20)
	set(&s.MaxStderr, 16<<20)
	if s.CPU <= 0 {
		s.CPU = 1
	}
	if s.Wall <= 0 {
		s.Wall = 30 * time.Second
	}
	if s.Dir == "" {
		s.Dir = Home
	}
}

// Missing is a mechanism that isolation needs and this machine lacks.
type Missing struct {
	// What names the mechanism: bubblewrap, user namespace, cgroup memory, …
	What, Detail, Fix string
}

// Unavailable is a refusal that lists what is missing.
type Unavailable struct {
	*call.Refusal
	Missing []Missing
}

// Unwrap returns the refusal.
func (u *Unavailable) Unwrap() error { return u.Refusal }

func unavailable(t Tier, missing []Missing) error {
	var what, fixes []string
	for _, m := range missing {
		what = append(what, m.What+" ("+m.Detail+")")
		if m.Fix != "" {
			fixes = append(fixes, m.Fix)
		}
	}
	r := call.Refuse(Stage, call.IsolationUnavailable,
		"the isolation tier %s is not available on this machine; missing: %s", t, strings.Join(what, ", "))
	r.Hint = cmp.Or(strings.Join(fixes, "; "), r.Hint)
	return &Unavailable{r, missing}
}

// Finding is the state of one mechanism.
type Finding struct {
	Name        string
	OK          bool
	Detail, Fix string
}

// SurveyStrong checks with canaries whether the tier strong is available. folder may
// contain runsc, and stores the proof.
func SurveyStrong(ctx context.Context, folder string) Finding {
	return surveyTier(ctx, "gvisor", Strong, folder)
}

func surveyTier(ctx context.Context, name string, t Tier, proofs string) Finding {
	f := Finding{Name: name}
	if err := Check(ctx, t, proofs); err != nil {
		f.Detail = err.Error()
		if u, ok := errors.AsType[*Unavailable](err); ok {
			f.Detail, f.Fix = u.Message, u.Hint
		}
		return f
	}
	f.OK, f.Detail = true, fmt.Sprintf("the isolation tier %s works: all canaries were stopped", t)
	return f
}
