//go:build amd64 || arm64

package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
)

// shape describes a sandbox without the program that runs in it.
type shape struct {
	tier   Tier
	mounts []Mount
	disk   int64 // in bytes
	bounds bounds
	egress bool
	// interpreter waits inside, if set; the fields below are those of its program.
	interpreter string
	argv, env   []string
	dir         string
}

func shapeOf(s *Spec) shape {
	return shape{
		tier: s.Tier, mounts: s.Mounts, disk: s.DiskMB << 20, egress: s.Egress != nil,
		bounds: bounds{memory: s.MemoryMB << 20, pids: max(s.PIDs, minProcesses) + ownProcesses, cpu: s.CPU},
	}
}

// key returns the same text for equal shapes.
func (s shape) key() string { return fmt.Sprintf("%#v", s) }

// identity identifies the file at a path.
type identity struct {
	path        string
	device, ino uint64
}

// identify returns zero numbers if there is no file.
func identify(path string) identity {
	id := identity{path: path}
	var st unix.Stat_t
	if unix.Stat(path, &st) == nil {
		id.device, id.ino = st.Dev, st.Ino
	}
	return id
}

// unchanged reports whether the sources of the mounts are still the same files. A mount
// keeps the old file if another one replaces it.
func (r *running) unchanged() bool {
	for _, id := range r.identities {
		if identify(id.path) != id {
			return false
		}
	}
	return true
}

// prepare starts a sandbox, which then waits for its order. It returns before the
// sandbox is ready.
func (m *machine) prepare(s shape) (*running, error) {
	for _, mount := range s.mounts {
		fd, err := shim.OpenPlain(mount.Source)
		if err != nil {
			return nil, &setupError{"mounts", err.Error()}
		}
		unix.Close(fd)
	}
	b := s.bounds
	if s.tier == Strong {
		b.memory, b.pids = b.memory+sentryMemory, b.pids*threadsPerGuest+sentryThreads
	}
	g, err := m.groups.create(b)
	if err != nil {
		return nil, &setupError{"cgroup", err.Error()}
	}
	r := &running{shape: s, group: g, stop: make(chan struct{}), restricted: make(chan struct{}), ready: make(chan struct{}), exited: make(chan struct{})}
	for _, path := range sources(s) {
		r.identities = append(r.identities, identify(path))
	}
	if err := r.start(m); err != nil {
		r.end() // removes the empty cgroup
		return nil, setup(err)
	}
	return r, nil
}

// setup converts an error during the setup of a sandbox to a *setupError: files, pipes
// and processes can run out.
func setup(err error) error {
	if _, ok := errors.AsType[*setupError](err); ok {
		return err
	}
	return &setupError{"sandbox", err.Error()}
}

// start starts the process that executes bubblewrap.
func (r *running) start(m *machine) error {
	user := m.userFor(r.shape)
	if err := chownMounts(r.shape, user); err != nil {
		return err
	}
	plan := &shim.Plan{Parent: os.Getpid(), Join: r.group.join(), User: user, FileSize: uint64(r.shape.disk), Listen: r.shape.egress}
	var files [][2]string
	if r.shape.tier == Strong {
		plan.ReadWrite = []string{Home}
		if err := r.prepareBundle(plan, m.runsc); err != nil {
			return err
		}
	} else {
		files = syntheticFiles(r.shape)
		prepareBubblewrap(plan, r.shape, m.bwrap)
	}
	e, err := r.connect(user)
	defer e.close()
	if err != nil {
		return err
	}
	plan.Data = len(files)
	text, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	planFile, err := e.memory("plan", text)
	if err != nil {
		return err
	}
	extra := []*os.File{e.control, m.exe, planFile, e.status, r.order, e.gate}
	for _, f := range files {
		data, err := e.memory("data", []byte(f[1]))
		if err != nil {
			return err
		}
		extra = append(extra, data)
	}
	attr := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	second, err := r.group.open()
	if err != nil {
		return &setupError{"cgroup", err.Error()}
	}
	if second != nil {
		e.all = append(e.all, second)
		attr.UseCgroupFD, attr.CgroupFD = true, int(second.Fd())
	}
	r.cmd = &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"ambit", shim.Enter}, Env: []string{}, Dir: "/",
		Stdin: e.stdin, Stdout: e.stdout, Stderr: e.stderr, ExtraFiles: extra, SysProcAttr: attr,
	}
	if err := r.spawn(); err != nil {
		r.cmd = nil
		return &setupError{"sandbox", err.Error()}
	}
	r.startReaders()
	return nil
}

// remoteEnds are the sandbox's ends of pipes and sockets. They are closed here once the
// process has inherited them.
type remoteEnds struct {
	stdin, stdout, stderr, status, gate, control *os.File
	all                                          []*os.File
}

func (e *remoteEnds) close() {
	for _, f := range e.all {
		f.Close()
	}
}

// memory makes a memory file that is passed to the sandbox.
func (e *remoteEnds) memory(name string, content []byte) (*os.File, error) {
	f, err := memory(name, content)
	if err == nil {
		e.all = append(e.all, f)
	}
	return f, err
}

// connect makes the pipes and sockets of a sandbox. The caller closes the remote ends,
// also after an error.
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
			if err := pipe.Chown(user, user); err != nil { // so that /dev/stdout can be opened
				return e, err
			}
		}
	}
	order, err := memory("order", nil)
	if err == nil {
		r.order, r.ours = order, append(r.ours, order)
	}
	return e, err
}

// startReaders starts reading from a new sandbox.
func (r *running) startReaders() {
	r.first = make(chan int, 1)
	go firstProcess(r.status, r.first)
	r.readers.Go(r.listen)
	r.idle = r.restricted
	if r.shape.interpreter != "" {
		r.idle = make(chan struct{})
		go func() { // ends with the socket, which end closes
			if n, _ := r.gate.Read(make([]byte, 1)); n == 1 {
				close(r.idle)
			}
		}()
	}
}

// spawn starts the process from a thread that lives until the process ends, because the
// kernel kills the process at the end of the thread.
func (r *running) spawn() error {
	begun := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := r.cmd.Start()
		begun <- err
		if err != nil {
			return
		}
		r.cmd.Wait() // the result is in ProcessState
		r.state = r.cmd.ProcessState
		close(r.exited)
	}()
	return <-begun
}

func socketPair() (theirs, ours *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	// The other side uses blocking writes.
	if err := unix.SetNonblock(fds[0], false); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control"), nil
}

// memory makes a file in memory with this content.
func memory(name string, content []byte) (*os.File, error) {
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
		err = f.Chmod(0o555) // readable for every user that has the descriptor
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// firstProcess reads the pid of the namespace's first process. It discards the rest, so
// that the writer does not block.
func firstProcess(status io.Reader, first chan<- int) {
	var word struct {
		Child int `json:"child-pid"`
	}
	if json.NewDecoder(status).Decode(&word) == nil {
		first <- word.Child
	}
	close(first)
	io.Copy(io.Discard, status)
}

// findUsers returns user ids for runs if ambit is root: ids that no account has and that
// the current user namespace maps.
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
	return span{}, errors.New("ambit's user namespace maps no unused user ids")
}

// ownFile opens ambit's binary. If other users cannot execute it, it returns a copy in
// memory.
func ownFile(foreign bool) (*os.File, error) {
	f, err := os.Open("/proc/self/exe")
	if err != nil || !foreign {
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
	return memory("ambit", content)
}
