package shim

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sing tries what must not work, tells what became of it, and ends. A canary
// that has to be killed tells nothing.
func sing(o *Order) {
	var err error
	switch o.Canary {
	case CanaryRules:
		err = tryRules()
	case CanaryForks:
		err = tryForks()
	case CanaryMemory:
		err = tryMemory()
	case CanaryDisk:
		err = tryDisk()
	case CanaryKernel:
		err = tryKernel(o.Argv[1])
	}
	m := Message{Kind: Sang, What: o.Canary}
	if f, ok := errors.AsType[*failure](err); ok {
		m.What, m.Text = f.what, f.err.Error()
	}
	send(m, nil)
	syscall.Exit(0)
}

func tryRules() error {
	if _, err := os.ReadFile(CanaryFile); !errors.Is(err, unix.EACCES) {
		return lacking("landlock", fmt.Errorf("a file that is off limits was opened: %v", err))
	}
	if fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); err != unix.EPERM {
		unix.Close(fd)
		return lacking("seccomp", fmt.Errorf("a refused socket: %v", err))
	}
	if err := unix.Unshare(unix.CLONE_NEWUSER); err != unix.EPERM {
		return lacking("seccomp", fmt.Errorf("a refused namespace: %v", err))
	}
	if os.Getppid() != 1 {
		return lacking("pid namespace", errors.New("processes of this machine are in sight"))
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return lacking("mounts", err)
	}
	for line := range strings.Lines(string(status)) {
		if name, value, _ := strings.Cut(line, ":"); name == "CapEff" && strings.Trim(value, "0\t\n ") != "" {
			return lacking("capabilities", errors.New("some were left"))
		}
	}
	if err := errors.Join(tryInherited(), tryLimits()); err != nil {
		return err
	}
	return tryOutside()
}

// tryInherited looks for descriptors that the program would find open.
func tryInherited() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return lacking("mounts", err)
	}
	for _, e := range open {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 {
			continue
		}
		// What was open only to read the list is closed by now.
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			return lacking("close_range", fmt.Errorf("descriptor %d stays open", fd))
		}
	}
	return nil
}

// tryLimits looks at what the kernel says is bounded; who set it may be mistaken.
func tryLimits() error {
	text, err := os.ReadFile("/proc/self/limits")
	if err != nil {
		return lacking("mounts", err)
	}
	for name, most := range map[string]uint64{"Max core file size": 0, "Max open files": OpenFiles, "Max locked memory": LockedMemory} {
		_, rest, found := strings.Cut(string(text), name)
		words := strings.Fields(rest)
		if !found || len(words) < 2 {
			return lacking("rlimits", fmt.Errorf("%s is not told", name))
		}
		if hard, err := strconv.ParseUint(words[1], 10, 64); err != nil || hard > most {
			return lacking("rlimits", fmt.Errorf("%s is %s", name, words[1]))
		}
	}
	return nil
}

// tryKernel looks for the kernel of the machine, and for a way out.
func tryKernel(machine string) error {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil || unix.ByteSliceToString(uts.Release[:]) == machine {
		return lacking("gvisor", fmt.Errorf("the kernel is this machine's own: %v", err))
	}
	return tryOutside()
}

// tryOutside tries to leave by what both tiers close.
func tryOutside() error {
	// An address for documentation: there is no way to it that is not to the
	// outside.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{192, 0, 2, 1}})
	}
	if err != unix.ENETUNREACH {
		return lacking("network namespace", fmt.Errorf("a way to the outside: %v", err))
	}
	// Where this machine has no way out itself, the address tells nothing.
	interfaces, err := os.ReadFile("/proc/self/net/dev")
	if err != nil {
		return lacking("mounts", err)
	}
	for line := range strings.Lines(string(interfaces)) {
		if name, _, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) != "lo" {
			return lacking("network namespace", errors.New("there is a network interface"))
		}
	}
	if err := os.WriteFile("/usr/canary", nil, 0o600); err == nil {
		return lacking("mounts", errors.New("/usr can be written to"))
	}
	if _, err := os.Stat("/etc/shadow"); err == nil {
		return lacking("mounts", errors.New("files of this machine are there"))
	}
	return nil
}

const maxForks = 64

func tryForks() error {
	for range maxForks {
		_, err := os.StartProcess("/usr/bin/sleep", []string{"sleep", "10"}, &os.ProcAttr{Env: []string{}})
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil {
			return lacking("cgroup pids", err)
		}
	}
	return lacking("cgroup pids", fmt.Errorf("%d processes could be started", maxForks))
}

func tryMemory() error {
	var held [][]byte
	for range 128 {
		page := make([]byte, 1<<20)
		for i := 0; i < len(page); i += 4096 {
			page[i] = 1
		}
		held = append(held, page)
	}
	// The kill follows the charge by a moment.
	time.Sleep(100 * time.Millisecond)
	runtime.KeepAlive(held)
	return lacking("cgroup memory", fmt.Errorf("%d MiB could be taken", len(held)))
}

func tryDisk() error {
	block := make([]byte, 1<<20)
	for i := range 16 {
		if err := os.WriteFile(fmt.Sprintf("canary%d", i), block, 0o600); errors.Is(err, unix.ENOSPC) {
			return nil
		}
	}
	return lacking("mounts", errors.New("the disk has no bounds"))
}
