package shim

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
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
	for _, e := range o.Env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok {
			os.Setenv("PATH", path)
		}
	}
	if path, err := exec.LookPath(o.Argv[0]); err == nil {
		return path
	}
	return o.Argv[0]
}

// listen opens the way out and hands it over: the socket belongs to the
// namespace that it was made in, and works from anywhere.
func listen() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: 3128, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	if err := unix.Listen(fd, 128); err != nil {
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

// confine leaves the program the files of the plan. The rules are those of the
// kernel's own version, strictly.
func confine(p *Plan) error {
	version, err := ll.LandlockGetABIVersion()
	if err != nil || version < minLandlock {
		return errOldLandlock
	}
	configs := []landlock.Config{landlock.V2, landlock.V3, landlock.V4, landlock.V5, landlock.V6, landlock.V7}
	config := configs[min(version-minLandlock, len(configs)-1)]
	var folders, files []string
	for _, path := range p.ReadOnly {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.IsDir() {
			folders = append(folders, path)
		} else {
			files = append(files, path)
		}
	}
	err = config.RestrictPaths(
		landlock.RODirs(folders...),
		landlock.ROFiles(files...),
		landlock.RWDirs(p.ReadWrite...).WithRefer(),
		landlock.RWFiles(p.Devices...),
	)
	if err == nil && config.Scoped != 0 {
		err = config.RestrictScoped()
	}
	return err
}
