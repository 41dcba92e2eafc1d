package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	if len(os.Args) != 2 {
		return
	}
	switch os.Args[1] {
	case Watcher:
		fail(watch())
	case Holder:
		hold()
	case Enter, Shim, Guest:
	default:
		return
	}
	// A role changes settings of the current thread only. Bubblewrap, gVisor or the program inherits these settings
	// only if the same thread executes it.
	runtime.LockOSThread()
	switch os.Args[1] {
	case Enter:
		fail(enter())
	case Guest:
		fail(guest())
	}
	fail(restrict())
}

type failure struct {
	what string
	err  error
}

func (f *failure) Error() string { return f.what + ": " + f.err.Error() }

func mechanismError(what string, err error) error { return &failure{what, err} }

// fail reports an error to ambit and exits.
func fail(err error) {
	m := Message{Kind: Failed, What: "sandbox", Text: err.Error()}
	if f, ok := errors.AsType[*failure](err); ok {
		m.What, m.Text = f.what, f.err.Error()
	}
	send(m, nil)
	syscall.Exit(125)
}

// send sends a message to ambit. It ignores errors, because a closed socket means that ambit has exited.
func send(m Message, rights []byte) {
	if text, err := json.Marshal(m); err == nil {
		unix.Sendmsg(FDControl, text, rights, nil, unix.MSG_NOSIGNAL)
	}
}

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

// enter performs the steps that require the permissions of ambit's user. Then it executes bubblewrap or gVisor.
func enter() error {
	p, err := read[Plan](FDPlan, "plan")
	if err != nil {
		return err
	}
	// Mark all descriptors above the data files as close-on-exec, because the program must not inherit them. They cannot
	// be closed now, because Go's runtime still uses some of them.
	if err := unix.CloseRange(uint(FDData+p.Data), ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return mechanismError("close_range", err)
	}
	for _, tasks := range p.Join {
		if err := os.WriteFile(tasks, []byte("0"), 0); err != nil {
			return mechanismError("cgroup", err)
		}
	}
	if p.User != 0 {
		if err := stage(p); err != nil {
			return mechanismError("mounts", err)
		}
		if err := setUser(p.User); err != nil {
			return mechanismError("user", err)
		}
	}
	// Changing the user clears the parent death signal, so request the signal again. If ambit exited before the
	// request, the signal would never arrive, so check that ambit is still the parent.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return mechanismError("parent", err)
	}
	if os.Getppid() != p.Parent {
		return mechanismError("parent", errors.New("ambit has exited"))
	}
	what, env := "bubblewrap", []string{}
	if p.Guest {
		// gVisor needs a PATH to start its own processes.
		what, env = "gvisor", []string{"PATH=/usr/bin:/bin"}
	}
	return mechanismError(what, syscall.Exec(p.Exec[0], p.Exec, env))
}

// setUser drops root privileges for the current thread only, because the same thread executes the next program. The
// functions in package syscall would stop all threads and change each of them. On a busy machine, that would take
// longer than the rest of this role's work.
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

// stage bind-mounts the plan's paths at new paths in StageDir, so that an unprivileged user can reach them. An original
// path may be in a folder that the user cannot enter, such as root's home.
func stage(p *Plan) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	fds := make([]int, len(p.Stage))
	for i, path := range p.Stage {
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
		to, err := StagePath(i), error(nil)
		if slices.Contains(p.AsOwner, i) {
			err = bindAsOwner(fd, to, p.User)
		} else {
			err = bind(fd, to)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.Stage[i], err)
		}
	}
	return nil
}

// OpenPlain opens a path and rejects symbolic links in it, because the owner of a link could decide what is mounted.
func OpenPlain(path string) (int, error) {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, how)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return fd, nil
}

// StagePath returns the path at which Plan.Stage[i] is mounted.
func StagePath(i int) string { return StageDir + "/" + strconv.Itoa(i) }

func bind(fd int, to string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if err := createTarget(&st, to); err != nil {
		return err
	}
	return unix.Mount("/proc/self/fd/"+strconv.Itoa(fd), to, "", unix.MS_BIND, "")
}

// createTarget creates a folder or a file on which a folder or a file can be mounted.
func createTarget(st *unix.Stat_t, to string) error {
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return os.Mkdir(to, 0o755)
	}
	return os.WriteFile(to, nil, 0o644)
}

// Watch identifies ambit's cgroups for the watcher.
type Watch struct {
	// Folders lists the folders that contain the cgroups. Prefix is the prefix of the names of the cgroups.
	Folders []string
	Prefix  string
}

// fdWatch is the descriptor of the memory file that contains the [Watch].
const fdWatch = 3

// watchTime is how long the watcher waits for the kernel to remove killed processes.
const watchTime = 10 * time.Second

// watch waits until its stdin is closed, which happens when ambit exits. Then it kills the processes that ambit left
// behind. It ignores termination signals, because a signal to ambit's processes may also reach the watcher.
func watch() error {
	w, err := read[Watch](fdWatch, "watch")
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	io.Copy(io.Discard, os.Stdin)
	for deadline := time.Now().Add(watchTime); time.Now().Before(deadline) && !w.purge(); time.Sleep(time.Millisecond) {
	}
	syscall.Exit(0)
	return nil
}

// purge kills the processes in the cgroups and removes empty cgroups. It reports whether all cgroups were removed.
func (w *Watch) purge() bool {
	gone := true
	for _, folder := range w.Folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), w.Prefix) {
				continue
			}
			KillAll(folder + "/" + e.Name())
			if os.Remove(folder+"/"+e.Name()) != nil {
				gone = false
			}
		}
	}
	return gone
}

// KillAll kills the processes in a cgroup and returns how many it killed. A process that starts during the call may
// survive.
func KillAll(dir string) int {
	text, err := os.ReadFile(dir + "/cgroup.procs")
	if err != nil {
		return 0
	}
	pids := strings.Fields(string(text))
	if len(pids) > 0 && os.WriteFile(dir+"/cgroup.kill", []byte("1"), 0) == nil {
		return len(pids)
	}
	for _, p := range pids {
		if pid, err := strconv.Atoi(p); err == nil && pid > 0 {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return len(pids)
}
