//go:build amd64 || arm64

package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
)

// The strong tier runs gVisor instead of bubblewrap. The cgroup, the user id, the pipes and the shim are the same as in
// the standard tier. The shim applies neither Landlock nor a seccomp filter, because gVisor's kernel handles the
// program's system calls.
//
// The shim cannot pass a listener from gVisor to ambit. Therefore, the shim keeps running next to the program and
// accepts the connections to the proxy's address. For each connection, the shim requests a second connection from ambit
// and relays the data. The program itself cannot reach any socket of the machine.

// Runsc is the name of gVisor's executable. ambit looks for it in the folder [Spec.Proofs] and then in PATH.
const Runsc = "runsc"

// ambit adds these amounts to the limits of a run, because gVisor itself needs memory and threads.
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

// bundle is an OCI bundle. It consists of a root file system and the mounts for config.json.
type bundle struct {
	root   string
	mounts []bundleMount
}

type bundleMount struct {
	To      string   `json:"destination"`
	Type    string   `json:"type"`
	Source  string   `json:"source"`
	Options []string `json:"options,omitempty"`
}

// prepareBundle writes an OCI bundle to the run's private folder and sets the command of the launch.
func (r *running) prepareBundle(p *shim.Plan, l *launch, runsc string) error {
	var err error
	if r.folder, err = TempDir(); err != nil {
		return err
	}
	// The user of the run will own this folder. Only ambit can enter the parent folder.
	own := filepath.Join(r.folder, "bundle")
	root, state := filepath.Join(own, "root"), filepath.Join(own, "state")
	for _, dir := range []string{own, root, state} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	folder, runsc := l.expose(own, false), l.expose(runsc, false)
	b := &bundle{root: root}
	if err := b.addSystem(r.shape); err != nil {
		return err
	}
	for _, m := range r.shape.mounts {
		if m.Write {
			return &setupError{"mounts", "writable folders are not supported in the strong isolation tier"}
		}
		if err := b.addMount(m.Source, m.To); err != nil {
			return err
		}
		b.mounts[len(b.mounts)-1].Source = l.expose(m.Source, false)
	}
	if err := b.addMemoryMounts(r.shape.disk); err != nil {
		return err
	}
	if err := b.write(own, r.shape, p.FileSize); err != nil {
		return err
	}
	if l.user != 0 {
		if err := errors.Join(os.Chown(state, l.user, l.user), os.Chown(own, l.user, l.user)); err != nil {
			return err
		}
	}
	if r.shape.network {
		r.listener = newDialListener()
	}
	l.argv = []string{
		runsc, "--rootless", "--root", filepath.Join(folder, "state"), "--platform", "systrap", "--network", "none",
		"--ignore-cgroups", "--overlay2", "none", "--file-access-mounts", "shared",
		"run", "--bundle", folder, "--exec-fd", strconv.Itoa(shim.FDExe),
	}
	for _, fd := range []int{shim.FDControl, shim.FDPlan, shim.FDOrder} {
		l.argv = append(l.argv, "--pass-fd", strconv.Itoa(fd)+":"+strconv.Itoa(fd))
	}
	l.argv = append(l.argv, "run"+filepath.Ext(r.folder))
	l.env = []string{"PATH=/usr/bin:/bin"} // gVisor needs PATH to start its own processes
	return nil
}

// addSystem adds the files that every sandbox has: system folders, public files in /etc, and generated files.
func (b *bundle) addSystem(s shape) error {
	for _, path := range slices.Concat([]string{"/usr"}, systemDirs, systemFiles) {
		var err error
		if to, e := os.Readlink(path); e == nil && slices.Contains(systemDirs, path) {
			err = os.Symlink(to, filepath.Join(b.root, path))
		} else if _, e := os.Stat(path); e == nil {
			err = b.addMount(path, path)
		}
		if err != nil {
			return err
		}
	}
	for _, f := range syntheticFiles(s) {
		at := filepath.Join(b.root, f[0])
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(f[1]), 0o444)); err != nil {
			return err
		}
	}
	return nil
}

// addMemoryMounts adds /proc and the memory disks. These mounts must come last, because later mounts cover earlier
// ones.
func (b *bundle) addMemoryMounts(disk int64) error {
	for _, dir := range []string{"proc", "dev", "tmp"} {
		if err := os.MkdirAll(filepath.Join(b.root, dir), 0o755); err != nil {
			return err
		}
	}
	memory := func(to string, size int64) bundleMount {
		return bundleMount{to, "tmpfs", "tmpfs", []string{fmt.Sprintf("size=%d", size), "mode=0777", "nosuid", "nodev"}}
	}
	b.mounts = append(b.mounts, bundleMount{"/proc", "proc", "proc", nil}, memory("/tmp", disk), memory("/dev/shm", 65536))
	return os.Symlink("tmp", filepath.Join(b.root, scratch))
}

func (b *bundle) addMount(source, to string) error {
	info, err := os.Stat(source)
	if err != nil {
		return &setupError{"mounts", err.Error()}
	}
	b.mounts = append(b.mounts, bundleMount{to, "bind", source, []string{"ro", "rbind"}})
	at := filepath.Join(b.root, to)
	if info.IsDir() {
		return os.MkdirAll(at, 0o755)
	}
	return errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, nil, 0o644))
}

// write writes the bundle's config.json, which makes gVisor start the shim. It also makes the bundle readable for
// the run's user, regardless of ambit's umask.
func (b *bundle) write(folder string, s shape, fileSize uint64) error {
	type object = map[string]any
	var limits, namespaces []object
	for name, limit := range map[string]uint64{
		"RLIMIT_NPROC": uint64(s.bounds.pids - ownProcesses), "RLIMIT_CORE": 0, "RLIMIT_FSIZE": fileSize,
		"RLIMIT_NOFILE": shim.OpenFiles, "RLIMIT_MEMLOCK": shim.LockedMemory,
	} {
		limits = append(limits, object{"type": name, "hard": limit, "soft": limit})
	}
	for _, ns := range []string{"pid", "network", "ipc", "uts", "mount"} {
		namespaces = append(namespaces, object{"type": ns})
	}
	text, err := json.Marshal(object{
		"ociVersion": "1.0.0", "hostname": "sandbox", "mounts": b.mounts,
		"root":  object{"path": "root", "readonly": true},
		"linux": object{"namespaces": namespaces},
		"process": object{
			"user": object{"uid": insideUser, "gid": insideUser}, "args": []string{"ambit", shim.Guest}, "cwd": "/",
			"rlimits": limits, "noNewPrivileges": true,
		},
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "config.json"), text, 0o444); err != nil {
		return err
	}
	return filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
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

// dialListener is a net.Listener. It accepts the connections that the shim requests with [shim.Dial].
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

// dial makes a connection to the proxy and sends the connection's descriptor to the guest, which is the shim in
// gVisor. If the connection fails, the message to the guest contains no descriptor.
func (r *running) dial() {
	h, ok := r.listener.(*dialListener)
	var rights []byte
	if ok && len(h.conns) < backlog {
		theirs, ours, err := connection()
		if err == nil {
			defer theirs.Close()
			rights = unix.UnixRights(int(theirs.Fd()))
			h.conns <- ours // This send does not block, because the channel has space and only this method sends to it.
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
	f := os.NewFile(uintptr(fds[1]), "proxy connection")
	defer f.Close()
	if ours, err = net.FileConn(f); err != nil {
		theirs.Close()
	}
	return theirs, ours, err
}
