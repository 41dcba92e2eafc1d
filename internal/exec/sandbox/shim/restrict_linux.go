package shim

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// restrict applies the restrictions, waits for the order, and executes the program.
func restrict() error {
	p, err := read[Plan](FDPlan, "plan")
	if err != nil {
		return err
	}
	if err := unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return mechanismError("close_range", err)
	}
	if err := checkMounts(p.Expected); err != nil {
		return mechanismError("mounts", err)
	}
	private, err := mountsOf(p.Private)
	if err != nil {
		return mechanismError("mounts", err)
	}
	if p.Network {
		if err := openSockets(); err != nil {
			return mechanismError("network namespace", err)
		}
	}
	if p.NoExec {
		err := cover(p.Cover)
		if err == nil {
			err = sealMounts()
		}
		if err != nil {
			return mechanismError("mounts", err)
		}
	}
	if err := dropCapabilities(); err != nil {
		return mechanismError("capabilities", err)
	}
	if err := limits(p); err != nil {
		return mechanismError("rlimits", err)
	}
	if err := confine(p); err != nil {
		return mechanismError("landlock", err)
	}
	if err := filter(p, private); err != nil {
		return mechanismError("seccomp", err)
	}
	send(Message{Kind: Restricted}, nil)
	o, err := awaitOrder()
	if err != nil {
		return err
	}
	return execute(o, p.Memory)
}

// checkMounts returns an error if a mounted file or folder is not the one that ambit checked before.
func checkMounts(expected []Mounted) error {
	for _, m := range expected {
		var st unix.Stat_t
		if err := unix.Lstat(m.To, &st); err != nil {
			return fmt.Errorf("%s: %w", m.To, err)
		}
		if st.Dev != m.Device || st.Ino != m.Inode {
			return fmt.Errorf("%s was replaced while the sandbox was made", m.To)
		}
	}
	return nil
}

// mountsOf returns the numbers of the mounts at the given paths. The program has not started, so it cannot have
// replaced a path.
func mountsOf(paths []string) (mounts []uint64, err error) {
	for _, path := range paths {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		mount, err := MountOf(fd)
		unix.Close(fd)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		mounts = append(mounts, mount)
	}
	return mounts, nil
}

// MountOf returns the number of the mount that contains an open file.
func MountOf(fd int) (uint64, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st)
	if err == nil && st.Mask&unix.STATX_MNT_ID == 0 {
		err = unix.ENOSYS
	}
	return st.Mnt_id, err
}

// awaitOrder waits for the message [Go] and then reads the order.
func awaitOrder() (*Order, error) {
	var word [len(Go)]byte
	n, err := 0, error(unix.EINTR)
	for err == unix.EINTR {
		n, _, err = unix.Recvfrom(FDControl, word[:], 0)
	}
	if err != nil || string(word[:n]) != Go {
		return nil, mechanismError("order", errors.New("ambit did not send the message that starts the program"))
	}
	return read[Order](FDOrder, "order")
}

// execute replaces the current process with the program in the order. If the order contains a canary, the canary runs
// instead. The shim may need more memory than the program's limit, so the limit is set only now. A limit of 0 means
// no limit.
func execute(o *Order, memory uint64) error {
	if err := os.Chdir(o.Dir); err != nil {
		return mechanismError("mounts", err)
	}
	if o.Gate {
		if _, err := unix.FcntlInt(FDGate, unix.F_SETFD, 0); err != nil {
			return mechanismError("gate", err)
		}
	}
	program := find(o)
	send(Message{Kind: Ready}, nil)
	// The kernel also applies this limit to all descriptors that the user's processes are currently sending. So set the
	// limit only after the shim has sent its own descriptors.
	if err := limit(unix.RLIMIT_NOFILE, OpenFiles); err != nil {
		return mechanismError("rlimits", err)
	}
	// Use RLIMIT_DATA, because programs such as node reserve more address space than RLIMIT_AS would allow.
	if memory != 0 {
		if err := limit(unix.RLIMIT_DATA, memory); err != nil {
			return mechanismError("rlimits", err)
		}
	}
	if o.Canary != "" {
		runCanary(o)
	}
	err := syscall.Exec(program, o.Argv, o.Env)
	send(Message{Kind: NotStarted, Text: err.Error()}, nil)
	syscall.Exit(127)
	return nil
}

// find returns the path of the program's executable. If the executable is not in PATH, find returns Argv[0] unchanged.
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

// executable reports whether the path is an executable file. Folders can have the same permission bit, so executable
// also checks the file type.
func executable(path string) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && unix.Access(path, unix.X_OK) == nil
}

// openListener opens a socket that listens at ProxyPort, and returns its descriptor.
func openListener() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: ProxyPort, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	return fd, unix.Listen(fd, 128)
}

// openSockets opens a UDP socket at port 53 and a TCP listener and passes both to ambit. Both sockets stay in the
// sandbox's network namespace, but ambit can use them from outside. Opening port 53 requires a capability.
func openSockets() error {
	var fds [2]int
	for i, s := range []struct{ kind, port int }{{unix.SOCK_DGRAM, 53}, {unix.SOCK_STREAM, 0}} {
		fd, err := unix.Socket(unix.AF_INET, s.kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{Port: s.port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			return err
		}
		fds[i] = fd
	}
	if err := unix.Listen(fds[1], 256); err != nil {
		return err
	}
	err := send(Message{Kind: Sockets}, unix.UnixRights(fds[:]...))
	for _, fd := range fds {
		unix.Close(fd)
	}
	return err
}

// cover replaces files with a device that cannot be opened. It does not use bubblewrap's mounts, because bubblewrap
// reads the list of all mounts again for each mount.
func cover(files []string) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	for _, file := range files {
		err := unix.Mount("/dev/null", file, "", unix.MS_BIND, "")
		if err == unix.ENOENT { // the file was deleted after ambit found it
			continue
		}
		if err == nil {
			err = unix.MountSetattr(unix.AT_FDCWD, file, 0, &attr)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// sealMounts makes every writable mount noexec. The kernel then refuses to execute a file in the mount or to map it
// as code.
func sealMounts() error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 6 {
			return errors.New("/proc/self/mountinfo has an unknown format")
		}
		if !strings.HasPrefix(f[5], "rw") {
			continue
		}
		at := unescape.Replace(f[4])
		err := unix.MountSetattr(unix.AT_FDCWD, at, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOEXEC})
		// These errors mean that another mount covers this one. No path leads to a covered mount, so skip it.
		if err != nil && err != unix.ENOENT && err != unix.ENOTDIR && err != unix.EINVAL {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	return nil
}

// unescape reverses the kernel's escaping in /proc/self/mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// dropCapabilities drops the capabilities that the shim had inside the user namespace.
func dropCapabilities() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	none := [2]unix.CapUserData{}
	return unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0])
}

// OpenFiles and LockedMemory are limits for each process. LockedMemory is in bytes.
const (
	OpenFiles    = 1024
	LockedMemory = 64 << 10
)

func limits(p *Plan) error {
	// If memory runs out, the kernel must kill the program and not ambit.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0); err != nil {
		return err
	}
	for _, l := range []struct {
		resource int
		max      uint64
	}{
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_FSIZE, p.FileSize},
		{unix.RLIMIT_MEMLOCK, LockedMemory},
		{unix.RLIMIT_MSGQUEUE, 0},
		{unix.RLIMIT_NPROC, cmp.Or(p.Processes, unix.RLIM_INFINITY)},
	} {
		if err := limit(l.resource, l.max); err != nil {
			return err
		}
	}
	return nil
}

// limit sets a limit of this process. It never raises the limit.
func limit(resource int, to uint64) error {
	var old unix.Rlimit
	if err := unix.Prlimit(0, resource, nil, &old); err != nil {
		return err
	}
	to = min(to, old.Max)
	return unix.Prlimit(0, resource, &unix.Rlimit{Cur: to, Max: to}, nil)
}

// guest is the role of the shim inside gVisor. It applies no restrictions, because gVisor isolates the program.
func guest() error {
	p, err := read[Plan](FDPlan, "plan")
	if err != nil {
		return err
	}
	if err := unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return mechanismError("close_range", err)
	}
	for _, dir := range p.ReadWrite {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return mechanismError("mounts", err)
		}
	}
	listenFD := -1
	if p.Listen {
		if listenFD, err = openListener(); err != nil {
			return mechanismError("network namespace", err)
		}
	}
	send(Message{Kind: Restricted}, nil)
	o, err := awaitOrder()
	if err != nil {
		return err
	}
	if !p.Listen {
		return execute(o, 0)
	}
	return executeChild(o, listenFD)
}

// executeChild runs the program as a child process. It accepts the program's connections to the proxy and relays
// them to ambit.
func executeChild(o *Order, listenFD int) error {
	if err := os.Chdir(o.Dir); err != nil {
		return mechanismError("mounts", err)
	}
	// The program runs as the same user as the shim, but must not be able to inspect the shim.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return mechanismError("dumpable", err)
	}
	go func() {
		for {
			fd, _, err := unix.Accept4(listenFD, unix.SOCK_CLOEXEC)
			switch err {
			case nil:
			case unix.EINTR, unix.ECONNABORTED:
				continue
			default:
				return
			}
			from := os.NewFile(uintptr(fd), "program")
			to, err := dial()
			if err != nil {
				from.Close()
				continue
			}
			go relay(from, to)
		}
	}()
	send(Message{Kind: Ready}, nil)
	streams := []*os.File{os.Stdin, os.Stdout, os.Stderr}
	child, err := os.StartProcess(find(o), o.Argv, &os.ProcAttr{Env: o.Env, Files: streams})
	if err != nil {
		send(Message{Kind: NotStarted, Text: err.Error()}, nil)
		syscall.Exit(127)
	}
	for _, f := range streams {
		f.Close() // the program alone keeps the streams open, so that they end when it closes them
	}
	end, err := child.Wait()
	if err != nil {
		return mechanismError("program", err)
	}
	code := end.ExitCode()
	if status, ok := end.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	syscall.Exit(code)
	return nil
}

// dial asks ambit for a connection to the proxy. Only one goroutine at a time can call this function.
func dial() (*os.File, error) {
	send(Message{Kind: Dial}, nil)
	var word [1]byte
	rights := make([]byte, unix.CmsgSpace(4))
	n, err := 0, error(unix.EINTR)
	for err == unix.EINTR {
		_, n, _, _, err = unix.Recvmsg(FDControl, word[:], rights, unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		return nil, errors.New("ambit did not provide a connection to the proxy")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.New("ambit did not provide a connection to the proxy")
	}
	return os.NewFile(uintptr(fds[0]), "proxy connection"), nil
}

func relay(from, to *os.File) {
	defer from.Close()
	defer to.Close()
	done := make(chan struct{})
	go func() {
		io.Copy(to, from)
		unix.Shutdown(int(to.Fd()), unix.SHUT_WR)
		close(done)
	}()
	io.Copy(from, to)
	unix.Shutdown(int(from.Fd()), unix.SHUT_WR)
	<-done
}
