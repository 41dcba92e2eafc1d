package program

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/ambit-run/ambit/internal/exec/sandbox"
)

// waitDelay is how long to wait for the pipes of a killed program to be closed. A child process in another process
// group is not killed and can keep the pipes open.
const waitDelay = time.Second

// unconfined runs a program without a sandbox, with all permissions of ambit's user. It is meant for the
// development of trusted programs. Time and output are limited. Memory, disk and network are not limited.
func unconfined(ctx context.Context, s sandbox.Spec) (sandbox.Outcome, error) {
	begun := time.Now()
	home, err := sandbox.TempDir()
	if err != nil {
		return sandbox.Outcome{}, fmt.Errorf("%w: %w", sandbox.ErrNotStarted, err)
	}
	defer os.RemoveAll(home)
	timed, cancel := context.WithTimeout(ctx, s.Wall)
	defer cancel()
	argv := make([]string, len(s.Argv))
	for i, arg := range s.Argv {
		argv[i] = hostPath(&s, arg)
	}
	cmd := exec.CommandContext(timed, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdin, cmd.WaitDelay = hostPath(&s, s.Dir), bytes.NewReader(s.Stdin), waitDelay
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LANG=C.UTF-8", "TMPDIR=" + home}
	for _, variable := range s.Env {
		name, value, _ := strings.Cut(variable, "=")
		cmd.Env = append(cmd.Env, name+"="+hostPath(&s, value))
	}
	ownGroup(cmd)
	var out sandbox.Outcome
	var once sync.Once // stdout and stderr are copied by two goroutines at the same time
	full := func(which string) func() {
		return func() { once.Do(func() { out.TooLarge = which; cancel() }) }
	}
	var stdout bytes.Buffer
	lines, w := io.Pipe()
	cmd.Stdout = &capped{to: &stdout, left: s.MaxStdout, onFull: full("stdout")}
	cmd.Stderr = &capped{to: w, left: s.MaxStderr, onFull: full("stderr")}
	read := make(chan struct{})
	go func() {
		defer close(read)
		r := bufio.NewReader(lines)
		for {
			line, err := r.ReadString('\n')
			if line = strings.TrimSuffix(line, "\n"); line != "" && s.OnStderr != nil {
				s.OnStderr(line)
			}
			if err != nil {
				return
			}
		}
	}()
	err = cmd.Run()
	w.Close()
	<-read
	killGroup(cmd)
	out.Duration, out.Stdout = time.Since(begun), stdout.Bytes()
	if cmd.ProcessState == nil {
		return out, fmt.Errorf("%w: %w", sandbox.ErrNotStarted, err)
	}
	out.ExitCode = cmd.ProcessState.ExitCode()
	switch {
	case out.TooLarge != "":
	case ctx.Err() != nil:
		return out, context.Cause(ctx)
	case errors.Is(timed.Err(), context.DeadlineExceeded):
		out.TimedOut = true
	case out.ExitCode < 0:
		out.Signal = signalOf(cmd.ProcessState)
	}
	return out, nil
}

// hostPath converts a path inside the sandbox to the path on this machine.
func hostPath(s *sandbox.Spec, path string) string {
	for _, m := range s.Mounts {
		if rest, ok := strings.CutPrefix(path, m.To); ok && (rest == "" || rest[0] == '/') {
			return m.Source + rest
		}
	}
	return path
}

// capped is a writer with a limit. When the limit is exceeded, it calls onFull and discards all further bytes.
type capped struct {
	to     io.Writer
	left   int64 // number of bytes that can still be written
	onFull func()
}

func (c *capped) Write(p []byte) (int, error) {
	if c.left -= int64(len(p)); c.left < 0 {
		c.onFull()
		return len(p), nil // report no error, because the pipe must be drained until the killed program exits
	}
	return c.to.Write(p)
}
