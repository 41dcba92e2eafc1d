package shim

import (
	"errors"
	"maps"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// refusedCalls lists system calls that the filter refuses, because programs do not need them, or because attackers
// have used them to escape from sandboxes. The filter also refuses every system call that is newer than this list.
var refusedCalls = []uint32{
	// access to other processes
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE,
	unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
	// creation of namespaces and mounts
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
	unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_MOUNT_SETATTR, unix.SYS_STATMOUNT, unix.SYS_LISTMOUNT,
	// access to files without a path
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK,
	unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	// io_uring, which bypasses the filter
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	// code in the kernel, and control of memory pages
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE,
	unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_MEMFD_SECRET, unix.SYS_MBIND, unix.SYS_SET_MEMPOLICY,
	unix.SYS_SET_MEMPOLICY_HOME_NODE, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
	// kernel memory that all users share
	unix.SYS_IO_SETUP,
	// the kernel's keyrings
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	// control of the machine
	unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME,
	unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_SYSLOG,
	unix.SYS_VHANGUP, unix.SYS_PERSONALITY, unix.SYS_NFSSERVCTL, unix.SYS_LOOKUP_DCOOKIE,
}

// These are offsets in the kernel's struct seccomp_data. Arguments are little-endian 64-bit words. For the arguments
// that the filter checks, the kernel uses only the lower half, so the filter reads only the lower half.
const (
	offNumber = 0
	offArch   = 4
	offArg0   = 16
	offArg1   = 24
	offArg2   = 32
	offArg3   = 40
)

// modeCalls maps system calls to the offset of a file mode. createCalls maps system calls to the offsets of the flags
// and the mode. The mode of these calls matters only if the flags create a file.
var (
	modeCalls = withArch(map[uint32]uint32{
		unix.SYS_FCHMOD: offArg1, unix.SYS_FCHMODAT: offArg2, unix.SYS_FCHMODAT2: offArg2, unix.SYS_MKDIRAT: offArg2,
		unix.SYS_MKNODAT: offArg2,
	}, modeCallsOnArch)
	createCalls = withArch(map[uint32][2]uint32{unix.SYS_OPENAT: {offArg2, offArg3}}, createCallsOnArch)
)

func withArch[V any](calls, onArch map[uint32]V) map[uint32]V {
	maps.Copy(calls, onArch)
	return calls
}

// setID are the bits of a file mode that let other users run a program with the rights of its owner or group.
const setID = unix.S_ISUID | unix.S_ISGID

// createsFile are the flags that make open create a file and use its mode argument.
const createsFile = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY

const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

var (
	allow   = bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	eperm   = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	enosys  = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}
	notify  = bpf.RetConstant{Val: unix.SECCOMP_RET_USER_NOTIF}
	killAll = bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS}
)

// socketTypes returns instructions that allow sockets of two types and refuse all others.
func socketTypes(a, b uint32) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArg1, Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf}, // the other bits of the type are flags
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: a, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: b, SkipTrue: 1},
		eperm, allow,
	}
}

func rules(p *Plan) []bpf.Instruction {
	prog := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		killAll,
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
		// Refuse calls that are newer than the list above, and calls of the x32 ABI.
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: newest, SkipFalse: 1},
		enosys,
	}
	for _, number := range append(refusedCalls, refusedOnArch...) {
		prog = append(prog, bpf.JumpIf{Cond: bpf.JumpEqual, Val: number, SkipFalse: 1}, eperm)
	}
	when := func(number uint32, body ...bpf.Instruction) {
		prog = append(prog, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: number, SkipTrue: uint8(len(body))})
		prog = append(prog, body...)
	}
	// Refuse set-id bits in file modes. The sandbox ignores set-id bits, but the machine does not: a set-id program
	// in a declared folder would run there with the rights of the folder's owner. The filter cannot read the mode of
	// openat2, which is in memory, so report that openat2 does not exist.
	when(unix.SYS_OPENAT2, enosys)
	number := bpf.LoadAbsolute{Off: offNumber, Size: 4}
	for call, mode := range modeCalls {
		when(call, bpf.LoadAbsolute{Off: mode, Size: 4}, bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: setID, SkipFalse: 1}, eperm, number)
	}
	for call, at := range createCalls {
		when(
			call, bpf.LoadAbsolute{Off: at[0], Size: 4}, bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: createsFile, SkipFalse: 3},
			bpf.LoadAbsolute{Off: at[1], Size: 4}, bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: setID, SkipFalse: 1}, eperm, number,
		)
	}
	// Refuse new seccomp listeners: once ambit stops listening, the program's listener could answer in ambit's place.
	when(
		unix.SYS_SECCOMP, bpf.LoadAbsolute{Off: offArg1, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, SkipFalse: 1}, eperm, allow,
	)
	// Refuse leases: with a lease, the program could delay other programs that open the file.
	when(
		unix.SYS_FCNTL, bpf.LoadAbsolute{Off: offArg1, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.F_SETLEASE, SkipFalse: 1}, eperm, allow,
	)
	if p.Network {
		prog = append(prog, bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_CONNECT, SkipFalse: 1}, notify)
	}
	var reported []uint32
	if p.NoExec || p.Observe {
		reported = []uint32{unix.SYS_EXECVE, unix.SYS_EXECVEAT}
	}
	if p.Observe {
		for number, call := range FileCalls {
			if call.Empty == 0 {
				reported = append(reported, uint32(number))
				continue
			}
			when(
				uint32(number), bpf.LoadAbsolute{Off: offArg0 + 8*uint32(call.Empty), Size: 4},
				bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.AT_EMPTY_PATH, SkipTrue: 1}, notify, allow,
			)
		}
	}
	if p.Renames && !p.Observe {
		for number, call := range FileCalls {
			if call.Moves || call.Links {
				reported = append(reported, uint32(number))
			}
		}
	}
	for _, number := range reported {
		prog = append(prog, bpf.JumpIf{Cond: bpf.JumpEqual, Val: number, SkipFalse: 1}, notify)
	}
	if p.NoExec {
		// If memfd_create is called without MFD_NOEXEC_SEAL, report that the call does not exist. Programs that do
		// not know the flag then use a temporary file.
		when(
			unix.SYS_MEMFD_CREATE,
			bpf.LoadAbsolute{Off: offArg1, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.MFD_NOEXEC_SEAL, SkipTrue: 1}, enosys, allow,
		)
	}
	// A filter cannot read the flags of clone3, so report that clone3 does not exist. Libraries then fall back to clone.
	when(unix.SYS_CLONE3, enosys)
	when(
		unix.SYS_CLONE,
		bpf.LoadAbsolute{Off: offArg0, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: newNamespaces, SkipFalse: 1}, eperm, allow,
	)
	// Sockets of these types must connect before they can send. Unix datagram sockets can send without connecting, so
	// they are not allowed.
	local := socketTypes(unix.SOCK_STREAM, unix.SOCK_SEQPACKET)
	// Allow TCP and UDP sockets, which can reach only the sandbox's own loopback interface. Allow Unix sockets if
	// ambit makes each connect call.
	body := []bpf.Instruction{bpf.LoadAbsolute{Off: offArg0, Size: 4}}
	if p.UnixSockets {
		body = append(body, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.AF_UNIX, SkipTrue: uint8(len(local))})
		body = append(body, local...)
	}
	body = append(
		body,
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET6, SkipTrue: 1},
		eperm,
	)
	when(unix.SYS_SOCKET, append(body, socketTypes(unix.SOCK_STREAM, unix.SOCK_DGRAM)...)...)
	// Refuse MSG_FASTOPEN, which connects a socket without a connect call.
	for _, c := range [][2]uint32{{unix.SYS_SENDTO, offArg3}, {unix.SYS_SENDMSG, offArg2}, {unix.SYS_SENDMMSG, offArg3}} {
		when(
			c[0], bpf.LoadAbsolute{Off: c[1], Size: 4},
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.MSG_FASTOPEN, SkipFalse: 1}, eperm, allow,
		)
	}
	// Allow pairs of connected sockets. Event loops need them, and they cannot reach other sockets.
	when(unix.SYS_SOCKETPAIR, append([]bpf.Instruction{
		bpf.LoadAbsolute{Off: offArg0, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_UNIX, SkipTrue: 1},
		eperm,
	}, local...)...)
	// Refuse ioctl requests that simulate typing in the user's terminal.
	when(
		unix.SYS_IOCTL,
		bpf.LoadAbsolute{Off: offArg1, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCSTI, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.TIOCLINUX, SkipTrue: 1}, eperm, allow,
	)
	return append(prog, allow)
}

// filter installs the filter for all threads. Executed programs inherit the filter. If the filter reports system
// calls, the descriptor for the reports is passed to ambit, together with the mount numbers in private.
func filter(p *Plan, private []uint64) error {
	raw, err := bpf.Assemble(rules(p))
	if err != nil {
		return err
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	flags := uintptr(unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH)
	if p.Reports() {
		// With WAIT_KILLABLE_RECV, only a fatal signal interrupts a thread after ambit has received its call. Without
		// the flag, any signal could make the thread repeat the call, and ambit would connect twice.
		flags |= unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags,
		uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	if p.Reports() {
		return errors.Join(send(Message{Kind: Notify, Private: private}, unix.UnixRights(int(fd))), unix.Close(int(fd)))
	}
	return nil
}
