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
)

// machine holds the mechanisms that runs use.
type machine struct {
	tier   Tier
	bwrap  string // for Standard
	runsc  string // for Strong
	groups hierarchy
	// users are the ids for the users of runs; empty if ambit is not root.
	users span
	// exe is ambit's binary; the user of a run can execute it.
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

// ownProcesses are bubblewrap's two. The shim needs some threads before it executes the
// program, so minProcesses is the lowest limit.
const (
	ownProcesses = 2
	minProcesses = 12
)

// run executes one run in a new sandbox.
func (m *machine) run(ctx context.Context, s *Spec, canary string) (Outcome, *shim.Message, error) {
	begun := time.Now()
	r, err := m.prepare(shapeOf(s))
	if err != nil {
		return Outcome{}, nil, err
	}
	return r.execute(ctx, s, order(s, canary), begun)
}

func order(s *Spec, canary string) *shim.Order {
	return &shim.Order{Argv: s.Argv, Env: environment(s), Dir: s.Dir, Canary: canary}
}

// execute runs a program in a prepared sandbox and removes the sandbox. The error is a
// *setupError if the sandbox did not become ready.
func (r *running) execute(ctx context.Context, s *Spec, o *shim.Order, begun time.Time) (Outcome, *shim.Message, error) {
	err := r.begin(s, o)
	if err == nil {
		timer := time.NewTimer(s.Wall - time.Since(begun))
		defer timer.Stop()
		select {
		case <-r.exited:
		case <-timer.C:
			r.outcome.TimedOut = true
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-r.stop:
		}
	}
	err = errors.Join(err, r.end())
	r.outcome.Duration = time.Since(begun)
	if err != nil {
		return r.outcome, nil, err
	}
	out, err := r.result()
	return out, r.report, err
}

// setupError is the failure of a mechanism during the setup of a sandbox.
type setupError struct{ what, text string }

func (e *setupError) Error() string { return e.what + ": " + e.text }

// running is a sandbox from its start to its end. It is used for one run.
type running struct {
	shape shape
	group *group

	cmd     *exec.Cmd
	exited  chan struct{}
	state   *os.ProcessState
	first   chan int // receives the pid of the namespace's first process
	readers sync.WaitGroup
	ours    []io.Closer // ambit's ends of pipes and sockets

	stdin, stdout, stderr *os.File
	status, control, gate *os.File
	order                 *os.File
	identities            []identity
	folder                string // private folder of this run; may be empty

	stopOnce   sync.Once
	stop       chan struct{} // closed when the program has written too much
	restricted chan struct{} // closed when all restrictions are in force
	idle       chan struct{} // closed when the sandbox waits for a run
	ready      chan struct{} // closed when the program is about to start

	mu          sync.Mutex
	spec        *Spec // nil before begin
	outcome     Outcome
	earlyStderr bytes.Buffer // stderr before ready: bubblewrap's errors
	failed      *shim.Message
	report      *shim.Message
	listener    net.Listener
	closing     bool
}

// begin sends the order. With a nil order, it releases the prestarted interpreter.
func (r *running) begin(s *Spec, o *shim.Order) error {
	r.mu.Lock()
	r.spec = s
	r.serveLocked()
	r.mu.Unlock()
	r.readers.Go(r.readStderr)
	if s.Talk != nil {
		s.Talk(r.stdin, r.stdout)
	} else {
		r.readers.Go(r.readStdout)
		go func() { // returns when end closes the pipe
			r.stdin.Write(s.Stdin)
			r.stdin.Close()
		}()
	}
	if o == nil {
		r.gate.Write([]byte(".")) // fails only if the interpreter has exited
		return nil
	}
	return r.command(o)
}

// isIdle reports whether the sandbox waits for a run.
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

// command writes the order and sends [shim.Go].
func (r *running) command(o *shim.Order) error {
	text, err := json.Marshal(o)
	if err == nil && len(text) > shim.MaxOrder {
		return fmt.Errorf("%w: the arguments and the environment are too long", ErrNotStarted)
	}
	if err == nil {
		_, err = r.order.WriteAt(text, 0)
	}
	if err != nil {
		return setup(err)
	}
	go func() { // returns when the sandbox ends
		select {
		case <-r.restricted:
			// If the write fails, the shim has reported why it ended.
			r.control.Write([]byte(shim.Go))
		case <-r.exited:
		}
	}()
	return nil
}

// listen receives the messages of the shim.
func (r *running) listen() {
	raw, err := r.control.SyscallConn()
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
		if recvErr == unix.ECONNRESET {
			continue // the shim ended before it read its order; its messages follow
		}
		if err != nil || recvErr != nil {
			return
		}
		files := received(rights[:rn])
		r.handle(buf[:n], files)
		for _, f := range files { // handle has duplicated those it uses
			f.Close()
		}
		if n == 0 {
			return
		}
	}
}

// handle processes one message. A shim that runs beside its program shares its user, so
// the message may come from the program; it can only harm its own run.
func (r *running) handle(text []byte, files []*os.File) {
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
		r.failed = &m
	case begun:
	case m.Kind == shim.Ready:
		close(r.ready)
	case m.Kind == shim.Restricted && !closed(r.restricted):
		close(r.restricted)
	case m.Kind == shim.Listener && r.listener == nil && len(files) == 1:
		r.serve(files[0])
	}
}

// received returns the files that came with a message.
func received(rights []byte) (files []*os.File) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // another kind of control message, without files
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files
}

// serve starts serving the listener that the shim opened.
func (r *running) serve(f *os.File) {
	l, err := net.FileListener(f)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listener = l
	r.serveLocked()
}

// serveLocked serves network connections once both the listener and the spec are known.
func (r *running) serveLocked() {
	switch {
	case r.listener == nil:
	case r.closing:
		r.listener.Close()
	case r.spec != nil:
		l, serve := r.listener, r.spec.Egress
		r.readers.Go(func() { serve(l) })
	}
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

// maxLine is the length at which a line of stderr is split.
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

// stderrLine handles a line of stderr. Before the shim is ready, it is bubblewrap's.
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

// kill kills the first process of the namespace and all processes in the cgroup.
func (r *running) kill() {
	if !r.hasExited() {
		select {
		case pid, ok := <-r.first:
			if ok && pid > 0 {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		default: // it has not started yet
		}
		r.group.kill()
		r.cmd.Process.Kill()
		<-r.exited
	}
}

// end kills the remaining processes, removes the cgroup, and waits for the readers.
func (r *running) end() error {
	if r.cmd != nil {
		r.kill()
	}
	r.outcome.OOM, r.outcome.MaxRSS = r.group.oom(), r.group.peak()
	err := r.group.end()
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
	if r.folder != "" {
		err = errors.Join(err, os.RemoveAll(r.folder))
	}
	return err
}

// result returns the outcome of an ended run.
func (r *running) result() (Outcome, error) {
	stood, out := closed(r.ready), r.outcome
	switch {
	case r.failed != nil && r.failed.Kind == shim.NotStarted:
		return out, fmt.Errorf("%w: %s: %s", ErrNotStarted, r.spec.Argv[0], r.failed.Text)
	case r.failed != nil:
		return out, &setupError{r.failed.What, r.failed.Text}
	case !stood && out.OOM:
		return out, nil // the memory limit is too low even for the shim
	case !stood && !out.TimedOut:
		text, _, _ := strings.Cut(strings.TrimSpace(r.earlyStderr.String()), "\n")
		if text == "" {
			text = "it ended: " + r.state.String()
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
