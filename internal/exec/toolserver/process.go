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

// program describes a program to start.
type program struct {
	argv []string
	// env is the whole environment of the program.
	env []string
	// hide lists folders that the program must not see; show is a folder inside them that it may read.
	hide []string
	show string
	// log receives each line of stderr.
	log func(line string)
}

// process is a running program with its descendants.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.ReadCloser
	// contained reports whether the program runs in its own pid namespace.
	contained bool
	// initPID is the first process of that namespace, 0 without one.
	initPID int

	// stopLaunched ends a program that the caller started; nil for other programs.
	stopLaunched func() error

	exited     chan struct{} // closed when the program has ended
	err        error         // the exit error, after exited
	forced     atomic.Bool   // ambit killed the program
	drained    chan struct{} // closed when all of stderr was read
	lastOutput string        // the last lines of stderr, after drained
}

// Launched is a server that the caller started, in a sandbox.
type Launched struct {
	Stdin  io.WriteCloser
	Stdout io.ReadCloser
	// Stop ends the server and its descendants. It returns the exit error if the program ended by itself,
	// and may be called more than once.
	Stop func() error
}

// start starts a program. Its descendants end with it, and with this process.
func start(s program) (*process, error) {
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
		p.cmd.Env = []string{} // bubblewrap sets the program's environment
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	// Own pipes: exec would close its pipes when the program ends and lose buffered output.
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
			status() // closes the files; there is no status to read
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

// stop closes the program's input and kills the program if it still runs after grace. No descendant
// outlives it.
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
	p.kill()
	<-p.exited
}

// exitReport returns how a stopped program ended, if it ended by itself, and its last output.
func (p *process) exitReport() string {
	report := ""
	if !p.forced.Load() && p.err != nil {
		report = "; the program ended: " + p.err.Error()
	}
	select {
	case <-p.drained:
		if p.lastOutput != "" {
			report += "; last output: " + p.lastOutput
		}
	case <-time.After(grace): // another process still holds stderr
	}
	return report
}

// spawner starts every program from one thread that never ends: the kernel ties the parent-death signal to
// the thread, not to the process.
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
	lastLines   = 3 // of stderr, in an exit report
)

// drain reads a program's stderr to its end, so that the program never blocks. It logs each line and
// returns the last few, because the very last line may be only a hint or the end of a trace. Long lines are
// cut.
func drain(r io.Reader, log func(string)) string {
	b := bufio.NewReaderSize(r, maxLogLine)
	var last tail
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

// tail keeps the last lines of a program and the last error line before them. Lines stay whole: half of a
// credential could not be recognized.
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

// limited bounds how much a server can write to the log.
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
