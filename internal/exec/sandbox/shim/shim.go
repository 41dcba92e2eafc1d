// Package shim is the code that runs between ambit and a program in the sandbox.
//
// ambit starts its own binary again in one of four roles. The role [Shim] runs inside bubblewrap's sandbox. It
// applies the restrictions that bubblewrap does not provide: rlimits, Landlock and seccomp. It reports that the
// restrictions are in force, waits for its order, and executes the program. The role [Guest] replaces the shim in
// gVisor. The role [Holder] keeps a user namespace open. The role [Watcher] runs once for each ambit process. It
// waits until ambit has ended and kills the remaining processes.
//
// The [Plan] describes a sandbox, and the [Order] describes a program. A sandbox can therefore be made before its
// program is known.
//
// The roles start in an init function. Every binary that can start a sandbox thus contains the roles, including test
// binaries. Go initializes packages in the order of their import paths, each as soon as its own imports are ready.
// This package must not import packages that become ready late, such as net and net/netip. With such imports, most of
// ambit would be initialized before a role starts.
//
// The shim never ignores a failure. It reports the failure on the control socket and exits before the program starts.
// Plan and order are passed in memory files, because other users can read the arguments of a process.
package shim

// Each of these command-line arguments selects a role of the shim.
const (
	Shim = "ambit-sandbox-shim"
	// Guest selects the shim inside gVisor.
	Guest = "ambit-sandbox-guest"
	// Holder selects the process that keeps a user namespace open.
	Holder = "ambit-sandbox-holder"
	// Watcher selects the process that kills all remaining processes after ambit has exited.
	Watcher = "ambit-sandbox-watcher"
)

// These are the file descriptors that ambit passes to a role.
const (
	// FDControl is a socket to ambit. It carries [Message] values.
	FDControl = 3 + iota
	// FDExe is ambit's binary. The binary has no path inside the sandbox.
	FDExe
	// FDPlan is a memory file that contains the [Plan].
	FDPlan
	// FDStatus is a pipe. Bubblewrap writes the pid of the first process to it.
	FDStatus
	// FDOrder is a memory file. ambit writes the [Order] to it.
	FDOrder
	// FDGate is a socket. A prestarted interpreter waits until it receives a byte from this socket.
	FDGate
	// FDData is the first of the files that bubblewrap copies into the sandbox.
	FDData
)

// ProxyPort is the loopback port of the network proxy inside the sandbox.
const ProxyPort = 3128

// Look is the kind of use for a call that only inspects a file, as stat does. Such a call neither reads nor changes the
// file's content.
const Look = "look"

// Plan describes a sandbox.
type Plan struct {
	// The program can open only these files. ReadOnly lists files and folders, ReadWrite lists folders, and Devices
	// lists device files.
	ReadOnly, ReadWrite, Devices []string
	// FileSize is the maximum size of a file in bytes.
	FileSize uint64
	// Processes is the maximum number of processes. Memory is the maximum data size of each process in bytes; it is set
	// if no cgroup limits the memory. 0 means no limit.
	Processes, Memory uint64
	// If Listen is set, the shim listens at ProxyPort inside gVisor.
	Listen bool
	// If Network is set, the shim opens a socket for the resolver and a listener for the relay, and passes both to ambit.
	// The filter then reports connect calls to ambit.
	Network bool
	// UnixSockets lets the program make Unix sockets. It needs Network. The shim reports the mounts of the folders in
	// Private to ambit.
	UnixSockets bool
	Private     []string
	// NoExec reports execve calls to ambit, makes every writable mount noexec, and refuses memory files that can be
	// executed. Landlock then lets the program execute only the paths in Execute. Execute lists files and folders; a
	// folder stands for all files in it.
	NoExec  bool
	Execute []string
	// Cover contains the programs that the shim makes unreadable. It needs NoExec.
	Cover []string
	// Expected lists the files and folders that the mounts must show. While bubblewrap makes the mounts, another
	// program could replace a folder in a source path with a link, so the shim checks the mounts afterwards.
	Expected []Mounted
	// If Renames is set, the filter reports to ambit each call that renames a file or gives it a second name.
	Renames bool
	// If Observe is set, the filter reports to ambit each call that opens, changes or inspects a file by its path, and
	// each execve.
	Observe bool
}

// Reports returns true if the filter passes system calls to ambit. In that case, the program must not start without a
// supervisor.
func (p *Plan) Reports() bool { return p.Network || p.NoExec || p.Renames || p.Observe }

// Mounted is the file or folder at a path inside the sandbox.
type Mounted struct {
	To            string
	Device, Inode uint64
}

// Order describes what runs in a sandbox.
type Order struct {
	Argv, Env []string
	Dir       string
	// Gate keeps the descriptor FDGate open for a prestarted interpreter.
	Gate bool
	// Canary, if not empty, is the canary that runs instead of a program.
	Canary string
}

// MaxOrder is the maximum size of a plan or an order in bytes. It exceeds the kernel's limit for arguments and
// environment.
const MaxOrder = 1 << 24

// Go is ambit's reply to [Restricted]. It confirms that the order has been written. It also proves that ambit was
// still running when all restrictions were in force. If ambit exits later, the kernel kills the sandbox.
const Go = "go"

// Message is a message from the shim to ambit over the control socket.
type Message struct {
	Kind string
	// The field What names the mechanism that failed. Text is the error.
	What, Text string
	// Private contains the numbers of the mounts at Plan.Private.
	Private []uint64 `json:",omitempty"`
}

// These are the kinds of messages.
const (
	// Sockets carries the descriptors of the resolver's socket and the relay's listener.
	Sockets = "sockets"
	// Notify carries the descriptor that reports system calls.
	Notify = "notify"
	// Restricted reports that all restrictions are in force. The shim then waits for its order.
	Restricted = "restricted"
	// Ready is sent immediately before the program is executed.
	Ready = "ready"
	// Failed reports a mechanism that could not be set up.
	Failed = "failed"
	// NotStarted reports that the program could not be executed.
	NotStarted = "not-started"
	// Dial requests a connection to the proxy. ambit's reply carries the connection's descriptor.
	Dial = "dial"
	// CanaryReport is the result of a canary.
	CanaryReport = "canary-report"
)

// A canary is a test program that tries forbidden actions.
const (
	// CanaryRules tries actions that Landlock and seccomp must refuse.
	CanaryRules = "rules"
	// CanaryForks starts processes until the kernel refuses to start another one.
	CanaryForks = "forks"
	// CanaryMemory allocates memory until the kernel kills the canary.
	CanaryMemory = "memory"
	// CanaryDisk writes files until the disk is full.
	CanaryDisk = "disk"
	// CanaryKernel checks that the program runs on gVisor's kernel. The second argument is the release of the machine's
	// kernel.
	CanaryKernel = "kernel"
)

// CanaryFile exists in every sandbox, and its mode permits reading. Landlock must still deny access, because the
// file is not listed in Plan.ReadOnly.
const CanaryFile = "/canary"
