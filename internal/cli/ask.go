package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
)

// errInterrupted ends a verb that was interrupted while it waited for an answer.
var errInterrupted = &failure{
	code: exitInterrupted, err: errors.New("interrupted before an answer: nothing was done after the question"),
}

// canAsk reports whether a person can answer questions.
func (t *terminal) canAsk() bool {
	in, ok := t.in.(*os.File)
	return ok && !t.json && term.IsTerminal(int(in.Fd()))
}

// await waits for an answer or for the signal that ends the verb. Input after the signal is
// discarded. A read from a terminal cannot be cancelled, so it is abandoned: the process is
// about to exit.
func (t *terminal) await(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	var text []byte
	var err error
	if ctx.Err() == nil {
		done := make(chan struct{})
		go func() {
			defer close(done)
			text, err = read()
		}()
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		t.interrupted = true
		return nil, errInterrupted
	}
	return text, err
}

// askHidden asks for a line that the terminal does not show.
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
		_ = term.Restore(fd, state) // the abandoned read has turned echo off
	}
	fmt.Fprintln(t.err)
	return text, err
}

// agreed asks a yes-or-no question if a person can answer. Anything but a clear yes is no.
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

// askShown asks for a line. It reads no byte after it.
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
