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

// runCanary tries forbidden actions, reports the result, and exits. If the kernel kills the canary, there is no
// report.
func runCanary(o *Order) {
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
	m := Message{Kind: CanaryReport, What: o.Canary}
	if f, ok := errors.AsType[*failure](err); ok {
		m.What, m.Text = f.what, f.err.Error()
	}
	send(m, nil)
	syscall.Exit(0)
}

func tryRules() error {
	if _, err := os.ReadFile(CanaryFile); !errors.Is(err, unix.EACCES) {
		return mechanismError("landlock", fmt.Errorf("opening a forbidden file must fail with EACCES, got: %v", err))
	}
	if fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); err != unix.EPERM {
		unix.Close(fd)
		return mechanismError("seccomp", fmt.Errorf("creating a Unix socket must fail with EPERM, got: %v", err))
	}
	if err := unix.Unshare(unix.CLONE_NEWUSER); err != unix.EPERM {
		return mechanismError("seccomp", fmt.Errorf("creating a namespace must fail with EPERM, got: %v", err))
	}
	if os.Getppid() != 1 {
		return mechanismError("pid namespace", errors.New("processes of this machine are visible"))
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return mechanismError("mounts", err)
	}
	for line := range strings.Lines(string(status)) {
		if name, value, _ := strings.Cut(line, ":"); name == "CapEff" && strings.Trim(value, "0\t\n ") != "" {
			return mechanismError("capabilities", errors.New("the program has capabilities"))
		}
	}
	if err := errors.Join(tryInherited(), tryLimits()); err != nil {
		return err
	}
	return tryOutside()
}

// tryInherited looks for open descriptors that the program would inherit.
func tryInherited() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return mechanismError("mounts", err)
	}
	for _, e := range open {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 {
			continue
		}
		// ReadDir has already closed its own descriptor, so FcntlInt fails for that descriptor.
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			return mechanismError("close_range", fmt.Errorf("the program would inherit descriptor %d", fd))
		}
	}
	return nil
}

// tryLimits checks the resource limits that the kernel reports for the current process.
func tryLimits() error {
	text, err := os.ReadFile("/proc/self/limits")
	if err != nil {
		return mechanismError("mounts", err)
	}
	for name, most := range map[string]uint64{
		"Max core file size": 0, "Max open files": OpenFiles, "Max locked memory": LockedMemory,
	} {
		_, rest, found := strings.Cut(string(text), name)
		words := strings.Fields(rest)
		if !found || len(words) < 2 {
			return mechanismError("rlimits", fmt.Errorf("%s is not in /proc/self/limits", name))
		}
		if hard, err := strconv.ParseUint(words[1], 10, 64); err != nil || hard > most {
			return mechanismError("rlimits", fmt.Errorf("%s is %s, but must be at most %d", name, words[1], most))
		}
	}
	return nil
}

// tryKernel checks that the sandbox and the machine have different kernel releases. Then it calls tryOutside.
func tryKernel(machine string) error {
	var uts unix.Utsname
	err := unix.Uname(&uts)
	if err == nil && unix.ByteSliceToString(uts.Release[:]) == machine {
		err = errors.New("the program runs on this machine's kernel")
	}
	if err != nil {
		return mechanismError("gvisor", err)
	}
	return tryOutside()
}

// tryOutside tries actions that every tier must prevent: reaching the network, writing to /usr, and seeing a file
// of the machine.
func tryOutside() error {
	// This address is reserved for documentation, so any route to it leads out of the sandbox.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{192, 0, 2, 1}})
	}
	if err != unix.ENETUNREACH {
		return mechanismError("network namespace",
			fmt.Errorf("connecting to the outside must fail with ENETUNREACH, got: %v", err))
	}
	// If the machine itself has no route, the check above proves nothing, so check the network interfaces too.
	interfaces, err := os.ReadFile("/proc/self/net/dev")
	if err != nil {
		return mechanismError("mounts", err)
	}
	for line := range strings.Lines(string(interfaces)) {
		if name, _, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) != "lo" {
			return mechanismError("network namespace", errors.New("there is a network interface other than loopback"))
		}
	}
	if err := os.WriteFile("/usr/canary", nil, 0o600); err == nil {
		return mechanismError("mounts", errors.New("/usr is writable"))
	}
	if _, err := os.Stat("/etc/shadow"); err == nil {
		return mechanismError("mounts", errors.New("files of this machine are visible"))
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
			return mechanismError("cgroup pids", err)
		}
	}
	return mechanismError("cgroup pids", fmt.Errorf("the limit is not enforced: %d processes were started", maxForks))
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
	// The kernel may kill the process with a delay.
	time.Sleep(100 * time.Millisecond)
	runtime.KeepAlive(held)
	return mechanismError("cgroup memory", fmt.Errorf("the limit is not enforced: %d MiB were allocated", len(held)))
}

func tryDisk() error {
	block := make([]byte, 1<<20)
	for i := range 16 {
		if err := os.WriteFile(fmt.Sprintf("canary%d", i), block, 0o600); errors.Is(err, unix.ENOSPC) {
			return nil
		}
	}
	return mechanismError("mounts", errors.New("the size of the disk is not limited"))
}
