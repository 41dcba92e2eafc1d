// Package sandbox runs a program that nobody has reason to trust.
//
// At the tier [Standard] a program gets an unprivileged user of its own, a
// cgroup that bounds memory, processes and CPU, namespaces by bubblewrap with
// nothing in them but the runtimes of this machine and the mounts it was given,
// all read-only, and by package shim Landlock, a seccomp filter and rlimits. It
// writes to one sized memory disk (HOME and /tmp), inherits no environment and
// no file but its three pipes, and has no network but its own loopback, where a
// proxy may listen.
//
// The decisions:
//
//   - Never less than was asked for. Before the first run canaries try what must
//     not work: to open a file, a socket and a namespace, to find something open, to
//     start processes, to take memory and to fill the disk. What is not stopped
//     refuses every run with isolation_unavailable. Whether a file such as bwrap
//     exists proves nothing, so nobody asks.
//   - Every run fails closed too. The shim says when it is in place; the program
//     is executed after that word, by the same thread.
//   - The tree dies as a whole. Its first process belongs to bubblewrap and not to
//     the program; the kernel ends a pid namespace with it. It ends with bubblewrap,
//     and that with the thread which started it, so also when ambit is killed. While
//     a sandbox is being made that is not certain yet, so the program is not begun
//     before, and a process beside ambit ends what is left in its cgroups.
//     At the deadline both it and everything in the cgroup are killed, until the
//     cgroup is empty.
//   - Root does not run bubblewrap. It becomes a user that exists nowhere, a new
//     one each time, in a mount namespace where that user can reach the mounts.
//   - The way out is a listener that the shim makes inside and hands to ambit,
//     which accepts outside. There is no socket file, no process in between and no
//     question whose connection it is: the policy belongs to the listener.
//   - Files on the memory disk count as memory: the kernel charges both alike.
//   - What is shown of this machine leads through no symbolic link.
//   - A sandbox can be made before there is something to run in it ([Pool]). It is
//     the same code, and the same sandbox; it is used once.
//
// At the tier [Strong] gVisor's runsc takes the place of bubblewrap, Landlock and
// seccomp: the program talks to a kernel of gVisor's own. Cgroup, user, pipes and
// canaries are the same.
//
// The standard tier shares the kernel with everybody else; a hole in the kernel
// is a way out.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// Tier is how far a program is kept away.
type Tier string

// The tiers. Where one cannot be had, none below it is taken.
const (
	// Standard is bubblewrap, cgroups, Landlock and seccomp.
	Standard Tier = "standard"
	// Strong is a kernel of its own, by gVisor.
	Strong Tier = "strong"
)

// Mount shows a file or folder of this machine to the program, read-only unless it
// says otherwise.
type Mount struct {
	// Source is here, To is where the program sees it. Both are absolute, and
	// Source leads through no symbolic link.
	Source, To string
	// Write lets the program change a folder, and what it writes there stays. Its
	// size is not bounded by DiskMB, only each file is.
	Write bool
	// Give makes everything in a writable folder the program's own, where ambit is
	// root and the program runs as somebody else.
	Give bool
}

// Spec is one run.
type Spec struct {
	// Tier is Standard if it is empty.
	Tier Tier
	// Argv is the program with its arguments, found by the sandbox's own PATH.
	Argv []string
	// Dir is where it starts; empty is its home.
	Dir    string
	Mounts []Mount
	// Env are further variables as NAME=value. Nothing else is inherited.
	Env []string
	// Stdin is what it can read; then comes the end.
	Stdin []byte
	// Talk is given the program's input and output in place of Stdin and Stdout,
	// for one that is talked with. It must not block. Both are closed when the
	// run has ended, and MaxStdout is left to whoever reads.
	Talk func(stdin io.WriteCloser, stdout io.ReadCloser)

	// MemoryMB, DiskMB and PIDs have defaults of 512, 100 and 64. CPU is in cores
	// and 1 by default.
	MemoryMB, DiskMB, PIDs int64
	CPU                    float64
	// Wall is the time from start to end; 0 is 30 seconds.
	Wall time.Duration
	// MaxStdout and MaxStderr are in bytes, 16 MiB each by default. More than
	// that ends the run.
	MaxStdout, MaxStderr int64

	// Egress serves the way out, until the listener is closed; nil leaves the
	// program without any.
	Egress func(net.Listener)
	// OnStderr is told each line that the program writes there.
	OnStderr func(line string)
	// Pool may have a sandbox waiting; nil makes one for this run.
	Pool *Pool
	// Proofs is a folder that remembers what canaries found out; empty leaves it
	// to this process.
	Proofs string
}

// Outcome is what became of a run.
type Outcome struct {
	// ExitCode is the program's; 128 and more is a signal, by convention.
	ExitCode int
	// Signal is the one that ended it; 0 if none did.
	Signal int
	// OOM says that something was killed for want of memory.
	OOM bool
	// TimedOut says that it was killed at the deadline, TooLarge that it wrote
	// too much and where: stdout or stderr.
	TimedOut bool
	TooLarge string
	Stdout   []byte
	Duration time.Duration
	// MaxRSS is the most memory that the whole tree had, in bytes, files on its
	// disk included.
	MaxRSS int64
}

// Home is the program's own writable folder. /tmp is writable too.
const Home = "/scratch/home"

// ErrNotStarted says that the sandbox stood and the program could not be
// executed in it.
var ErrNotStarted = errors.New("the program could not be started")

// Stage is where runs are refused.
const Stage = "act"

// Run runs a program and returns when nothing of it is left. An error is a
// refusal with the code isolation_unavailable, or wraps ErrNotStarted or what
// ended ctx.
func Run(ctx context.Context, s Spec) (Outcome, error) {
	s.defaults()
	if err := s.Tier.known(); err != nil {
		return Outcome{}, err
	}
	if len(s.Argv) == 0 {
		return Outcome{}, fmt.Errorf("%w: there is no program to run", ErrNotStarted)
	}
	return run(ctx, s)
}

// Check reports what is missing on this machine for a tier; nil if nothing is.
func Check(ctx context.Context, t Tier, proofs string) error {
	if t == "" {
		t = Standard
	}
	if err := t.known(); err != nil {
		return err
	}
	return check(ctx, t, proofs)
}

// known refuses a tier that there is not.
func (t Tier) known() error {
	if t == Standard || t == Strong {
		return nil
	}
	return lacks(t, []Missing{{"tier", "there is none of that name", "ask for --isolation standard or strong"}})
}

// mostMB is more than any machine has, and still a number of bytes: past it, a
// bound would come out as none.
const mostMB = 1 << 30

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
	s.MemoryMB, s.DiskMB = min(s.MemoryMB, mostMB), min(s.DiskMB, mostMB)
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

// Missing is one thing that isolation needs and this machine does not give.
type Missing struct {
	// What is the mechanism: bubblewrap, user namespace, cgroup memory, …
	What, Detail, Fix string
}

// Unavailable is a refusal that knows what is missing.
type Unavailable struct {
	*call.Refusal
	Missing []Missing
}

// Unwrap gives the refusal.
func (u *Unavailable) Unwrap() error { return u.Refusal }

func lacks(t Tier, missing []Missing) error {
	var what, fixes []string
	for _, m := range missing {
		what = append(what, m.What+" ("+m.Detail+")")
		if m.Fix != "" {
			fixes = append(fixes, m.Fix)
		}
	}
	r := call.Refuse(Stage, call.IsolationUnavailable, "the isolation %s cannot be given here; missing: %s", t, strings.Join(what, ", "))
	if len(fixes) > 0 {
		r.Hint = strings.Join(fixes, "; ")
	}
	return &Unavailable{r, missing}
}
