package toolserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/guard"
)

type program struct {
	argv []string
	// env is the complete environment of the program.
	env []string
	// hidden lists folders that the program cannot see.
	hidden []string
	// visible is a folder that the program can read although it is inside a hidden folder. It is "" if there is no such
	// folder.
	visible string
	// log receives each line of stderr.
	log func(line string)
}

// process is a running program and its child processes.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.ReadCloser
	// contained reports whether the program runs in its own pid namespace.
	contained bool
	// initPID is the pid of the first process in the pid namespace. It is 0 if there is no namespace.
	initPID int

	// end ends the sandbox of a confined program. It is nil for other programs.
	end context.CancelFunc
	// stopLaunched stops a program that [Spec.Launch] started. It is nil for other programs.
	stopLaunched func() error

	exited     chan struct{} // closed when the program has exited
	err        error         // exit error; valid after exited is closed
	forced     atomic.Bool   // whether ambit killed the program
	drained    chan struct{} // closed when stderr has been read to its end
	lastOutput string        // last lines of stderr; valid after drained is closed
}

// Launched is a server that the caller started in a sandbox.
type Launched struct {
	Stdin  io.WriteCloser
	Stdout io.ReadCloser
	// Stop stops the server and its child processes. If the program had already exited, Stop returns the exit
	// error. Stop may be called more than once.
	Stop func() error
}

// start starts a program. Its child processes are terminated when the program or ambit exits.
func start(s program) (*process, error) {
	if len(s.argv) == 0 {
		return nil, errors.New("the server has no command")
	}
	path, err := exec.LookPath(s.argv[0])
	if err != nil {
		return nil, err
	}
	p := &process{exited: make(chan struct{}), drained: make(chan struct{})}
	argv := append([]string{path}, s.argv[1:]...)
	status, err := p.prepare(&s, argv)
	if err != nil {
		return nil, err
	}
	p.cmd.Env = s.env
	if p.contained {
		p.cmd.Env = []string{} // bubblewrap sets the program's environment, so bubblewrap's own environment is empty
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	// Package exec would close its own pipes when the program exits, and buffered output would be lost, so create the
	// pipes here.
	stdout, stderr, err := p.outputs()
	if err != nil {
		return nil, err
	}
	err = spawn(p.cmd)
	for _, f := range []any{p.cmd.Stdout, p.cmd.Stderr} {
		f.(*os.File).Close()
	}
	if err != nil {
		stdout.Close()
		stderr.Close()
		if status != nil {
			status() // close the files, because no program was started
		}
		return nil, err
	}
	p.stdout = stdout
	if status != nil {
		p.initPID = status()
	}
	go func() {
		defer close(p.drained)
		defer stderr.Close()
		p.lastOutput = drain(stderr, s.log)
	}()
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

func (p *process) outputs() (stdout, stderr *os.File, err error) {
	stdout, outW, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	stderr, errW, err := os.Pipe()
	if err != nil {
		return nil, nil, errors.Join(err, stdout.Close(), outW.Close())
	}
	p.cmd.Stdout, p.cmd.Stderr = outW, errW
	return stdout, stderr, nil
}

// stop closes the program's input and waits for the program to exit. If the program is still running after the grace
// period, stop kills it. In any case, stop kills the child processes.
func (p *process) stop(grace time.Duration) {
	p.stdin.Close()
	if p.stopLaunched != nil {
		p.err = p.stopLaunched()
		return
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		p.forced.Store(true)
	}
	if p.end != nil {
		p.end()
	} else {
		p.kill()
	}
	<-p.exited
}

// exitReport describes how a program exited. The text is used in an error message. It contains the last lines of
// stderr. It also contains the exit error, unless ambit killed the program.
func (p *process) exitReport() string {
	report := ""
	if !p.forced.Load() && p.err != nil {
		report = "; the program exited: " + p.err.Error()
	}
	select {
	case <-p.drained:
		if p.lastOutput != "" {
			report += "; last output: " + p.lastOutput
		}
	case <-time.After(grace): // another process still has stderr open
	}
	return report
}

// spawner starts every program from one thread that never exits. The kernel sends the parent death signal to a
// program when the thread that started it exits.
var spawner = sync.OnceValue(func() chan func() {
	work := make(chan func())
	go startPrograms(work)
	return work
})

func startPrograms(work <-chan func()) {
	lockThread()
	for f := range work {
		f()
	}
}

func spawn(cmd *exec.Cmd) error {
	done := make(chan error, 1)
	spawner() <- func() { done <- cmd.Start() }
	return <-done
}

const (
	maxLogLine  = 8 << 10
	maxLogBytes = 1 << 20
	lastLines   = 3 // number of stderr lines in an exit report
)

// drain reads a program's stderr to its end, because a full pipe would block the program. It logs each line and
// returns the last few lines, without private keys. It returns more than the last line, because that line may be only
// a hint or the end of a stack trace. A line longer than maxLogLine is truncated.
func drain(r io.Reader, log func(string)) string {
	b := bufio.NewReaderSize(r, maxLogLine)
	var last tail
	var keys guard.KeyLines
	for inside := false; ; {
		line, err := b.ReadSlice('\n')
		if text := strings.TrimRight(string(line), "\r\n"); text != "" && !inside {
			text = keys.Hide(text)
			log(text)
			last.add(text)
		}
		inside = errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !inside {
			return last.String()
		}
	}
}

// tail keeps the last lines of a program's stderr, and the last line before them that contains "error". It does not
// truncate lines, because a truncated credential could not be recognized and redacted.
type tail struct {
	lines []string
	fault string
}

func (w *tail) add(line string) {
	if line = strings.TrimSpace(line); line == "" {
		return
	}
	if w.lines = append(w.lines, line); len(w.lines) <= lastLines {
		return
	}
	if strings.Contains(strings.ToLower(w.lines[0]), "error") {
		w.fault = w.lines[0]
	}
	w.lines = w.lines[1:]
}

func (w *tail) String() string {
	text := strings.Join(w.lines, "; ")
	if w.fault != "" && !strings.Contains(strings.ToLower(text), "error") {
		return w.fault + " … " + text
	}
	return text
}

// logLimit limits what a server writes to ambit's log to maxLogBytes a day, across all its starts and connections.
// Without this limit, a server that keeps restarting could fill the disk.
type logLimit struct {
	mu    sync.Mutex
	since time.Time
	total int
}

// write logs a line, or as much of the line as the limit allows. It redacts the line before it truncates the line,
// because a truncated credential would not be recognized.
func (l *logLimit) write(line string, now time.Time, mask func(string) string, log func(string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.since) >= 24*time.Hour {
		l.since, l.total = now, 0
	}
	if l.total >= maxLogBytes {
		return
	}
	line = mask(line)
	if left := maxLogBytes - l.total; len(line) > left {
		line = strings.ToValidUTF8(line[:left], "")
		l.total = maxLogBytes
	}
	log(line)
	if l.total += len(line) + 1; l.total >= maxLogBytes {
		log(fmt.Sprintf("the server wrote more than %d KiB to the log in one day; the rest is not shown", maxLogBytes>>10))
	}
}
