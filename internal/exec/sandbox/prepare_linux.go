//go:build amd64 || arm64

package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
)

// shape describes a sandbox, but not the program that runs in it.
type shape struct {
	tier    Tier
	mounts  []Mount
	disk    int64 // in bytes
	bounds  bounds
	network bool // set if Spec.Network is set
	observe bool // set if Spec.Observe is set
	// programs lists the only programs that exist in the sandbox. If it is nil, all programs of the machine exist.
	programs *programs
	// interpreter, if not empty, is started before the run and waits inside the sandbox. The fields below then
	// describe the program that the interpreter will run.
	interpreter string
	argv, env   []string
	dir         string
}

func shapeOf(s *Spec) shape {
	disk := s.DiskMB << 20
	if s.NoDisk {
		disk = 4096 // a size of 0 would mean no limit
	}
	return shape{
		tier: s.Tier, mounts: s.Mounts, disk: disk, network: s.Network != nil,
		observe: s.Observe != nil,
		bounds:  bounds{memory: s.MemoryMB << 20, pids: max(s.PIDs, minProcesses) + ownProcesses, cpu: s.CPU},
	}
}

// key returns the same text for equal shapes.
func (s shape) key() string { return fmt.Sprintf("%#v", s) }

// identity identifies the file at a path by its device and inode numbers.
type identity struct {
	path        string
	device, ino uint64
}

// identify returns the identity of the file at a path. The device and inode numbers are 0 if there is no file.
func identify(path string) identity {
	id := identity{path: path}
	var st unix.Stat_t
	if unix.Stat(path, &st) == nil {
		id.device, id.ino = st.Dev, st.Ino
	}
	return id
}

// unchanged reports whether the source paths of the mounts still refer to the same files. If a file was replaced, a
// prepared sandbox would still show the old file.
func (r *running) unchanged() bool {
	for _, id := range r.identities {
		if identify(id.path) != id {
			return false
		}
	}
	return true
}

// prepare starts a sandbox and returns before the sandbox is ready. A ready sandbox waits for an order, which says
// what program to run.
func (m *machine) prepare(s shape) (*running, error) {
	var expected []shim.Mounted
	for _, mount := range s.mounts {
		if mount.Hide {
			continue
		}
		if !filepath.IsAbs(mount.Source) || !filepath.IsAbs(mount.To) {
			return nil, &setupError{"mounts", "the path " + mount.Source + " or " + mount.To + " is not absolute"}
		}
		fd, err := openPlain(mount.Source)
		if err != nil {
			return nil, &setupError{"mounts", err.Error()}
		}
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		unix.Close(fd)
		if err != nil {
			return nil, &setupError{"mounts", err.Error()}
		}
		expected = append(expected, shim.Mounted{To: filepath.Clean(mount.To), Device: st.Dev, Inode: st.Ino})
	}
	b := s.bounds
	if s.tier == Strong {
		b.memory, b.pids = b.memory+sentryMemory, b.pids*threadsPerGuest+sentryThreads
	}
	g, err := m.groups.create(b)
	if err != nil {
		return nil, &setupError{"cgroup", err.Error()}
	}
	r := &running{
		shape: s, expected: expected, group: g, stop: make(chan struct{}), restricted: make(chan struct{}),
		ready: make(chan struct{}), exited: make(chan struct{}),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	for _, path := range sources(s) {
		r.identities = append(r.identities, identify(path))
	}
	if err := r.start(m); err != nil {
		r.terminate() // remove the cgroup, which is empty
		return nil, asSetupError(err)
	}
	return r, nil
}

// asSetupError converts an error in the setup of a sandbox to a *setupError. For example, the machine may have run out
// of files, pipes or processes.
func asSetupError(err error) error {
	if _, ok := errors.AsType[*setupError](err); ok {
		return err
	}
	return &setupError{"sandbox", err.Error()}
}

// start starts bubblewrap or gVisor.
func (r *running) start(m *machine) error {
	user := m.userFor(r.shape)
	if err := chownMounts(r.shape, user); err != nil {
		return err
	}
	l := &launch{user: user}
	plan := &shim.Plan{}
	plan.Network, plan.NoExec = r.shape.network && r.shape.tier != Strong, r.shape.programs != nil
	// Programs that the sandboxed program starts must be able to communicate with it over Unix sockets.
	plan.UnixSockets = plan.Network && !plan.NoExec && r.shape.tier == Confined
	if plan.UnixSockets {
		plan.Private = r.shape.private()
	}
	plan.Expected = r.expected
	plan.Renames = len(r.replaceable()) > 0 || len(r.shape.quotas()) > 0 && r.shape.tier != Strong
	plan.Observe = r.shape.observe && r.shape.tier != Strong
	r.supervised = plan.Reports()
	plan.Listen = r.shape.network && r.shape.tier == Strong
	plan.FileSize = uint64(r.shape.disk)
	if r.shape.tier == Confined {
		plan.Processes = uint64(r.shape.bounds.pids)
		if len(m.groups.parents) == 0 {
			plan.Memory = uint64(r.shape.bounds.memory)
		}
	}
	var files [][2]string
	if r.shape.tier == Strong {
		plan.ReadWrite = []string{Home}
		if err := r.prepareBundle(plan, l, m.runsc); err != nil {
			return err
		}
	} else {
		files = append(syntheticFiles(r.shape), copiedFiles()...)
		prepareBubblewrap(plan, l, r.shape, m.bwrap, files)
	}
	e, err := r.connect(user)
	defer e.close()
	if err != nil {
		return err
	}
	text, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	planFile, err := e.memoryFile("plan", text)
	if err != nil {
		return err
	}
	extra := []*os.File{e.control, m.exe, planFile, e.status, r.order, e.gate}
	for _, f := range files {
		data, err := e.memoryFile("data", []byte(f[1]))
		if err != nil {
			return err
		}
		extra = append(extra, data)
	}
	attr := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	v2, err := r.group.open()
	if err != nil {
		return &setupError{"cgroup", err.Error()}
	}
	if v2 != nil {
		e.all = append(e.all, v2)
		attr.UseCgroupFD, attr.CgroupFD = true, int(v2.Fd())
	}
	if user != 0 {
		attr.Credential = &syscall.Credential{Uid: uint32(user), Gid: uint32(user)}
	}
	r.cmd = &exec.Cmd{
		Path: l.argv[0], Args: l.argv, Env: l.env, Dir: "/",
		Stdin: e.stdin, Stdout: e.stdout, Stderr: e.stderr, ExtraFiles: extra, SysProcAttr: attr,
	}
	if err := r.spawn(l); err != nil {
		r.cmd = nil
		return err
	}
	r.startReaders()
	return nil
}

// remoteEnds are the sandbox's ends of its pipes and sockets. ambit closes its copies once the process of the
// sandbox has inherited them.
type remoteEnds struct {
	stdin, stdout, stderr, status, gate, control *os.File
	all                                          []*os.File
}

func (e *remoteEnds) close() {
	for _, f := range e.all {
		f.Close()
	}
}

// memoryFile makes a memory file and adds it to the files that ambit closes.
func (e *remoteEnds) memoryFile(name string, content []byte) (*os.File, error) {
	f, err := memoryFile(name, content)
	if err == nil {
		e.all = append(e.all, f)
	}
	return f, err
}

// connect makes the pipes and sockets of a sandbox. The caller must close the remote ends, even after an error.
func (r *running) connect(user int) (*remoteEnds, error) {
	e := &remoteEnds{}
	outward := func() (theirs, ours *os.File, err error) {
		ours, theirs, err = os.Pipe()
		return theirs, ours, err
	}
	for _, c := range []struct {
		open         func() (theirs, ours *os.File, err error)
		theirs, ours **os.File
	}{
		{os.Pipe, &e.stdin, &r.stdin},
		{outward, &e.stdout, &r.stdout},
		{outward, &e.stderr, &r.stderr},
		{outward, &e.status, &r.status},
		{socketPair, &e.gate, &r.gate},
		{socketPair, &e.control, &r.control},
	} {
		theirs, ours, err := c.open()
		if err != nil {
			return e, err
		}
		*c.theirs, *c.ours = theirs, ours
		e.all, r.ours = append(e.all, theirs), append(r.ours, ours)
	}
	if user != 0 {
		for _, pipe := range []*os.File{e.stdin, e.stdout, e.stderr, e.status} {
			if err := pipe.Chown(user, user); err != nil { // the owner can open /dev/stdout
				return e, err
			}
		}
	}
	order, err := memoryFile("order", nil)
	if err == nil {
		r.order, r.ours = order, append(r.ours, order)
	}
	return e, err
}

// quotas returns the sandbox's private folders whose size is limited, as paths on this machine.
func (s *shape) quotas() (folders []string) {
	for _, m := range s.mounts {
		if s.tier == Confined && m.Write && m.Give {
			folders = append(folders, m.Source)
		}
	}
	return folders
}

func (r *running) startReaders() {
	r.first = make(chan int, 1)
	go firstProcess(r.status, r.first)
	r.readers.Go(r.listen)
	r.idle = r.restricted
	if r.shape.interpreter != "" {
		r.idle = make(chan struct{})
		go func() { // this goroutine ends at the latest when r.terminate closes the socket
			if n, _ := r.gate.Read(make([]byte, 1)); n == 1 {
				close(r.idle)
			}
		}()
	}
}

func socketPair() (theirs, ours *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	// The shim uses blocking system calls on its end of the socket. With SO_PASSCRED, the shim's messages carry its
	// pid, which becomes the pid of the program.
	err = errors.Join(unix.SetNonblock(fds[0], false), unix.SetsockoptInt(fds[1], unix.SOL_SOCKET, unix.SO_PASSCRED, 1))
	if err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control"), nil
}

// memoryFile makes a file in memory with the given content.
func memoryFile(name string, content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(content)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err == nil {
		err = f.Chmod(0o555) // every user that has the descriptor can read and execute the file
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// firstProcess reads the pid of the namespace's first process from bubblewrap's status pipe. It discards all later
// output, because a full pipe would block bubblewrap.
func firstProcess(status io.Reader, first chan<- int) {
	var message struct {
		Child int `json:"child-pid"`
	}
	if json.NewDecoder(status).Decode(&message) == nil {
		first <- message.Child
	}
	close(first)
	io.Copy(io.Discard, status)
}

// findUsers returns a range of user ids for the runs of an ambit that is root. No account has any of these ids, and
// all of them are mapped in the current user namespace.
func findUsers(uidMap string) (span, error) {
	for _, s := range []span{{0x70000000, 1 << 28}, {61184, 4000}} {
		for line := range strings.Lines(uidMap) {
			f := strings.Fields(line)
			if len(f) != 3 {
				continue
			}
			first, err1 := strconv.ParseUint(f[0], 10, 64)
			count, err2 := strconv.ParseUint(f[2], 10, 64)
			if err1 == nil && err2 == nil && uint64(s.first) >= first && uint64(s.first+s.count) <= first+count {
				return s, nil
			}
		}
	}
	return span{}, errors.New("ambit's user namespace maps too few user ids for the users of sandboxes")
}

// ownFile opens ambit's binary. If other users must execute the binary but do not have permission, ownFile returns a
// copy in memory.
func ownFile(forOtherUsers bool) (*os.File, error) {
	f, err := os.Open("/proc/self/exe")
	if err != nil || !forOtherUsers {
		return f, err
	}
	info, err := f.Stat()
	if err != nil || info.Mode().Perm()&0o005 == 0o005 {
		return f, err
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	return memoryFile("ambit", content)
}

// userFor returns the user id of a run. Runs with the same private folder share an id, because they must own the
// files of earlier runs. Other runs have different ids, because the kernel limits some resources for each user. The
// id depends on the folder's path and inode: the author of an agent can choose the folder's name, but not its inode,
// and therefore cannot choose the id of another server.
func (m *machine) userFor(s shape) int {
	i := slices.IndexFunc(s.mounts, func(mount Mount) bool { return mount.Write && mount.Give })
	if i < 0 || m.users.count == 0 {
		return m.users.pick()
	}
	var folder unix.Stat_t
	if unix.Stat(s.mounts[i].Source, &folder) != nil {
		return m.users.pick() // the run cannot start without the folder
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", folder.Ino, s.mounts[i].Source))
	return m.users.first + int(binary.BigEndian.Uint32(sum[:])%uint32(m.users.count))
}

// chownMounts makes the given user the owner of everything in the writable mounts whose Give field is true. It does
// nothing if the user is 0. userFor returns 0 if ambit is not root. chownMounts never follows a link, even if another
// process replaces files at the same time.
func chownMounts(s shape, user int) error {
	if user == 0 {
		return nil
	}
	for _, m := range s.mounts {
		if !m.Write || !m.Give {
			continue
		}
		if err := chownTree(m.Source, user); err != nil {
			return &setupError{"mounts", fmt.Sprintf("the owner of the writable folder cannot be changed: %v", err)}
		}
	}
	return nil
}

func chownTree(dir string, user int) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := root.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the file was deleted during the walk
		}
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		// Skip a file with several hard links. One of the links may be outside the folder.
		if ok && (int(st.Uid) == user || !info.IsDir() && st.Nlink > 1) {
			return nil
		}
		if err := root.Lchown(path, user, user); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}
