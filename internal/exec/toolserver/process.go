package toolserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// spec is a program to be started.
type spec struct {
	argv []string
	// env is all that the program gets.
	env []string
	// hide are folders that the program must not see; show is a part of them
	// that it may read.
	hide []string
	show string
	// log is told each line that the program writes to stderr.
	log func(line string)
}

// process is a running program and everything it started.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.ReadCloser
	// contained says that the program runs in its own pid namespace.
	contained bool
	// initPID is the first process of that namespace, 0 without one.
	initPID int

	// elsewhere ends a program that was not started here; nil for any other.
	elsewhere func() error

	exited  chan struct{} // closed when the program has ended
	err     error         // how, after exited
	forced  atomic.Bool   // it was ended by us
	drained chan struct{} // closed when all of stderr was read
	said    string        // its last lines, after drained
}

// Launched is a server that the caller started, in a sandbox.
type Launched struct {
	Stdin  io.WriteCloser
	Stdout io.ReadCloser
	// Stop ends the server and everything it started. It returns how the program
	// ended, if it did so by itself, and may be called more than once.
	Stop func() error
}

// stopElsewhere ends a program that the caller started.
func (p *process) stopElsewhere() {
	p.stdin.Close()
	p.err = p.elsewhere()
}

// start starts a program. Its whole tree ends with it, and with this process.
func start(s spec) (*process, error) {
	if len(s.argv) == 0 {
		return nil, errors.New("there is no command")
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
		p.cmd.Env = []string{} // the program's is given to it inside
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	// Pipes of our own: exec's would be closed when the program ends, with what
	// it last said still in them.
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
			status() // nobody is there to tell it, and its files are closed
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
		p.said = drain(stderr, s.log)
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

// stop asks the program to end by closing its input, and ends it by force if
// it is still there after grace. Nothing that it started outlives it.
func (p *process) stop(grace time.Duration) {
	if p.elsewhere != nil {
		p.stopElsewhere()
		return
	}
	p.stdin.Close()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		p.forced.Store(true)
	}
	p.kill()
	<-p.exited
}

// lastWords are how a program ended that was stopped, if it did so by itself,
// and what it said last.
func (p *process) lastWords() string {
	words := ""
	if !p.forced.Load() && p.err != nil {
		words = "; the program ended with " + p.err.Error()
	}
	select {
	case <-p.drained:
		if p.said != "" {
			words += "; it said last: " + p.said
		}
	case <-time.After(grace): // somebody else holds its stderr
	}
	return words
}

// spawner starts every program from one thread that never ends: the kernel
// ties "end with the parent" to the thread, not to the process.
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
	lastLines   = 3 // tell how a program ended
)

// drain reads a program's stderr to its end, so that it never blocks, hands on
// its lines, and returns the last few: the very last may be no more than a hint, or
// the end of a trace. Of a line that is too long only the beginning is kept.
func drain(r io.Reader, log func(string)) string {
	b := bufio.NewReaderSize(r, maxLogLine)
	var last words
	for inside := false; ; {
		line, err := b.ReadSlice('\n')
		if text := strings.TrimRight(string(line), "\r\n"); text != "" && !inside {
			log(text)
			last.add(text)
		}
		inside = errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !inside {
			return last.String()
		}
	}
}

// words are the last lines of a program, and before them the last that told of an
// error. They are whole: half of a credential is not known for one.
type words struct {
	lines []string
	fault string
}

func (w *words) add(line string) {
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

func (w *words) String() string {
	text := strings.Join(w.lines, "; ")
	if w.fault != "" && !strings.Contains(strings.ToLower(text), "error") {
		return w.fault + " … " + text
	}
	return text
}

// limited bounds how much a server can write into the log.
func limited(log func(string)) func(string) {
	var mu sync.Mutex
	total := 0
	return func(line string) {
		mu.Lock()
		defer mu.Unlock()
		if total >= maxLogBytes {
			return
		}
		log(line)
		if total += len(line) + 1; total >= maxLogBytes {
			log(fmt.Sprintf("more than %d KiB of log; the rest is not shown", maxLogBytes>>10))
		}
	}
}
