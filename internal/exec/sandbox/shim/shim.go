// Package shim is the code that runs between ambit and a program in the sandbox.
//
// ambit starts its own binary again in three roles. As [Enter], outside the sandbox,
// it joins the run's cgroups, makes the mounts reachable for an unprivileged user,
// switches to that user and executes bubblewrap. As [Shim], inside, it applies the
// restrictions that bubblewrap does not have (rlimits, Landlock, seccomp), reports
// that they are in force, waits for its order, and executes the program. So a
// sandbox can be made before its program is known: the [Plan] describes the sandbox,
// the [Order] the program. As [Watcher], started once, it waits for the end of ambit
// and kills what is left running.
//
// The roles start in an init function. So any binary that can start a sandbox also
// contains its parts, test binaries included, and most of ambit's packages are not
// initialised first. Imported packages are initialised before this one. That is why
// it avoids net, os/exec and path/filepath: they would add about a hundred packages
// to each of the two starts of a run.
//
// Nothing is best effort. A failure is reported on the control socket and the
// process exits, so the program is never started. Plan and order are passed in
// memory files, because other users can read arguments and environments.
package shim

// The arguments that select a role.
const (
	Enter = "ambit-sandbox-enter"
	Shim  = "ambit-sandbox-shim"
	// Guest is the shim inside gVisor.
	Guest = "ambit-sandbox-guest"
	// Watcher runs beside ambit and kills what is left when ambit has ended.
	Watcher = "ambit-sandbox-watcher"
)

// The open file descriptors of the roles.
const (
	// FDControl is a socket to ambit that carries [Message] values.
	FDControl = 3 + iota
	// FDExe is ambit's binary, which has no path inside.
	FDExe
	// FDPlan contains the plan.
	FDPlan
	// FDStatus receives the pid of the first process from bubblewrap.
	FDStatus
	// FDOrder contains the order, once it is written.
	FDOrder
	// FDGate is a pipe at which a prestarted interpreter waits.
	FDGate
	// FDData is the first of the files that bubblewrap copies in.
	FDData
)

// ProxyAddress is the address of the network proxy inside.
const ProxyAddress = "127.0.0.1:3128"

// Plan describes a sandbox.
type Plan struct {
	// Parent is the process that the run must not outlive.
	Parent int
	// Join lists the tasks files of the run's version 1 cgroups. The thread that
	// executes bubblewrap writes itself to them: moving the calling thread is free,
	// moving a process makes the kernel wait for every processor.
	Join []string
	// User is the user of bubblewrap; 0 means the current user.
	User int
	// Stage lists paths that the user may be unable to reach. Path i is available
	// at StagePath(i).
	Stage []string
	// Exec is the command that [Enter] executes: bubblewrap or gVisor.
	Exec []string
	// Guest reports that Exec is gVisor.
	Guest bool
	// Data is the number of files from FDData on.
	Data int

	// ReadOnly are files and folders, ReadWrite folders, Devices files. The program
	// can open nothing else.
	ReadOnly, ReadWrite, Devices []string
	FileSize                     uint64
	// Listen requests a listener at ProxyAddress, which is passed to ambit.
	Listen bool
}

// Order describes what runs in a sandbox.
type Order struct {
	Argv, Env []string
	Dir       string
	// Gate leaves FDGate open for an interpreter that waits there.
	Gate bool
	// Canary, if set, runs instead of a program.
	Canary string
}

// MaxOrder bounds the size of a plan or an order. It exceeds the kernel's limit for
// arguments and environment.
const MaxOrder = 1 << 24

// Go is the message that the order is written. It is ambit's answer to [Restricted], and
// proves that ambit was alive after everything was set up to end with ambit.
const Go = "go"

// StageDir is where bubblewrap finds staged paths, in the run's own mount namespace.
const StageDir = "/tmp"

// Message is one message over the control socket.
type Message struct {
	Kind string
	// What names the mechanism that failed; Text is the error.
	What, Text string
}

// The kinds of messages.
const (
	// Listener carries the listener's file descriptor.
	Listener = "listener"
	// Restricted reports that all restrictions are in force and the shim waits for
	// its order.
	Restricted = "restricted"
	// Ready is sent immediately before the program is executed.
	Ready = "ready"
	// Failed reports a mechanism that could not be set up.
	Failed = "failed"
	// NotStarted reports that the program could not be executed.
	NotStarted = "not-started"
	// Dial requests a network connection; the answer carries its descriptor.
	Dial = "dial"
	// CanaryReport is the result of a canary.
	CanaryReport = "canary-report"
)

// The canaries.
const (
	// CanaryRules tries actions that Landlock and seccomp must refuse.
	CanaryRules = "rules"
	// CanaryForks starts processes until it is stopped.
	CanaryForks = "forks"
	// CanaryMemory allocates memory until it is stopped.
	CanaryMemory = "memory"
	// CanaryDisk writes until it is stopped.
	CanaryDisk = "disk"
	// CanaryKernel checks that the kernel is gVisor's; its second argument is the
	// release of this machine's kernel.
	CanaryKernel = "kernel"
)

// CanaryFile exists in every sandbox, is readable by its mode, and is not in
// Plan.ReadOnly.
const CanaryFile = "/canary"
