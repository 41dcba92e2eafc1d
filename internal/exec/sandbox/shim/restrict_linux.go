package shim

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// restrict applies the restrictions, waits for the order and executes it.
func restrict() error {
	p, err := read[Plan](FDPlan, "plan")
	if err != nil {
		return err
	}
	if err := unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return mechanismError("close_range", err)
	}
	if p.Listen {
		if err := listen(); err != nil {
			return mechanismError("network namespace", err)
		}
	}
	if err := limits(p); err != nil {
		return mechanismError("rlimits", err)
	}
	if err := confine(p); err != nil {
		return mechanismError("landlock", err)
	}
	if err := filter(); err != nil {
		return mechanismError("seccomp", err)
	}
	send(Message{Kind: Restricted}, nil)
	o, err := awaitOrder()
	if err != nil {
		return err
	}
	return execute(o)
}

// awaitOrder waits for [Go] and reads the order, which was written before it.
func awaitOrder() (*Order, error) {
	var word [len(Go)]byte
	n, err := 0, error(unix.EINTR)
	for err == unix.EINTR {
		n, _, err = unix.Recvfrom(FDControl, word[:], 0)
	}
	if err != nil || string(word[:n]) != Go {
		return nil, mechanismError("order", errors.New("ambit sent no order"))
	}
	return read[Order](FDOrder, "order")
}

// execute executes the program.
func execute(o *Order) error {
	if err := os.Chdir(o.Dir); err != nil {
		return mechanismError("mounts", err)
	}
	if o.Gate {
		if _, err := unix.FcntlInt(FDGate, unix.F_SETFD, 0); err != nil {
			return mechanismError("gate", err)
		}
	}
	send(Message{Kind: Ready}, nil)
	if o.Canary != "" {
		runCanary(o)
	}
	err := syscall.Exec(find(o), o.Argv, o.Env)
	send(Message{Kind: NotStarted, Text: err.Error()}, nil)
	syscall.Exit(127)
	return nil
}

// find returns the file of the program. If it is not found, the name is returned and
// its execution fails.
func find(o *Order) string {
	if strings.Contains(o.Argv[0], "/") {
		return o.Argv[0]
	}
	for _, e := range o.Env {
		path, ok := strings.CutPrefix(e, "PATH=")
		if !ok {
			continue
		}
		for dir := range strings.SplitSeq(path, ":") {
			if file := dir + "/" + o.Argv[0]; dir != "" && executable(file) {
				return file
			}
		}
	}
	return o.Argv[0]
}

// executable reports whether a path is an executable file. Folders have the same
// permission bit.
func executable(path string) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && unix.Access(path, unix.X_OK) == nil
}

// listener listens at ProxyAddress.
func listener() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	at := netip.MustParseAddrPort(ProxyAddress)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err != nil {
		return 0, err
	}
	return fd, unix.Listen(fd, 128)
}

// listen opens the proxy's listener and passes it to ambit: a socket belongs to the
// namespace in which it was made, and can be used from any other.
func listen() error {
	fd, err := listener()
	if err != nil {
		return err
	}
	send(Message{Kind: Listener}, unix.UnixRights(fd))
	return unix.Close(fd)
}

// OpenFiles and LockedMemory are limits of one process.
const (
	OpenFiles    = 1024
	LockedMemory = 64 << 10
)

func limits(p *Plan) error {
	for _, l := range []struct {
		resource int
		max      uint64
	}{
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_FSIZE, p.FileSize},
		{unix.RLIMIT_NOFILE, OpenFiles},
		{unix.RLIMIT_MEMLOCK, LockedMemory},
		{unix.RLIMIT_MSGQUEUE, 0},
	} {
		var old unix.Rlimit
		if err := unix.Prlimit(0, l.resource, nil, &old); err != nil {
			return err
		}
		l.max = min(l.max, old.Max)
		if err := unix.Prlimit(0, l.resource, &unix.Rlimit{Cur: l.max, Max: l.max}, nil); err != nil {
			return err
		}
	}
	return nil
}

// minLandlock is the first version that controls moving files between folders.
const minLandlock = 2

var errOldLandlock = errors.New("the kernel has no Landlock, or a version that is too old; Linux 5.19 or newer is required")

// Access rights to files; those that the kernel does not know are masked.
const (
	readsFiles  = ll.AccessFSExecute | ll.AccessFSReadFile
	readsTree   = readsFiles | ll.AccessFSReadDir
	writesFiles = readsFiles | ll.AccessFSWriteFile | ll.AccessFSTruncate
)

// handled returns all rights that a version of Landlock can deny.
func handled(version int) *ll.RulesetAttr {
	a := &ll.RulesetAttr{HandledAccessFS: ll.AccessFSRefer<<1 - 1}
	if version >= 3 {
		a.HandledAccessFS |= ll.AccessFSTruncate
	}
	if version >= 5 {
		a.HandledAccessFS |= ll.AccessFSIoctlDev
	}
	if version >= 6 {
		a.Scoped = ll.ScopeAbstractUnixSocket | ll.ScopeSignal
	}
	return a
}

// confine limits the program to the files of the plan, with all rules of the kernel's
// version. They apply to this thread, which executes the program; see [setUser].
func confine(p *Plan) error {
	version, err := ll.LandlockGetABIVersion()
	if err != nil || version < minLandlock {
		return errOldLandlock
	}
	all := handled(version)
	rules, err := ll.LandlockCreateRuleset(all, 0)
	if err != nil {
		return err
	}
	defer unix.Close(rules)
	allow := func(paths []string, tree, file uint64) error {
		for _, path := range paths {
			if err := allowBeneath(rules, path, tree&all.HandledAccessFS, file&all.HandledAccessFS); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
		return nil
	}
	if err := errors.Join(
		allow(p.ReadOnly, readsTree, readsFiles),
		allow(p.ReadWrite, all.HandledAccessFS&^ll.AccessFSIoctlDev, writesFiles),
		allow(p.Devices, 0, writesFiles),
	); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return ll.LandlockRestrictSelf(rules, 0)
}

// allowBeneath adds one rule: the rights below a folder, or to a file.
func allowBeneath(rules int, path string, tree, file uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	access := file
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		access = tree
	}
	return ll.LandlockAddPathBeneathRule(rules, &ll.PathBeneathAttr{AllowedAccess: access, ParentFd: fd}, 0)
}
