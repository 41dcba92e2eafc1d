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

// wear puts on the restrictions, waits for the order and carries it out.
func wear() error {
	p, err := read[Plan](FDPlan, "plan")
	if err != nil {
		return err
	}
	if err := unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return lacking("close_range", err)
	}
	if p.Listen {
		if err := listen(); err != nil {
			return lacking("network namespace", err)
		}
	}
	if err := limits(p); err != nil {
		return lacking("rlimits", err)
	}
	if err := confine(p); err != nil {
		return lacking("landlock", err)
	}
	if err := filter(); err != nil {
		return lacking("seccomp", err)
	}
	send(Message{Kind: Worn}, nil)
	o, err := await()
	if err != nil {
		return err
	}
	return obey(o)
}

// await waits for the word, then for nothing: the order was written before it.
func await() (*Order, error) {
	var word [len(Go)]byte
	n, err := 0, error(unix.EINTR)
	for err == unix.EINTR {
		n, _, err = unix.Recvfrom(FDControl, word[:], 0)
	}
	if err != nil || string(word[:n]) != Go {
		return nil, lacking("order", errors.New("none was given"))
	}
	return read[Order](FDOrder, "order")
}

// obey becomes the program.
func obey(o *Order) error {
	if err := os.Chdir(o.Dir); err != nil {
		return lacking("mounts", err)
	}
	if o.Gate {
		if _, err := unix.FcntlInt(FDGate, unix.F_SETFD, 0); err != nil {
			return lacking("gate", err)
		}
	}
	send(Message{Kind: Ready}, nil)
	if o.Canary != "" {
		sing(o)
	}
	err := syscall.Exec(find(o), o.Argv, o.Env)
	send(Message{Kind: NotStarted, Text: err.Error()}, nil)
	syscall.Exit(127)
	return nil
}

// find is the file of the program's first word. What is not found stays as it
// is, and fails when it is executed.
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

// executable reports whether a path is a program. The permission alone says
// nothing: of a folder, it is that to enter.
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

// listen opens the way out and hands it over: the socket belongs to the
// namespace that it was made in, and works from anywhere.
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

// minLandlock is the first version that also holds files moved between folders.
const minLandlock = 2

var errOldLandlock = errors.New("the kernel has no Landlock, or too old a one; 5.19 is the first that will do")

// What can be done to files; what a kernel does not know yet, it cannot be told.
const (
	readsFiles  = ll.AccessFSExecute | ll.AccessFSReadFile
	readsTree   = readsFiles | ll.AccessFSReadDir
	writesFiles = readsFiles | ll.AccessFSWriteFile | ll.AccessFSTruncate
)

// handled is everything that a version of Landlock can forbid about files, and
// about what lies outside of them.
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

// confine leaves the program the files of the plan. The rules are those of the
// kernel's own version, strictly. They are put on this thread, which is the one
// that goes on; see [become].
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

// allowBeneath adds one rule: what may be done below a folder, or to a file.
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
