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

// machine is what runs are made with.
type machine struct {
	tier   Tier
	bwrap  string // for Standard
	runsc  string // for Strong
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

// run carries out one run, in a sandbox made for it.
func (m *machine) run(ctx context.Context, s *Spec, canary string) (Outcome, *shim.Message, error) {
	begun := time.Now()
	r, err := m.prepare(shapeOf(s))
	if err != nil {
		return Outcome{}, nil, err
	}
	return r.carryOut(ctx, s, order(s, canary), begun)
}

func order(s *Spec, canary string) *shim.Order {
	return &shim.Order{Argv: s.Argv, Env: environment(s), Dir: s.Dir, Canary: canary}
}

// carryOut runs a program in a sandbox that was prepared, and takes it down. The
// error is a *setupError if the sandbox did not come to stand.
func (r *running) carryOut(ctx context.Context, s *Spec, o *shim.Order, begun time.Time) (Outcome, *shim.Message, error) {
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
	out, err := r.verdict()
	return out, r.sang, err
}

// setupError is a mechanism that was not there for a run.
type setupError struct{ what, text string }

func (e *setupError) Error() string { return e.what + ": " + e.text }

// running is a sandbox, from its making to its end. It is for one run.
type running struct {
	shape shape
	group *group

	cmd     *exec.Cmd
	exited  chan struct{}
	state   *os.ProcessState
	first   chan int // the pid of the namespace's first process
	readers sync.WaitGroup
	ours    []io.Closer // ends of pipes that readers and writers use

	stdin, stdout, stderr *os.File
	status, control, gate *os.File
	order                 *os.File
	identities            []identity
	folder                string // of this run's own, if there is one

	stopOnce sync.Once
	stop     chan struct{} // closed when it wrote too much
	worn     chan struct{} // closed when every restriction is in place
	waits    chan struct{} // closed when it waits to be taken
	ready    chan struct{} // closed when the program is about to start

	mu        sync.Mutex
	spec      *Spec // nil until there is something to run
	outcome   Outcome
	complaint bytes.Buffer // before it is ready: what bubblewrap complains of
	failed    *shim.Message
	sang      *shim.Message
	listener  net.Listener
	closing   bool
}

// begin gives the order; nil lets an interpreter go on that was started ahead.
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
		go func() { // ends with the pipe, which end closes
			r.stdin.Write(s.Stdin)
			r.stdin.Close()
		}()
	}
	if o == nil {
		r.gate.Write([]byte(".")) // if nobody hears it, it has ended
		return nil
	}
	return r.command(o)
}

// waiting reports whether it waits to be taken, dead whether it has ended.
func (r *running) waiting() bool { return closed(r.waits) }

func (r *running) dead() bool { return closed(r.exited) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// command writes the order where the shim finds it, and says so.
func (r *running) command(o *shim.Order) error {
	text, err := json.Marshal(o)
	if err == nil && len(text) > shim.MaxOrder {
		return fmt.Errorf("%w: its arguments and environment are too long", ErrNotStarted)
	}
	if err == nil {
		_, err = r.order.WriteAt(text, 0)
	}
	if err != nil {
		return setup(err)
	}
	go func() { // ends with the sandbox
		select {
		case <-r.worn:
			// If nobody is there to hear it, the reason is told elsewhere.
			r.control.Write([]byte(shim.Go))
		case <-r.exited:
		}
	}()
	return nil
}

// listen takes the messages of the shim.
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
			continue // it ended before it heard its order; what it said comes now
		}
		if err != nil || recvErr != nil {
			return
		}
		files := received(rights[:rn])
		r.heard(buf[:n], files)
		for _, f := range files { // whoever took one has one of its own
			f.Close()
		}
		if n == 0 {
			return
		}
	}
}

// heard takes one message. What comes from a shim beside its program may be the
// program's. It can only hurt itself.
func (r *running) heard(text []byte, files []*os.File) {
	var m shim.Message
	if json.Unmarshal(text, &m) != nil {
		return
	}
	begun := closed(r.ready)
	switch {
	case m.Kind == shim.Dial:
		r.dial()
	case m.Kind == shim.Sang:
		r.sang = &m
	case m.Kind == shim.NotStarted, m.Kind == shim.Failed && !begun:
		r.failed = &m
	case begun:
	case m.Kind == shim.Ready:
		close(r.ready)
	case m.Kind == shim.Worn && !closed(r.worn):
		close(r.worn)
	case m.Kind == shim.Listener && r.listener == nil && len(files) == 1:
		r.serve(files[0])
	}
}

// received are the files that came with a message.
func received(rights []byte) (files []*os.File) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // it is of another kind, which brings none
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files
}

// serve gives the listener from inside to whoever serves the way out.
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

// serveLocked serves the way out, once there are both a listener and a policy.
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

// maxLine is how much of a line is told at once.
const maxLine = 8 << 10

func (r *running) readStderr() {
	limited := &io.LimitedReader{R: r.stderr, N: r.spec.MaxStderr + 1}
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
		io.Copy(io.Discard, r.stderr)
	}
}

// told takes a line. Until the shim is ready, it can only be bubblewrap's.
func (r *running) told(line string) {
	if !closed(r.ready) {
		r.mu.Lock()
		if r.complaint.Len() < maxLine {
			r.complaint.WriteString(line + "\n")
		}
		r.mu.Unlock()
	}
	if r.spec.OnStderr != nil {
		r.spec.OnStderr(line)
	}
}

// kill ends the namespace by its first process, and whatever is in the cgroup.
func (r *running) kill() {
	if !r.dead() {
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

// end kills what is left, buries it, and waits for the readers.
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

// verdict tells the outcome of a run that ended.
func (r *running) verdict() (Outcome, error) {
	stood, out := closed(r.ready), r.outcome
	switch {
	case r.failed != nil && r.failed.Kind == shim.NotStarted:
		return out, fmt.Errorf("%w: %s: %s", ErrNotStarted, r.spec.Argv[0], r.failed.Text)
	case r.failed != nil:
		return out, &setupError{r.failed.What, r.failed.Text}
	case !stood && out.OOM:
		return out, nil // so little memory that not even the shim had enough
	case !stood && !out.TimedOut:
		text, _, _ := strings.Cut(strings.TrimSpace(r.complaint.String()), "\n")
		if text == "" {
			text = "it ended with " + r.state.String()
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
