//go:build amd64 || arm64

package sandbox

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
)

// The tier strong replaces bubblewrap by gVisor. The cgroup, the unused user id, the
// pipes and the shim are those of the other tier. The shim applies neither Landlock nor
// a filter, because the program's system calls go to gVisor's kernel. A listener inside
// gVisor cannot be passed out, so the shim stays beside the program and asks ambit for
// a connection for each one to the proxy's address. The program itself can reach no
// socket of the machine.

// Runsc is the name of gVisor's program. It is searched for in the folder of proofs, and
// then in PATH.
const Runsc = "runsc"

// The overhead of gVisor.
const (
	sentryMemory    = 64 << 20
	sentryThreads   = 256
	threadsPerGuest = 16
)

func findRunsc(folder string) (string, error) {
	if folder != "" {
		path, err := filepath.Abs(filepath.Join(folder, Runsc))
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(Runsc)
	if err != nil {
		return "", errors.New("runsc is not installed")
	}
	return filepath.Abs(path)
}

// bundle is the used part of an OCI bundle's config.json.
type bundle struct {
	Version  string        `json:"ociVersion"`
	Process  bundleProcess `json:"process"`
	Root     bundleRoot    `json:"root"`
	Hostname string        `json:"hostname"`
	Mounts   []bundleMount `json:"mounts"`
	Linux    bundleLinux   `json:"linux"`
}

type bundleProcess struct {
	User struct {
		UID int `json:"uid"`
		GID int `json:"gid"`
	} `json:"user"`
	Args    []string      `json:"args"`
	Dir     string        `json:"cwd"`
	Limits  []bundleLimit `json:"rlimits"`
	NoPrivs bool          `json:"noNewPrivileges"`
}

type bundleLimit struct {
	Type string `json:"type"`
	Hard uint64 `json:"hard"`
	Soft uint64 `json:"soft"`
}

type bundleRoot struct {
	Path     string `json:"path"`
	ReadOnly bool   `json:"readonly"`
}

type bundleMount struct {
	To      string   `json:"destination"`
	Type    string   `json:"type"`
	Source  string   `json:"source"`
	Options []string `json:"options,omitempty"`
}

type bundleLinux struct {
	Namespaces []map[string]string `json:"namespaces"`
}

// prepareBundle writes an OCI bundle to the run's private folder, and sets gVisor's
// arguments.
func (r *running) prepareBundle(p *shim.Plan, runsc string) error {
	var err error
	if r.folder, err = TempDir(); err != nil {
		return err
	}
	// The user's folder is inside one that only ambit can enter.
	own := filepath.Join(r.folder, "bundle")
	root, state := filepath.Join(own, "root"), filepath.Join(own, "state")
	for _, dir := range []string{own, root, state} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	// The path in gVisor's mount namespace.
	within := func(source string) string {
		if p.User == 0 {
			return source
		}
		p.Stage = append(p.Stage, source)
		return shim.StagePath(len(p.Stage) - 1)
	}
	folder, runsc := within(own), within(runsc)
	b := newBundle(r.shape, p.FileSize)
	if err := b.addSystem(root, r.shape); err != nil {
		return err
	}
	for _, m := range r.shape.mounts {
		if m.Write {
			return &setupError{"mounts", "writable folders are not supported at this tier"}
		}
		if err := b.addMount(root, m.Source, m.To); err != nil {
			return err
		}
		b.Mounts[len(b.Mounts)-1].Source = within(m.Source)
	}
	if err := b.addMemoryMounts(root, r.shape.disk); err != nil {
		return err
	}
	if err := b.write(own); err != nil {
		return err
	}
	if p.User != 0 {
		if err := errors.Join(os.Chown(state, p.User, p.User), os.Chown(own, p.User, p.User)); err != nil {
			return err
		}
	}
	if r.shape.egress {
		r.listener = newDialListener()
	}
	p.Exec = []string{
		runsc, "--rootless", "--root", filepath.Join(folder, "state"), "--platform", "systrap", "--network", "none", "--ignore-cgroups", "--overlay2", "none",
		"--file-access-mounts", "shared", "run", "--bundle", folder, "--exec-fd", strconv.Itoa(shim.FDExe),
	}
	for _, fd := range []int{shim.FDControl, shim.FDPlan, shim.FDOrder} {
		p.Exec = append(p.Exec, "--pass-fd", strconv.Itoa(fd)+":"+strconv.Itoa(fd))
	}
	p.Exec = append(p.Exec, "run"+filepath.Ext(r.folder))
	p.Guest = true
	return nil
}

// newBundle returns a bundle that runs the shim, without files.
func newBundle(s shape, fileSize uint64) *bundle {
	b := &bundle{Version: "1.0.0", Root: bundleRoot{"root", true}, Hostname: "sandbox"}
	b.Process.User.UID, b.Process.User.GID = insideUser, insideUser
	b.Process.Args, b.Process.Dir, b.Process.NoPrivs = []string{"ambit", shim.Guest}, "/", true
	for name, limit := range map[string]uint64{
		"RLIMIT_NPROC": uint64(s.bounds.pids - ownProcesses), "RLIMIT_CORE": 0, "RLIMIT_FSIZE": fileSize,
		"RLIMIT_NOFILE": shim.OpenFiles, "RLIMIT_MEMLOCK": shim.LockedMemory,
	} {
		b.Process.Limits = append(b.Process.Limits, bundleLimit{name, limit, limit})
	}
	for _, ns := range []string{"pid", "network", "ipc", "uts", "mount"} {
		b.Linux.Namespaces = append(b.Linux.Namespaces, map[string]string{"type": ns})
	}
	return b
}

// addSystem adds the files that every sandbox has: the machine's programs, public files
// in /etc, and generated files.
func (b *bundle) addSystem(root string, s shape) error {
	if err := b.addMount(root, "/usr", "/usr"); err != nil {
		return err
	}
	for _, dir := range systemDirs {
		if to, err := os.Readlink(dir); err == nil {
			if err := os.Symlink(to, filepath.Join(root, dir)); err != nil {
				return err
			}
		} else if _, err := os.Stat(dir); err == nil {
			if err := b.addMount(root, dir, dir); err != nil {
				return err
			}
		}
	}
	for _, file := range systemFiles {
		if _, err := os.Stat(file); err == nil {
			if err := b.addMount(root, file, file); err != nil {
				return err
			}
		}
	}
	for _, f := range syntheticFiles(s) {
		at := filepath.Join(root, f[0])
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(f[1]), 0o444)); err != nil {
			return err
		}
	}
	return nil
}

// addMemoryMounts adds /proc and the memory disks. They come last, so that they cover
// earlier mounts.
func (b *bundle) addMemoryMounts(root string, disk int64) error {
	for _, dir := range []string{"proc", "dev", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	size := "size=" + strconv.FormatInt(disk, 10)
	b.Mounts = append(
		b.Mounts, bundleMount{"/proc", "proc", "proc", nil}, bundleMount{"/tmp", "tmpfs", "tmpfs", []string{size, "mode=0777", "nosuid", "nodev"}},
		bundleMount{"/dev/shm", "tmpfs", "tmpfs", []string{"size=65536", "mode=0777", "nosuid", "nodev"}},
	)
	return os.Symlink("tmp", filepath.Join(root, scratch))
}

// addMount adds a read-only file or folder of the machine.
func (b *bundle) addMount(root, source, to string) error {
	info, err := os.Stat(source)
	if err != nil {
		return &setupError{"mounts", err.Error()}
	}
	at := filepath.Join(root, to)
	if err = os.MkdirAll(filepath.Dir(at), 0o755); err == nil {
		if info.IsDir() {
			err = os.MkdirAll(at, 0o755)
		} else {
			err = os.WriteFile(at, nil, 0o644)
		}
	}
	b.Mounts = append(b.Mounts, bundleMount{to, "bind", source, []string{"ro", "rbind"}})
	return err
}

// write writes the bundle's config.json.
func (b *bundle) write(folder string) error {
	text, err := json.Marshal(b)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "config.json"), text, 0o444)
	}
	if err == nil {
		err = readable(folder)
	}
	return err
}

// readable makes the bundle readable for the run's user, regardless of the umask.
func readable(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return os.Chmod(path, 0o755)
		case d.Type().IsRegular():
			return os.Chmod(path, 0o444)
		}
		return nil
	})
}

// dialListener is a listener for the connections that the shim requests with
// [shim.Dial].
type dialListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

const backlog = 128

func newDialListener() *dialListener {
	return &dialListener{conns: make(chan net.Conn, backlog), done: make(chan struct{})}
}

func (h *dialListener) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

func (h *dialListener) Close() error {
	h.once.Do(func() {
		close(h.done)
		for len(h.conns) > 0 {
			(<-h.conns).Close()
		}
	})
	return nil
}

func (h *dialListener) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// dial makes a connection between the proxy and the guest. If that fails, the answer
// carries no descriptor.
func (r *running) dial() {
	h, ok := r.listener.(*dialListener)
	var rights []byte
	if ok && len(h.conns) < backlog {
		theirs, ours, err := connection()
		if err == nil {
			defer theirs.Close()
			rights = unix.UnixRights(int(theirs.Fd()))
			h.conns <- ours // does not block: only dial sends
		}
	}
	raw, err := r.control.SyscallConn()
	if err != nil {
		return
	}
	raw.Write(func(fd uintptr) bool {
		return unix.Sendmsg(int(fd), []byte{0}, rights, nil, unix.MSG_NOSIGNAL) != unix.EAGAIN
	})
}

func connection() (theirs *os.File, ours net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	theirs = os.NewFile(uintptr(fds[0]), "guest")
	f := os.NewFile(uintptr(fds[1]), "way out")
	defer f.Close()
	if ours, err = net.FileConn(f); err != nil {
		theirs.Close()
	}
	return theirs, ours, err
}
