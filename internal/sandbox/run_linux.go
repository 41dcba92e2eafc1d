//go:build amd64 || arm64

package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/sandbox/shim"
)

// machine is what runs are made with.
type machine struct {
	bwrap  string
	groups hierarchy
	// users is where the user of a run is taken from; empty if ambit is not root.
	users span
	// exe is ambit's own file, in a form that such a user can execute.
	exe *os.File
}

// span is count numbers from first on.
type span struct{ first, count int }

func (s span) pick() int {
	if s.count == 0 {
		return 0
	}
	return s.first + rand.IntN(s.count)
}

// ownProcesses are the two of bubblewrap. The shim has some threads before it
// becomes the program, so fewer than minProcesses cannot be had.
const (
	ownProcesses = 2
	minProcesses = 12
)

// run carries out one run. The error is a *setupError if the sandbox did not
// come to stand.
func (m *machine) run(ctx context.Context, s *Spec, canary string) (Outcome, *shim.Message, error) {
	started := time.Now()
	r := &running{spec: s, ready: make(chan struct{}), stop: make(chan struct{})}
	g, err := m.groups.create(bounds{memory: s.MemoryMB << 20, pids: max(s.PIDs, minProcesses) + ownProcesses, cpu: s.CPU})
	if err != nil {
		return Outcome{}, nil, &setupError{"cgroup", err.Error()}
	}
	r.group = g
	err = r.start(m, canary)
	if err == nil {
		timer := time.NewTimer(s.Wall - time.Since(started))
		defer timer.Stop()
		select {
		case <-r.exited:
		case <-timer.C:
			r.outcome.TimedOut = true
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-r.stop:
		}
		r.kill()
	}
	r.outcome.OOM, r.outcome.MaxRSS = g.oom(), g.peak()
	if endErr := g.end(); endErr != nil {
		err = errors.Join(err, endErr)
	}
	r.close()
	r.outcome.Duration = time.Since(started)
	if err != nil {
		return r.outcome, nil, err
	}
	out, err := r.verdict()
	return out, r.sang, err
}

// setupError is a mechanism that was not there for a run.
type setupError struct{ what, text string }

func (e *setupError) Error() string { return e.what + ": " + e.text }

// running is a run while it lasts.
type running struct {
	spec  *Spec
	group *group

	cmd     *exec.Cmd
	exited  chan struct{}
	state   *os.ProcessState
	first   chan int // the pid of the namespace's first process
	readers sync.WaitGroup
	ours    []io.Closer // ends of pipes that readers and writers use

	stopOnce sync.Once
	stop     chan struct{} // closed when it wrote too much
	ready    chan struct{} // closed when the program is about to start

	mu       sync.Mutex
	outcome  Outcome
	stderr   bytes.Buffer // before it is ready: what bubblewrap complains of
	failed   *shim.Message
	sang     *shim.Message
	listener net.Listener
	closing  bool
}

// start starts the process that becomes bubblewrap.
func (r *running) start(m *machine, canary string) error {
	user := m.users.pick()
	plan := &shim.Plan{
		Parent: os.Getpid(), Join: r.group.join(), User: user, Argv: r.spec.Argv, Env: environment(r.spec), Dir: r.spec.Dir,
		FileSize: uint64(r.spec.DiskMB) << 20, Listen: r.spec.Egress != nil, Canary: canary,
	}
	arrange(plan, r.spec, m.bwrap)
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	pipe := func(write bool) (their, our *os.File, err error) {
		in, out, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		their, our = out, in
		if write {
			their, our = in, out
		}
		theirs, r.ours = append(theirs, their), append(r.ours, our)
		if user != 0 {
			err = their.Chown(user, user) // so that /dev/stdout can be opened
		}
		return their, our, err
	}
	stdin, toStdin, err := pipe(true)
	if err != nil {
		return err
	}
	stdout, fromStdout, err := pipe(false)
	if err != nil {
		return err
	}
	stderr, fromStderr, err := pipe(false)
	if err != nil {
		return err
	}
	status, fromStatus, err := pipe(false)
	if err != nil {
		return err
	}
	control, fromControl, err := socketPair()
	if err != nil {
		return err
	}
	theirs, r.ours = append(theirs, control), append(r.ours, fromControl)
	files := made(r.spec.Egress != nil)
	plan.Data = len(files)
	text, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	planFile, err := memory("plan", text)
	if err != nil {
		return err
	}
	theirs = append(theirs, planFile)
	extra := []*os.File{control, m.exe, planFile, status}
	for _, f := range files {
		data, err := memory("data", []byte(f[1]))
		if err != nil {
			return err
		}
		theirs, extra = append(theirs, data), append(extra, data)
	}
	r.cmd = &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"ambit", shim.Enter}, Env: []string{}, Dir: "/",
		Stdin: stdin, Stdout: stdout, Stderr: stderr, ExtraFiles: extra,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	if err := r.spawn(); err != nil {
		return &setupError{"sandbox", err.Error()}
	}
	r.first = make(chan int, 1)
	go firstProcess(fromStatus, r.first)
	r.readers.Go(func() { r.listen(fromControl) })
	r.readers.Go(func() { r.readStdout(fromStdout) })
	r.readers.Go(func() { r.readStderr(fromStderr) })
	go func() { // ends with the pipe, which close closes
		toStdin.Write(r.spec.Stdin)
		toStdin.Close()
	}()
	return nil
}

// spawn starts the process from a thread that lives as long as it does: the
// kernel ends the one with the other.
func (r *running) spawn() error {
	begun := make(chan error)
	r.exited = make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := r.cmd.Start()
		begun <- err
		if err != nil {
			return
		}
		r.cmd.Wait() // its word is in ProcessState
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
	// The other side writes as if it could wait.
	if err := unix.SetNonblock(fds[0], false); err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control"), nil
}

// memory is a file of the given content that is nowhere on a disk.
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
		err = f.Chmod(0o555) // readable to whoever has it open
	}
	return f, err
}

// firstProcess reads the pid of the namespace's first process. Later words are
// of no interest, but must not block the writer.
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

// listen takes the messages of the shim.
func (r *running) listen(control *os.File) {
	raw, err := control.SyscallConn()
	if err != nil {
		return
	}
	for {
		buf, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
		var n, rn int
		var recvErr error
		err := raw.Read(func(fd uintptr) bool {
			n, rn, _, _, recvErr = unix.Recvmsg(int(fd), buf, rights, unix.MSG_CMSG_CLOEXEC)
			return recvErr != unix.EAGAIN
		})
		if err != nil || recvErr != nil || n == 0 {
			return
		}
		var m shim.Message
		if json.Unmarshal(buf[:n], &m) != nil {
			continue
		}
		switch m.Kind {
		case shim.Ready:
			close(r.ready)
		case shim.Listener:
			r.serve(rights[:rn])
		case shim.Sang:
			r.sang = &m
		default:
			r.failed = &m
		}
	}
}

// serve gives the listener from inside to whoever serves the way out.
func (r *running) serve(rights []byte) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return
	}
	f := os.NewFile(uintptr(fds[0]), "egress")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		l.Close()
		return
	}
	r.listener = l
	r.readers.Go(func() { r.spec.Egress(l) })
}

func (r *running) tooLarge(where string) {
	r.stopOnce.Do(func() {
		r.mu.Lock()
		r.outcome.TooLarge = where
		r.mu.Unlock()
		close(r.stop)
	})
}

func (r *running) readStdout(from io.Reader) {
	var b bytes.Buffer
	n, _ := io.Copy(&b, io.LimitReader(from, r.spec.MaxStdout+1))
	if n > r.spec.MaxStdout {
		r.tooLarge("stdout")
		b.Truncate(int(r.spec.MaxStdout))
		io.Copy(io.Discard, from)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcome.Stdout = b.Bytes()
}

// maxLine is how much of a line is told at once.
const maxLine = 8 << 10

func (r *running) readStderr(from io.Reader) {
	limited := &io.LimitedReader{R: from, N: r.spec.MaxStderr + 1}
	lines := bufio.NewReaderSize(limited, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			r.told(strings.TrimRight(string(line), "\r\n"))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
	}
	if limited.N <= 0 {
		r.tooLarge("stderr")
		io.Copy(io.Discard, from)
	}
}

// told takes a line. Until the shim is ready, it can only be bubblewrap's.
func (r *running) told(line string) {
	select {
	case <-r.ready:
	default:
		r.mu.Lock()
		if r.stderr.Len() < maxLine {
			r.stderr.WriteString(line + "\n")
		}
		r.mu.Unlock()
	}
	if r.spec.OnStderr != nil {
		r.spec.OnStderr(line)
	}
}

// kill ends the namespace by its first process, and whatever is in the cgroup.
func (r *running) kill() {
	select {
	case <-r.exited:
	default:
		select {
		case pid, ok := <-r.first:
			if ok && pid > 0 {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		default: // it has not come that far
		}
		r.group.kill()
		r.cmd.Process.Kill()
		<-r.exited
	}
}

// close waits for the readers. Nothing is left that could write to them.
func (r *running) close() {
	r.mu.Lock()
	r.closing = true
	if r.listener != nil {
		r.listener.Close()
	}
	r.mu.Unlock()
	r.readers.Wait()
	for _, c := range r.ours {
		c.Close()
	}
}

// verdict tells the outcome of a run that ended.
func (r *running) verdict() (Outcome, error) {
	stood := false
	select {
	case <-r.ready:
		stood = true
	default:
	}
	out := r.outcome
	switch {
	case r.failed != nil && r.failed.Kind == shim.NotStarted:
		return out, fmt.Errorf("%w: %s: %s", ErrNotStarted, r.spec.Argv[0], r.failed.Text)
	case r.failed != nil:
		return out, &setupError{r.failed.What, r.failed.Text}
	case !stood && out.OOM:
		return out, nil // so little memory that not even the shim had enough
	case !stood && !out.TimedOut:
		text, _, _ := strings.Cut(strings.TrimSpace(r.stderr.String()), "\n")
		if text == "" {
			text = "it ended with " + r.state.String()
		}
		return out, &setupError{"bubblewrap", text}
	}
	out.ExitCode = r.state.ExitCode()
	if status, ok := r.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		out.ExitCode = 128 + int(status.Signal())
	}
	if out.ExitCode > 128 {
		out.Signal = out.ExitCode - 128
	}
	return out, nil
}

// findUsers is where root takes the users of runs from: numbers that nobody
// uses, as far as this machine's own user namespace has them.
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
	return span{}, errors.New("the user namespace that ambit runs in has no users to spare")
}

// ownFile opens ambit's own file for users who may have no way to it. If it is
// not theirs to execute, they get a copy.
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
