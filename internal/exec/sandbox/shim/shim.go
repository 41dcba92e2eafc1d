// Package shim is what runs between ambit and a program in the sandbox.
//
// ambit starts itself again, twice. As [Enter], outside, it joins the run's
// cgroups, brings the mounts within reach of an unprivileged user, becomes that
// user and turns into bubblewrap. As [Shim], inside, it puts on what bubblewrap
// cannot (rlimits, Landlock, seccomp), says so, waits for its order, and turns
// into the program. A sandbox can so be made ready before there is anything to
// run in it: the plan says what it is, the order what happens there. As [Watcher]
// it is started once, and outlives ambit by the moment that it takes to end what
// was left running.
//
// Both happen in an init function, so that any binary which can start a sandbox
// can also be started as its parts, a test binary too, and before most packages
// that ambit needs for other things have been initialised. Those that this one
// imports come before it, so that it does without net, os/exec and path/filepath:
// they alone would let a hundred others go first, twice a start.
//
// Nothing is best effort. What fails is reported on the control socket and the
// process ends; the program is then never started. What the two are told is a
// [Plan] and an [Order] in memory files and not in arguments or environment,
// which others on the machine can read.
package shim

// The words that make a process one of the parts.
const (
	Enter = "ambit-sandbox-enter"
	Shim  = "ambit-sandbox-shim"
	// Guest is the shim inside gVisor.
	Guest = "ambit-sandbox-guest"
	// Watcher is beside ambit, and ends what is left when ambit has ended.
	Watcher = "ambit-sandbox-watcher"
)

// The file descriptors that the parts find open.
const (
	// FDControl is a socket to ambit. [Message] is what goes over it.
	FDControl = 3 + iota
	// FDExe is ambit's own file. Inside there is no path to it.
	FDExe
	// FDPlan holds the plan.
	FDPlan
	// FDStatus is where bubblewrap tells the pid of its first process.
	FDStatus
	// FDOrder holds the order, once it has been given.
	FDOrder
	// FDGate is a pipe that a pre-started interpreter waits at.
	FDGate
	// FDData is the first of the files that bubblewrap copies in.
	FDData
)

// ProxyAddress is where a program finds the way out.
const ProxyAddress = "127.0.0.1:3128"

// Plan is what both parts are told.
type Plan struct {
	// Parent is the process that the run must not outlive.
	Parent int
	// Join are the tasks files of the run's cgroups of the first version. The
	// thread that goes on as bubblewrap writes itself to them: to move a thread
	// that asks for it costs the kernel nothing, to move a process makes it wait
	// for every processor.
	Join []string
	// User is who bubblewrap runs as; 0 is whoever starts it.
	User int
	// Stage are paths that the user may be unable to reach. They are found
	// as StagePath says.
	Stage []string
	// Exec is what [Enter] becomes: bubblewrap or gVisor, and its arguments.
	Exec []string
	// Guest says that it is gVisor.
	Guest bool
	// Data is how many files from FDData on are for it.
	Data int

	// ReadOnly are files and folders, ReadWrite folders, Devices files; nothing
	// else is open to the program.
	ReadOnly, ReadWrite, Devices []string
	FileSize                     uint64
	// Listen asks for a listener at ProxyAddress, which is handed out.
	Listen bool
}

// Order is what happens in a sandbox that stands.
type Order struct {
	Argv, Env []string
	Dir       string
	// Gate leaves FDGate open: the program is an interpreter that waits there.
	Gate bool
	// Canary, if set, is what is tried in place of a program.
	Canary string
}

// MaxOrder is how long a plan or an order may be. The kernel starts no program
// with as much.
const MaxOrder = 1 << 24

// Go is the word that an order has been given. It answers [Worn]: whoever says it
// lived when all that ends with ambit had been arranged.
const Go = "go"

// StageDir is where staged paths appear to bubblewrap, in a mount namespace of
// the run's own.
const StageDir = "/tmp"

// Message is one message over the control socket.
type Message struct {
	// Kind is one of the kinds below.
	Kind string
	// What names the mechanism that failed; Text says how.
	What, Text string
}

// The kinds of messages.
const (
	// Listener comes with the listener's file descriptor.
	Listener = "listener"
	// Worn says that every restriction is in place, and that the order is waited
	// for.
	Worn = "worn"
	// Ready says that the program comes next.
	Ready = "ready"
	// Failed says that a mechanism could not be put in place.
	Failed = "failed"
	// NotStarted says that the program could not be executed.
	NotStarted = "not-started"
	// Dial asks for a connection to the way out; the answer comes with it.
	Dial = "dial"
	// Sang is what became of a canary.
	Sang = "sang"
)

// The canaries.
const (
	// CanaryRules tries what Landlock and seccomp must refuse.
	CanaryRules = "rules"
	// CanaryForks starts processes until it is stopped.
	CanaryForks = "forks"
	// CanaryMemory takes memory until it is stopped.
	CanaryMemory = "memory"
	// CanaryDisk writes until it is stopped.
	CanaryDisk = "disk"
	// CanaryKernel looks whose kernel it is; its second word is the release of
	// this machine's.
	CanaryKernel = "kernel"
)

// CanaryFile is there, readable to everybody, and not among ReadOnly.
const CanaryFile = "/canary"
