package toolserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// spec is a program to be started.
type spec struct {
	argv []string
	// env is all that the program gets.
	env []string
	dir string
	// hide is a folder that the program must not see; show is the part of it
	// that it may read.
	hide, show string
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

	exited chan struct{} // closed when the program has ended
	err    error         // how, after exited
	killed sync.Once
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
	p := &process{exited: make(chan struct{})}
	argv := append([]string{path}, s.argv[1:]...)
	status, err := p.prepare(&s, argv)
	if err != nil {
		return nil, err
	}
	p.cmd.Env, p.cmd.Dir = s.env, s.dir
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
		return nil, err
	}
	p.stdout = stdout
	if status != nil {
		p.initPID = status()
	}
	go func() {
		defer stderr.Close()
		drain(stderr, s.log)
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
// it is still there after grace.
func (p *process) stop(grace time.Duration) {
	p.stdin.Close()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.exited:
		return
	case <-timer.C:
	}
	p.kill()
	<-p.exited
}

// kill ends the program and everything it started, at once.
func (p *process) kill() {
	p.killed.Do(p.killTree)
}

// spawner starts every program from one thread that never ends: the kernel
// ties "end with the parent" to the thread, not to the process.
var spawner = sync.OnceValue(func() chan func() {
	work := make(chan func())
	go func() {
		lockThread()
		for f := range work {
			f()
		}
	}()
	return work
})

func spawn(cmd *exec.Cmd) error {
	done := make(chan error, 1)
	spawner() <- func() { done <- cmd.Start() }
	return <-done
}

const (
	maxLogLine  = 8 << 10
	maxLogBytes = 1 << 20
)

// drain reads a program's stderr to its end, so that it never blocks, and
// hands on lines until there were too many.
func drain(r io.Reader, log func(string)) {
	b := bufio.NewReaderSize(r, maxLogLine)
	total := 0
	for {
		line, err := b.ReadSlice('\n')
		if total < maxLogBytes && len(line) > 0 {
			total += len(line)
			log(trimLine(line))
			if total >= maxLogBytes {
				log(fmt.Sprintf("more than %d KiB of log; the rest is not shown", maxLogBytes>>10))
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func trimLine(b []byte) string {
	for len(b) > 0 && (b[len(b)-1] == '\n' || b[len(b)-1] == '\r') {
		b = b[:len(b)-1]
	}
	return string(b)
}
