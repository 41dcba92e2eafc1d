package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

func init() {
	if len(os.Args) != 2 {
		return
	}
	switch os.Args[1] {
	case Watcher:
		fail(watch())
	case Enter, Shim, Guest:
	default:
		return
	}
	// The following settings apply to a thread, and the same thread must execute the
	// next program.
	runtime.LockOSThread()
	switch os.Args[1] {
	case Enter:
		fail(enter())
	case Guest:
		fail(guest())
	}
	fail(restrict())
}

// failure is a mechanism that could not be set up.
type failure struct {
	what string
	err  error
}

func (f *failure) Error() string { return f.what + ": " + f.err.Error() }

func mechanismError(what string, err error) error { return &failure{what, err} }

// fail reports an error and exits.
func fail(err error) {
	m := Message{Kind: Failed, What: "sandbox", Text: err.Error()}
	if f, ok := errors.AsType[*failure](err); ok {
		m.What, m.Text = f.what, f.err.Error()
	}
	send(m, nil)
	syscall.Exit(125)
}

// send ignores errors: if the socket is closed, ambit has ended.
func send(m Message, rights []byte) {
	if text, err := json.Marshal(m); err == nil {
		unix.Sendmsg(FDControl, text, rights, nil, unix.MSG_NOSIGNAL)
	}
}

// read reads a memory file from its start.
func read[T any](fd uintptr, name string) (*T, error) {
	var v T
	text, err := io.ReadAll(io.NewSectionReader(os.NewFile(fd, name), 0, MaxOrder))
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		return nil, mechanismError(name, err)
	}
	return &v, nil
}

// enter does what only the starting user may do, and executes bubblewrap.
func enter() error {
	p, err := read[Plan](FDPlan, "plan")
	if err != nil {
		return err
	}
	// Descriptors that ambit inherited must not reach the program. They are closed when
	// bubblewrap is executed, because Go's runtime still uses some of the others.
	if err := unix.CloseRange(uint(FDData+p.Data), ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return mechanismError("close_range", err)
	}
	for _, tasks := range p.Join {
		if err := os.WriteFile(tasks, []byte("0"), 0); err != nil {
			return mechanismError("cgroup", err)
		}
	}
	if p.User != 0 {
		if err := stage(p.Stage); err != nil {
			return mechanismError("mounts", err)
		}
		if err := setUser(p.User); err != nil {
			return mechanismError("user", err)
		}
	}
	// Changing the user clears the signal. If ambit has ended before this call, the
	// signal never comes, so the parent is checked.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return mechanismError("parent", err)
	}
	if os.Getppid() != p.Parent {
		return mechanismError("parent", errors.New("ambit has ended"))
	}
	what, env := "bubblewrap", []string{}
	if p.Guest {
		// gVisor needs a PATH to start its own processes.
		what, env = "gvisor", []string{"PATH=/usr/bin:/bin"}
	}
	return mechanismError(what, syscall.Exec(p.Exec[0], p.Exec, env))
}

// setUser drops root for this thread only, which executes the next program. Package
// syscall would change all threads: it has to stop each of them, which takes longer on
// a busy machine than everything else here.
func setUser(user int) error {
	id := uintptr(user)
	for _, c := range [][4]uintptr{
		{unix.SYS_SETGROUPS, 0, 0, 0},
		{unix.SYS_SETRESGID, id, id, id},
		{unix.SYS_SETRESUID, id, id, id},
	} {
		if _, _, errno := unix.RawSyscall(c[0], c[1], c[2], c[3]); errno != 0 {
			return errno
		}
	}
	return nil
}

// stage binds paths to places that an unprivileged user can reach. Their own parents,
// such as root's home, may be closed to that user.
func stage(paths []string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	fds := make([]int, len(paths))
	for i, path := range paths {
		fd, err := OpenPlain(path)
		if err != nil {
			return err
		}
		fds[i] = fd
	}
	if err := unix.Mount("tmpfs", StageDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=64k"); err != nil {
		return err
	}
	for i, fd := range fds {
		if err := bind(fd, StagePath(i)); err != nil {
			return fmt.Errorf("%s: %w", paths[i], err)
		}
	}
	return nil
}

// OpenPlain opens a path without following symbolic links: the owner of a link would
// decide what is mounted.
func OpenPlain(path string) (int, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return fd, nil
}

// StagePath returns the path of the i-th staged path.
func StagePath(i int) string { return StageDir + "/" + strconv.Itoa(i) }

func bind(fd int, to string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	var err error
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = os.Mkdir(to, 0o755)
	} else {
		err = os.WriteFile(to, nil, 0o644)
	}
	if err != nil {
		return err
	}
	return unix.Mount("/proc/self/fd/"+strconv.Itoa(fd), to, "", unix.MS_BIND, "")
}
