// Package sandbox runs untrusted programs in isolation.
//
// The tier [Standard] combines several mechanisms. Bubblewrap creates the namespaces. A cgroup limits memory,
// processes and CPU. Package shim adds Landlock rules, a seccomp filter and rlimits. If ambit is root, the program
// runs with a user id that no account has.
//
// The program sees the system folders of the machine and its mounts. All of them are read-only, except mounts with
// the field Write set. HOME and /tmp are on a memory disk of fixed size. The program inherits no environment
// variables and no open files other than stdin, stdout and stderr. Its only network interface is a private loopback.
//
// The tier [Strong] uses gVisor's runsc instead of bubblewrap, Landlock and seccomp. gVisor's kernel handles the
// program's system calls.
//
// Design decisions:
//
//   - A run is never isolated less than requested. Before the first run, test programs called
//     canaries try forbidden actions. For example, they open a forbidden file, create a Unix
//     socket, and allocate too much memory. If a forbidden action succeeds, all runs are refused
//     with the code isolation_unavailable.
//   - Every run fails closed. The shim applies all restrictions and reports that they are in
//     force. The same thread then executes the program.
//   - No process outlives its run. The first process of the pid namespace belongs to bubblewrap.
//     When this process ends, the kernel kills all other processes in the namespace. This process
//     is killed when bubblewrap ends, and bubblewrap is killed when ambit ends, even if ambit is
//     killed. The program starts only after this chain is complete. Until then, a watcher process
//     protects the run: when ambit ends, the watcher kills the processes that remain in ambit's
//     cgroups. At the deadline of a run, ambit kills the processes in the run's cgroup until the
//     cgroup is empty.
//   - If ambit is root, bubblewrap runs in its own mount namespace, because the run's unprivileged
//     user can reach the mounts there.
//   - For network access, seccomp reports each connect call. ambit dials the host and connects the
//     program's socket to a relay in the sandbox, as package supervisor describes. In gVisor, the
//     shim listens as a proxy and requests each connection from ambit.
//   - Files on the memory disk count toward the memory limit. The kernel accounts for them as
//     memory.
//   - The source path of a mount must not contain a symbolic link.
//   - The sandbox of a program that must not start other programs ([Spec.NoExec]) contains no other
//     programs. Of the system folders, it shows only libraries and data. Writable mounts are noexec.
//     Landlock allows only listed files to be executed. A supervisor refuses and reports every other
//     execve.
//   - A [Pool] makes sandboxes in advance, by the code that a run uses otherwise. Each sandbox is
//     used for one run.
//
// Programs at the standard tier use the kernel of the machine. A vulnerability in the kernel can break their
// isolation.
package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
)

// Tier is the strength of the isolation. A run is refused if its tier is not available.
type Tier string

const (
	// Standard uses bubblewrap, cgroups, Landlock and seccomp.
	Standard Tier = "standard"
	// Strong uses gVisor, which has its own kernel.
	Strong Tier = "strong"
	// Confined is Standard without a time limit, for tool servers. On a machine without delegated cgroups, rlimits
	// limit the number of processes and the memory of each process, and nothing limits CPU.
	Confined Tier = "confined"
)

// Mount makes a file or folder of this machine visible to the program. A mount is read-only unless Write is set.
type Mount struct {
	// Source is the absolute path of a file or folder on this machine. It must not contain a symbolic link. The
	// program sees the file or folder at the absolute path To.
	Source, To string
	// Write lets the program change a folder permanently. Spec.DiskMB limits the size of each file in the folder. In the
	// tier [Confined], DiskMB also limits the total size of the folder if Give is set.
	Write bool
	// AsOwner gives the program the rights of the file's owner. Files that the program creates belong to the owner.
	// AsOwner has no effect unless ambit is root.
	AsOwner bool
	// Hide shows an empty folder at To. Source is not used.
	Hide bool
	// Give makes the run's user the owner of everything in a writable folder, if ambit is root. In the tier
	// [Confined], Spec.DiskMB limits the size of the folder. If the folder exceeds the limit before a run, the run
	// does not start. If the folder exceeds the limit during a run, ambit ends the run at the next check. ambit
	// checks every 10 seconds, or less often if a check takes long.
	Give bool
}

// Spec describes one run.
type Spec struct {
	// Tier defaults to Standard.
	Tier Tier
	// Argv is the program and its arguments. The program is looked up in the PATH of the sandbox.
	Argv []string
	// Dir is the working directory. It defaults to Home.
	Dir    string
	Mounts []Mount
	// Env lists additional environment variables as NAME=value. The program inherits no variables of ambit.
	Env []string
	// Stdin is the program's complete input.
	Stdin []byte
	// Talk, if not nil, receives the stdin and stdout of an interactive program. In that case, the fields Stdin,
	// MaxStdout and Outcome.Stdout are not used. Talk must not block. ambit closes the streams when the run ends.
	Talk func(stdin io.WriteCloser, stdout io.ReadCloser)

	// MemoryMB, DiskMB and PIDs default to 512, 100 and 64. CPU is a number of cores and defaults to 1. In the tier
	// [Confined], the defaults are 4096, 4096, 512 and all cores.
	MemoryMB, DiskMB, PIDs int64
	// NoDisk leaves the program one page of scratch space and ignores DiskMB.
	NoDisk bool
	CPU    float64
	// Wall is the time limit of the run. It defaults to 30 seconds. In the tier Confined, there is no limit by default.
	Wall time.Duration
	// Grace is the time between SIGTERM and SIGKILL when the context of the run ends. If Grace is 0, the program gets
	// SIGKILL at once.
	Grace time.Duration
	// MaxStdout and MaxStderr are in bytes and default to 16 MiB. A program that writes more is killed.
	MaxStdout, MaxStderr int64

	// Network is the program's access to the network. If Network is nil, the program has no network access.
	Network *egress.Network
	// NoExec forbids the program to start other programs, except those in Programs. An entry of Programs is a path, a
	// name, or a folder of programs. No other program exists in the sandbox, and files in writable mounts and in
	// memory cannot be executed. OnExec receives the path of each refused program. OnExec may be nil. The tier Strong
	// ignores NoExec.
	NoExec   bool
	Programs []string
	OnExec   func(path string)
	// OwnerHome is the home of the person who runs the program. If a program in Programs is in OwnerHome, the
	// sandboxed program can also start it through links in the sandbox's own home.
	OwnerHome string
	// Observe, if not nil, receives each file that the program tries to open, change, inspect or execute. A path is a path
	// inside the sandbox. If a call only inspects a file, as stat does, use.Kind is [shim.Look]. Call found to check
	// whether the file exists in the sandbox, but not after Observe returns. Observe may be called concurrently. The
	// program can change a path while ambit reads it, so Observe must not be used for decisions. The tier Strong does not
	// call Observe.
	Observe func(use agent.Right, found func() bool)
	// OnStderr receives each line of stderr.
	OnStderr func(line string)
	// Pool provides prepared sandboxes. If Pool is nil, the run gets a new sandbox.
	Pool *Pool
	// Proofs is the folder that stores the results of the canaries. If Proofs is empty, the results are kept only
	// in memory.
	Proofs string
}

// Outcome is the result of a run.
type Outcome struct {
	// ExitCode is the program's exit code. A program that is killed by signal N has the exit code 128+N.
	ExitCode int
	// Signal is ExitCode-128 if the exit code is above 128. Otherwise, Signal is 0.
	Signal int
	// OOM reports whether the kernel killed a process because memory ran out.
	OOM bool
	// TimedOut reports whether the program was killed at the deadline. TooLarge names the output that exceeded its
	// limit: stdout, stderr or disk.
	TimedOut bool
	TooLarge string
	Stdout   []byte
	Duration time.Duration
	// MaxRSS is the peak memory use of the whole run in bytes. It includes files on the memory disk.
	MaxRSS int64
}

// Home is the program's home folder on the memory disk.
const Home = "/scratch/home"

// ErrNotStarted means that the sandbox was ready but the program could not be executed.
var ErrNotStarted = errors.New("the program could not be started")

// Stage is the value of [call.Refusal.Stage] if a run is refused.
const Stage = "act"

// Run runs a program and returns when all of its processes have exited. If the tier is not available, the error is a
// refusal with the code isolation_unavailable. If the program cannot be executed, the error wraps ErrNotStarted. If
// ctx is canceled or times out, the error wraps context.Cause(ctx).
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

// Check returns nil if the tier is available on this machine. Otherwise, the error names the missing mechanism.
// The proofs parameter is the folder described at [Spec.Proofs].
func Check(ctx context.Context, t Tier, proofs string) error {
	t = cmp.Or(t, Standard)
	if err := t.validate(); err != nil {
		return err
	}
	return check(ctx, t, proofs)
}

func (t Tier) validate() error {
	if t == Standard || t == Strong || t == Confined {
		return nil
	}
	return unavailable(t, Missing{"tier", "unknown isolation tier", "use --isolation standard or --isolation strong"})
}

// maxMB is the largest limit in MiB. Larger numbers could overflow in the conversion to bytes.
const maxMB = 1 << 30

// These are the default limits of a confined server. CPU is not limited, because a server waits most of the time.
const (
	confinedMB   = 4 << 10 // the default limits of memory and of disk, in MiB
	confinedPIDs = 512
	confinedCPU  = 1 << 10
)

func (s *Spec) defaults() {
	s.Tier, s.Dir = cmp.Or(s.Tier, Standard), cmp.Or(s.Dir, Home)
	if s.Tier == Confined {
		s.MemoryMB, s.DiskMB = cmp.Or(max(s.MemoryMB, 0), confinedMB), cmp.Or(max(s.DiskMB, 0), confinedMB)
		s.PIDs, s.CPU = cmp.Or(max(s.PIDs, 0), confinedPIDs), cmp.Or(max(s.CPU, 0), confinedCPU)
	}
	s.MemoryMB = min(cmp.Or(max(s.MemoryMB, 0), 512), maxMB)
	s.DiskMB = min(cmp.Or(max(s.DiskMB, 0), 100), maxMB)
	s.PIDs = cmp.Or(max(s.PIDs, 0), 64)
	s.MaxStdout = cmp.Or(max(s.MaxStdout, 0), 16<<20)
	s.MaxStderr = cmp.Or(max(s.MaxStderr, 0), 16<<20)
	s.CPU = cmp.Or(max(s.CPU, 0), 1)
	if s.Tier != Confined {
		s.Wall = cmp.Or(max(s.Wall, 0), 30*time.Second)
	}
}

// Missing describes a mechanism that isolation needs but this machine does not have.
type Missing struct {
	// The field What contains the name of the mechanism, for example "bubblewrap", "user namespace" or "cgroup memory".
	What, Detail, Fix string
}

// Unavailable is the error for a run whose isolation tier is not available.
type Unavailable struct {
	*call.Refusal
	Missing Missing
}

// Unwrap returns the refusal.
func (u *Unavailable) Unwrap() error { return u.Refusal }

func unavailable(t Tier, m Missing) error {
	r := call.Refuse(Stage, call.IsolationUnavailable,
		"the %s isolation tier is not available on this machine; missing: %s (%s)", t, m.What, m.Detail)
	r.Hint = cmp.Or(m.Fix, r.Hint)
	return &Unavailable{r, m}
}

// Finding describes the state of one mechanism on this machine.
type Finding struct {
	Name        string
	OK          bool
	Detail, Fix string
}

// SurveyStrong runs the canaries of the strong tier. It looks for runsc in the given folder and then in PATH. The
// results of the canaries are stored in the same folder.
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
	f.OK, f.Detail = true, fmt.Sprintf("the %s isolation tier works: it blocked all forbidden actions in a test", t)
	return f
}

// Inside reports whether a path is the given folder or inside it.
func Inside(path, folder string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}
