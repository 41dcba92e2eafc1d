package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
)

// errInterrupted is returned if a signal arrives while a verb waits for the user's answer.
var errInterrupted = &failure{
	code: exitInterrupted, err: errors.New("interrupted while waiting for your answer, so ambit stopped"),
}

// canAsk reports whether ambit can ask the user questions. Standard input must be a terminal, and --json must not be
// set.
func (t *terminal) canAsk() bool {
	in, ok := t.in.(*os.File)
	return ok && !t.json && term.IsTerminal(int(in.Fd()))
}

// await calls the given function and returns its results. If a signal arrives before the function returns, await
// returns errInterrupted. A read from a terminal cannot be cancelled, so the abandoned read continues until the process
// exits.
func (t *terminal) await(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	text, err := readUntil(ctx, read)
	if ctx.Err() != nil {
		t.interrupted = true
		return nil, errInterrupted
	}
	return text, err
}

// input is like await, but for a function that reads the input with the given name. Standard input and a named pipe
// can deliver nothing for any time.
func input(ctx context.Context, name string, read func() ([]byte, error)) ([]byte, error) {
	text, err := readUntil(ctx, read)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("interrupted while reading %s", name)
	}
	return text, err
}

// readUntil calls the given function and returns its results. If ctx ends first, it returns nil and no error.
func readUntil(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, nil
	}
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := read()
		done <- result{text, err}
	}()
	select {
	case r := <-done:
		return r.text, r.err
	case <-ctx.Done():
		return nil, nil
	}
}

// fileInput reads up to most+1 bytes of a file. If the result has more than most bytes, the file is too large.
func fileInput(ctx context.Context, file string, most int64) ([]byte, error) {
	text, err := input(ctx, file, func() ([]byte, error) { return readStart(file, most) })
	if err != nil {
		return nil, unreadable(file, err)
	}
	return text, nil
}

// standardInput is like fileInput, but reads standard input.
func (t *terminal) standardInput(ctx context.Context, most int64) ([]byte, error) {
	return input(ctx, "standard input", func() ([]byte, error) { return io.ReadAll(io.LimitReader(t.in, most+1)) })
}

// askHidden asks a question and reads one line of input without showing what the user types.
func (t *terminal) askHidden(ctx context.Context, in *os.File, question string) ([]byte, error) {
	fd := int(in.Fd())
	state, err := term.GetState(fd)
	if err != nil {
		return nil, err
	}
	_ = t.flush()
	fmt.Fprint(t.err, question)
	text, err := t.await(ctx, func() ([]byte, error) { return term.ReadPassword(fd) })
	if t.interrupted {
		_ = term.Restore(fd, state) // ReadPassword turned echo off, but was interrupted before it could turn echo on again
	}
	fmt.Fprintln(t.err)
	return text, err
}

// agreed asks a yes-or-no question and reports whether the answer is y or yes. It returns false if ambit cannot ask the
// user.
func (t *terminal) agreed(ctx context.Context, question string) (bool, error) {
	if !t.canAsk() {
		return false, nil
	}
	answer, err := t.askShown(ctx, question+" [y/N] ")
	if t.interrupted {
		return false, err
	}
	return err == nil && slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))), nil
}

// askShown asks a question and reads one line. It does not read any input after that line.
func (t *terminal) askShown(ctx context.Context, question string) (string, error) {
	_ = t.flush()
	fmt.Fprint(t.err, question)
	text, err := t.await(ctx, t.line)
	if t.interrupted {
		fmt.Fprintln(t.err)
	}
	return string(text), err
}

func (t *terminal) line() ([]byte, error) {
	var line []byte
	one := make([]byte, 1)
	for len(line) < maxSecret {
		n, err := t.in.Read(one)
		if n == 1 && one[0] == '\n' {
			break
		}
		line = append(line, one[:n]...)
		if err != nil {
			if len(line) == 0 {
				return nil, err
			}
			break
		}
	}
	return bytes.TrimSuffix(line, []byte("\r")), nil
}
