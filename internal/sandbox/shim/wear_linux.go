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

// wear puts on the restrictions and becomes the program.
func wear() error {
	p, err := readPlan()
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
	if err := os.Chdir(p.Dir); err != nil {
		return lacking("mounts", err)
	}
	path := find(p)
	if err := confine(p); err != nil {
		return lacking("landlock", err)
	}
	if err := filter(); err != nil {
		return lacking("seccomp", err)
	}
	if p.Canary != "" {
		send(Message{Kind: Ready}, nil)
		sing(p.Canary)
	}
	send(Message{Kind: Ready}, nil)
	err = syscall.Exec(path, p.Argv, p.Env)
	send(Message{Kind: NotStarted, Text: err.Error()}, nil)
	syscall.Exit(127)
	return nil
}

// find is the file of the program's first word. What is not found stays as it
// is, and fails when it is executed.
func find(p *Plan) string {
	for _, e := range p.Env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok {
			os.Setenv("PATH", path)
		}
	}
	if path, err := exec.LookPath(p.Argv[0]); err == nil {
		return path
	}
	return p.Argv[0]
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

const openFiles = 1024

func limits(p *Plan) error {
	for _, l := range []struct {
		resource int
		max      uint64
	}{
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_FSIZE, p.FileSize},
		{unix.RLIMIT_NOFILE, openFiles},
		{unix.RLIMIT_MEMLOCK, 64 << 10},
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
