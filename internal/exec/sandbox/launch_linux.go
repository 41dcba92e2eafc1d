//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
)

// launch describes how bubblewrap or gVisor is started.
type launch struct {
	argv, env []string
	// user is the id of the user that executes argv. 0 means the current user.
	user int
	// staged lists paths that the user may be unable to reach. The path staged[i] is mounted at stagePath(i).
	staged []stagedPath
}

type stagedPath struct {
	path    string
	asOwner bool // see [Mount]
}

// stageDir is the folder for staged paths, in the mount namespace of the thread that starts the process.
const stageDir = "/tmp"

// stagePath returns the path at which staged[i] is mounted.
func stagePath(i int) string { return stageDir + "/" + strconv.Itoa(i) }

// expose returns the path at which the started process can reach a file or folder of this machine.
func (l *launch) expose(path string, asOwner bool) string {
	if l.user == 0 {
		return path
	}
	l.staged = append(l.staged, stagedPath{path, asOwner})
	return stagePath(len(l.staged) - 1)
}

// spawn starts the process. All steps that require ambit's permissions happen in one thread of ambit. The thread gets
// its own mount namespace, joins the cgroup, and starts the process, which inherits both. The thread lives until the
// process exits: because of Pdeathsig, the kernel kills the process when the thread exits.
func (r *running) spawn(l *launch) error {
	started := make(chan error)
	onNewThread(func() {
		err := r.startProcess(l)
		started <- err
		if err != nil {
			return
		}
		r.cmd.Wait() // ignore the error, because ProcessState contains the result
		r.state = r.cmd.ProcessState
		close(r.exited)
	})
	return <-started
}

// onNewThread calls f in a goroutine with its own thread. The thread ends with f, so f can change the thread's
// namespaces and cgroups. onNewThread does not use the main thread, because Go does not end that thread.
func onNewThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return // Go ends the thread together with the goroutine, because the thread is still locked
		}
		elsewhere := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(elsewhere)
			f()
		}()
		<-elsewhere
		runtime.UnlockOSThread()
	}()
}

func (r *running) startProcess(l *launch) error {
	if l.user != 0 {
		if err := l.mountStaged(); err != nil {
			return &setupError{"mounts", err.Error()}
		}
	}
	// Go opens files close-on-exec, but ambit itself may have inherited other descriptors. Mark them close-on-exec
	// too.
	if err := unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return &setupError{"close_range", err.Error()}
	}
	err := r.group.join()
	if err == nil {
		err = r.cmd.Start()
	}
	if e := r.group.leave(); e != nil && err == nil {
		r.cmd.Process.Kill()
		r.cmd.Wait()
		err = e
	}
	return err
}

// mountStaged makes a mount namespace for the current thread and bind-mounts the paths in it, so that an unprivileged
// user can reach them. An original path may be in a folder that the user cannot enter, such as root's home.
func (l *launch) mountStaged() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	// Unmounts on the machine also take effect in this namespace, but mounts in this namespace do not affect the
	// machine.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return err
	}
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for _, s := range l.staged { // open all paths first, because the mount below covers stageDir
		fd, err := openPlain(s.path)
		if err != nil {
			return err
		}
		fds = append(fds, fd)
	}
	if err := unix.Mount("tmpfs", stageDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=64k"); err != nil {
		return err
	}
	for i, s := range l.staged {
		if err := bind(fds[i], stagePath(i), s.asOwner, l.user); err != nil {
			return fmt.Errorf("%s: %w", s.path, err)
		}
	}
	return nil
}

// openPlain opens a path. It refuses a path with symbolic links, because the owner of a link could decide what is
// mounted.
func openPlain(path string) (int, error) {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, how)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return fd, nil
}

// bind makes an open file or folder visible at a path.
func bind(fd int, to string, asOwner bool, user int) error {
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
	if asOwner {
		return bindAsOwner(fd, to, idMapping{int(st.Uid), int(st.Gid), user})
	}
	return unix.Mount("/proc/self/fd/"+strconv.Itoa(fd), to, "", unix.MS_BIND, "")
}

// bindAsOwner binds a path and gives the run's user the rights of the path's owner. Files that the user creates
// belong to the owner. The kernel translates between the two users at the mount, so no file on the disk changes.
func bindAsOwner(fd int, to string, m idMapping) error {
	tree, err := unix.OpenTree(fd, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	namespaces.Lock()
	defer namespaces.Unlock()
	namespace, err := m.namespaceLocked()
	if err != nil {
		return err
	}
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(namespace)}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, attr); err != nil {
		return fmt.Errorf("the file system does not support mounts for another user: %w", err)
	}
	return unix.MoveMount(tree, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// idMapping maps the owner and the group of a file to the user of a run.
type idMapping struct{ owner, group, user int }

// namespaces caches user namespaces, because creating a namespace requires a process. A restarted server has the same
// private folder and therefore the same user, so the cache already contains its namespace.
var namespaces = struct {
	sync.Mutex
	of map[idMapping]int
}{of: map[idMapping]int{}}

const maxNamespaces = 64

// namespaceLocked returns a user namespace that maps the owner of a file to the run's user. Only a process can create
// a user namespace, so namespaceLocked starts a [shim.Holder] and kills the holder once the namespace is open. The
// caller must hold the mutex of namespaces.
func (m idMapping) namespaceLocked() (int, error) {
	if fd, ok := namespaces.of[m]; ok {
		return fd, nil
	}
	holder, err := os.StartProcess("/proc/self/exe", []string{"ambit", shim.Holder}, &os.ProcAttr{
		Env: []string{}, Files: []*os.File{nil, nil, nil},
		Sys: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: m.owner, HostID: m.user, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: m.group, HostID: m.user, Size: 1}},
		},
	})
	if err != nil {
		return 0, err
	}
	defer holder.Wait()
	defer holder.Kill()
	fd, err := unix.Open("/proc/"+strconv.Itoa(holder.Pid)+"/ns/user", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if len(namespaces.of) >= maxNamespaces {
		for _, old := range namespaces.of {
			unix.Close(old)
		}
		clear(namespaces.of)
	}
	namespaces.of[m] = fd
	return fd, nil
}
