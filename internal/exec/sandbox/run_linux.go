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
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
	"github.com/ambit-run/ambit/internal/exec/sandbox/supervisor"
)

// machine holds the isolation mechanisms of one tier on this machine.
type machine struct {
	tier   Tier
	bwrap  string // the path of bubblewrap, for the standard tier
	runsc  string // the path of gVisor, for the strong tier
	groups hierarchy
	// users is the range of user ids for runs. It is empty if ambit is not root.
	users span
	// exe is ambit's binary. The user of a run can execute it.
	exe *os.File
}

// span is a range of integers.
type span struct{ first, count int }

func (s span) pick() int {
	if s.count == 0 {
		return 0
	}
	return s.first + rand.IntN(s.count)
}

// ownProcesses is the number of bubblewrap's own processes, which do not count toward the program's limit.
// minProcesses is the smallest process limit of a run, because the shim needs some threads before it executes the
// program.
const (
	ownProcesses = 2
	minProcesses = 12
)

// run makes a sandbox and runs a program in it. If a canary is given, the canary runs instead of the program.
func (m *machine) run(ctx context.Context, s *Spec, canary string) (Outcome, *shim.Message, error) {
	begun := time.Now()
	shape := shapeOf(s)
	if s.NoExec && s.Tier != Strong {
		var err error
		if shape.programs, err = findPrograms(s); err != nil {
			return Outcome{}, nil, fmt.Errorf("%w: %w", ErrNotStarted, err)
		}
	}
	for _, folder := range shape.quotas() {
		size, err := folderSize(folder)
		if err != nil {
			return Outcome{}, nil, fmt.Errorf("%w: the size of its private folder cannot be measured: %w", ErrNotStarted, err)
		}
		if size > shape.disk {
			return Outcome{}, nil, fmt.Errorf("%w: its private folder %s contains %d MB, more than the "+
				"limit of %d MB; delete files there", ErrNotStarted, folder, size>>20, shape.disk>>20)
		}
	}
	r, err := m.prepare(shape)
	if err != nil {
		return Outcome{}, nil, err
	}
	return r.execute(ctx, s, order(s, canary), begun)
}

func order(s *Spec, canary string) *shim.Order {
	return &shim.Order{Argv: s.Argv, Env: environment(s), Dir: s.Dir, Canary: canary}
}

// execute runs a program in a prepared sandbox and then removes the sandbox. The error is a *setupError if the
// sandbox did not become ready.
func (r *running) execute(
	ctx context.Context, s *Spec, o *shim.Order, begun time.Time,
) (Outcome, *shim.Message, error) {
	err := r.begin(s, o)
	if err == nil {
		var late <-chan time.Time
		if s.Wall > 0 {
			timer := time.NewTimer(s.Wall - time.Since(begun))
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-r.exited:
		case <-late:
			r.outcome.TimedOut = true
		case <-ctx.Done():
			err = context.Cause(ctx)
			r.askToExit(s.Grace)
		case <-r.stop:
		}
	}
	err = errors.Join(err, r.terminate())
	r.outcome.Duration = time.Since(begun)
	if err != nil {
		return r.outcome, nil, err
	}
	out, err := r.result()
	return out, r.report, err
}

// setupError reports that a mechanism failed during the setup of a sandbox.
type setupError struct{ what, text string }

func (e *setupError) Error() string { return e.what + ": " + e.text }

// running represents a started sandbox, which is used for one run.
type running struct {
	shape    shape
	expected []shim.Mounted
	group    *group

	cmd     *exec.Cmd
	exited  chan struct{}
	state   *os.ProcessState
	first   chan int // receives the pid, on this machine, of the first process in the sandbox's pid namespace
	readers sync.WaitGroup
	ours    []io.Closer // ambit's ends of the pipes and sockets

	stdin, stdout, stderr *os.File
	status, control, gate *os.File
	order                 *os.File
	program               *os.Process // set when the channel ready is closed
	identities            []identity
	folder                string // the path of the run's private folder, or empty

	stopOnce   sync.Once
	stop       chan struct{} // closed when the program has written too much, or ambit cannot supervise it
	restricted chan struct{} // closed when all restrictions are in force
	idle       chan struct{} // closed when the sandbox waits for a run
	ready      chan struct{} // closed when the program is about to start

	supervised bool         // set if the filter passes system calls to ambit
	moving     sync.RWMutex // locked while ambit measures the private folders

	mu          sync.Mutex
	spec        *Spec // nil until the run begins
	outcome     Outcome
	earlyStderr bytes.Buffer // the stderr before the program starts, which contains errors of bubblewrap
	failed      *shim.Message
	report      *shim.Message
	listener    net.Listener // the listener of the proxy, in the strong tier
	sockets     supervisor.Sockets
	notified    bool     // set when ambit has received sockets.Notify
	private     []uint64 // the numbers of the mounts of the program's private folders
	closing     bool
	ctx         context.Context // a context that ends with the run
	cancel      context.CancelFunc
}

// begin sends the order, which starts the program. If the order is nil, begin releases the prestarted interpreter
// instead.
func (r *running) begin(s *Spec, o *shim.Order) error {
	r.mu.Lock()
	r.spec = s
	r.serveLocked()
	failed := r.failed
	r.mu.Unlock()
	if failed != nil {
		return &setupError{failed.What, failed.Text}
	}
	r.readers.Go(r.readStderr)
	r.readers.Go(func() { r.watchQuotas(quotaTime) })
	if s.Talk != nil {
		s.Talk(r.stdin, r.stdout)
	} else {
		r.readers.Go(r.readStdout)
		go func() { // this goroutine ends at the latest when r.terminate closes the pipe
			r.stdin.Write(s.Stdin)
			r.stdin.Close()
		}()
	}
	if o == nil {
		r.gate.Write([]byte(".")) // the write fails only if the interpreter has exited
		return nil
	}
	return r.sendOrder(o)
}

func (r *running) isIdle() bool { return closed(r.idle) }

func (r *running) hasExited() bool { return closed(r.exited) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// sendOrder writes the order to the memory file. Once all restrictions are in force, it sends [shim.Go] to the shim.
func (r *running) sendOrder(o *shim.Order) error {
	text, err := json.Marshal(o)
	if err == nil && len(text) > shim.MaxOrder {
		return fmt.Errorf("%w: the arguments and the environment are too long", ErrNotStarted)
	}
	if err == nil {
		_, err = r.order.WriteAt(text, 0)
	}
	if err != nil {
		return asSetupError(err)
	}
	go func() { // this goroutine ends with the sandbox
		select {
		case <-r.restricted:
			// If the write fails, the shim has already exited and reported why.
			r.control.Write([]byte(shim.Go))
		case <-r.exited:
		}
	}()
	return nil
}

// listen receives the messages of the shim until the control socket is closed.
func (r *running) listen() {
	raw, err := r.control.SyscallConn()
	if err != nil {
		return
	}
	for {
		buf, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(8)+unix.CmsgSpace(unix.SizeofUcred))
		var n, rn int
		var recvErr error
		err := raw.Read(func(fd uintptr) bool {
			n, rn, _, _, recvErr = unix.Recvmsg(int(fd), buf, rights, unix.MSG_CMSG_CLOEXEC)
			return recvErr != unix.EAGAIN
		})
		if recvErr == unix.ECONNRESET {
			continue // the shim exited early, but its messages are still in the socket
		}
		if err != nil || recvErr != nil {
			return
		}
		files, pid := received(rights[:rn])
		r.handle(buf[:n], files, pid)
		for _, f := range files { // close the files that r.handle did not keep
			f.Close()
		}
		if n == 0 {
			return
		}
	}
}

// handle processes one message from the shim. In the strong tier, the shim and the program run as the same user, so
// the program could forge messages. A forged message can harm only the program's own run.
func (r *running) handle(text []byte, files []*os.File, pid int) {
	var m shim.Message
	if json.Unmarshal(text, &m) != nil {
		return
	}
	begun := closed(r.ready)
	switch {
	case m.Kind == shim.Dial:
		r.dial()
	case m.Kind == shim.CanaryReport:
		r.report = &m
	case m.Kind == shim.NotStarted, m.Kind == shim.Failed && !begun:
		r.mu.Lock()
		r.failed = &m
		r.mu.Unlock()
	case begun:
	case m.Kind == shim.Ready:
		if p, err := os.FindProcess(pid); err == nil && pid > 0 {
			r.program, r.ours = p, append(r.ours, released{p})
		}
		close(r.ready)
	case m.Kind == shim.Restricted && !closed(r.restricted):
		r.mu.Lock()
		unsupervised := r.supervised && !r.notified || r.failed != nil
		r.mu.Unlock()
		if unsupervised {
			r.abort("seccomp", errors.New("ambit can no longer answer the program's system calls"))
			return
		}
		close(r.restricted)
	case m.Kind == shim.Sockets && len(files) == 2 && r.sockets.DNS == nil:
		r.sockets.DNS, r.sockets.Relay = files[0], files[1]
		clear(files)
	case m.Kind == shim.Notify && len(files) == 1 && r.sockets.Notify == nil:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.sockets.Notify, r.private, r.notified = files[0], m.Private, true
		clear(files)
		r.serveLocked()
	}
}

// released is an [io.Closer] that releases a process.
type released struct{ *os.Process }

func (p released) Close() error { return p.Release() }

// received returns the files that were passed with a message, and the pid of the sender.
func received(rights []byte) (files []*os.File, pid int) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, 0
	}
	for i := range messages {
		if sender, err := unix.ParseUnixCredentials(&messages[i]); err == nil {
			pid = int(sender.Pid)
			continue
		}
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // a control message of another kind carries no files
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, pid
}

// serveLocked starts to answer the program's system calls. In the strong tier, it serves the program's connections to
// a proxy instead. It does nothing until the sockets and the spec are known. The caller must hold r.mu.
func (r *running) serveLocked() {
	switch {
	case r.closing || r.spec == nil:
	case r.listener != nil:
		l, network := r.listener, r.spec.Network
		r.readers.Go(func() { network.Serve(l) })
	case r.sockets.Notify != nil:
		s := &supervisor.Supervisor{
			Network: r.spec.Network, NoExec: r.spec.NoExec, OnExec: r.spec.OnExec,
			Files: r.replaceable(), Moving: &r.moving, Private: r.private, Observe: r.spec.Observe,
		}
		if r.shape.programs != nil {
			s.Programs = r.shape.programs.extra
		}
		sockets := r.sockets
		r.sockets = supervisor.Sockets{}
		if err := s.Open(sockets); err != nil {
			r.abortLocked("seccomp", err)
			return
		}
		r.readers.Go(func() {
			if err := s.Serve(r.ctx); err != nil {
				r.abort("seccomp", err)
			}
		})
	}
}

// abort ends the run because a mechanism does not work. If the program has not started yet, it will never start.
func (r *running) abort(what string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abortLocked(what, err)
}

func (r *running) abortLocked(what string, err error) {
	if r.failed == nil {
		r.failed = &shim.Message{Kind: shim.Failed, What: what, Text: err.Error()}
	}
	r.stopOnce.Do(func() { close(r.stop) })
}

func (r *running) tooLarge(where string) {
	r.stopOnce.Do(func() {
		r.mu.Lock()
		r.outcome.TooLarge = where
		r.mu.Unlock()
		close(r.stop)
	})
}

func (r *running) readStdout() {
	var b bytes.Buffer
	n, _ := io.Copy(&b, io.LimitReader(r.stdout, r.spec.MaxStdout+1))
	if n > r.spec.MaxStdout {
		r.tooLarge("stdout")
		b.Truncate(int(r.spec.MaxStdout))
		io.Copy(io.Discard, r.stdout)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcome.Stdout = b.Bytes()
}

// maxLine is the length in bytes at which a long line of stderr is split.
const maxLine = 8 << 10

func (r *running) readStderr() {
	limited := &io.LimitedReader{R: r.stderr, N: r.spec.MaxStderr + 1}
	lines := bufio.NewReaderSize(limited, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			r.stderrLine(strings.TrimRight(string(line), "\r\n"))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
	}
	if limited.N <= 0 {
		r.tooLarge("stderr")
		io.Copy(io.Discard, r.stderr)
	}
}

// stderrLine handles one line of stderr. Lines that arrive before the program starts come from bubblewrap. stderrLine
// keeps them for the error message.
func (r *running) stderrLine(line string) {
	if !closed(r.ready) {
		r.mu.Lock()
		if r.earlyStderr.Len() < maxLine {
			r.earlyStderr.WriteString(line + "\n")
		}
		r.mu.Unlock()
	}
	if r.spec.OnStderr != nil {
		r.spec.OnStderr(line)
	}
}

// askToExit sends SIGTERM to the program and waits until it has exited, but no longer than the grace time.
func (r *running) askToExit(grace time.Duration) {
	if grace <= 0 || !closed(r.ready) || r.program == nil || r.program.Signal(syscall.SIGTERM) != nil {
		return
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-r.exited:
	case <-timer.C:
	}
}

// kill kills all processes of the sandbox and waits until bubblewrap or gVisor has exited.
func (r *running) kill() {
	if !r.hasExited() {
		select {
		case pid, ok := <-r.first:
			if ok && pid > 0 {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		default: // the first process has not started yet
		}
		r.group.kill()
		r.cmd.Process.Kill()
		<-r.exited
	}
}

// terminate kills the remaining processes, removes the cgroup, and waits for the goroutines that read the output.
func (r *running) terminate() error {
	if r.cmd != nil {
		r.kill()
	}
	r.outcome.OOM, r.outcome.MaxRSS = r.group.oom(), r.group.peak()
	err := r.group.killAndRemove()
	r.mu.Lock()
	r.closing = true
	r.cancel()
	if r.listener != nil {
		r.listener.Close()
	}
	r.sockets.Close()
	r.mu.Unlock()
	r.readers.Wait()
	for _, c := range r.ours {
		c.Close()
	}
	if r.folder != "" {
		err = errors.Join(err, os.RemoveAll(r.folder))
	}
	return err
}

func (r *running) result() (Outcome, error) {
	wasReady, out := closed(r.ready), r.outcome
	switch {
	case r.failed != nil && r.failed.Kind == shim.NotStarted:
		return out, fmt.Errorf("%w: %s: %s", ErrNotStarted, r.spec.Argv[0], r.failed.Text)
	case r.failed != nil:
		return out, &setupError{r.failed.What, r.failed.Text}
	case !wasReady && out.OOM:
		return out, nil // the memory limit is too low for the shim itself
	case !wasReady && !out.TimedOut:
		text, _, _ := strings.Cut(strings.TrimSpace(r.earlyStderr.String()), "\n")
		if text == "" {
			text = "the process exited before the program started: " + r.state.String()
		}
		what := "bubblewrap"
		if r.shape.tier == Strong {
			what = "gvisor"
		}
		return out, &setupError{what, text}
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
