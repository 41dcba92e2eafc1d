package pack

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// tail keeps the last bytes that were written to it.
type tail struct{ b []byte }

const tailMost = 64 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if over := len(t.b) - tailMost; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

// clientError is the failure of a client (npm, pip), with its output.
type clientError struct {
	client string
	said   string
	err    error
}

func (e *clientError) Error() string {
	if last := e.summary(); last != "" {
		return e.client + " says: " + last
	}
	return e.client + ": " + e.err.Error()
}

func (e *clientError) Unwrap() error { return e.err }

var (
	npmNoise  = lazy(`^npm (?:ERR!|error) ?(?:404|notarget)? *`)
	urlSecret = lazy(`//[^/@\s]+@`)
)

// clientNoise are the beginnings of lines that do not explain a failure.
var clientNoise = []string{
	"npm warn", "npm WARN", "code ", "errno ", "syscall ", "Log files were", "A complete log", "WARNING:", "[notice]", "Looking in ",
	"In most cases", "at ",
}

// summary returns the first informative lines of the client's output, short enough for
// an error.
func (e *clientError) summary() string {
	var lines []string
	for line := range strings.Lines(e.said) {
		line = strings.TrimSpace(npmNoise().ReplaceAllString(strings.TrimSpace(line), ""))
		if len(line) < 4 || slices.ContainsFunc(clientNoise, func(noise string) bool { return strings.HasPrefix(line, noise) }) {
			continue
		}
		if lines = append(lines, diag.Printable(urlSecret().ReplaceAllString(line, "//"))); len(lines) == 2 {
			break
		}
	}
	text := strings.Join(lines, "; ")
	if len(text) > 400 {
		text = strings.ToValidUTF8(text[:400], "") + "…"
	}
	return text
}

// clientName is the name that users know a client by.
func clientName(argv []string) string {
	if len(argv) > 2 && argv[2] == runPip {
		return "pip"
	}
	return strings.TrimSuffix(filepath.Base(argv[0]), ".cmd")
}

// run runs a client to its end. If ctx ends first, the client and all its children are
// killed.
func run(ctx context.Context, dir string, env []string, argv ...string) (stdout []byte, err error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, env
	var out, said tail
	cmd.Stdout, cmd.Stderr = &out, &said
	wholeGroup(cmd)
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, &clientError{client: clientName(argv), said: string(said.b) + "\n" + string(out.b), err: err}
	}
	return out.b, nil
}

// sign maps texts in a client's output to a known cause of failure.
type sign struct {
	code    Code
	hint    string
	command diag.Command
	texts   []string // any of these
}

// noSpace are the signs that every client shares.
var noSpace = []sign{
	{StoreFailed, "make sure that the disk has space and that the package store can be written", none, []string{
		"ENOSPC", "EDQUOT", "EFBIG", "EROFS", "No space left", "Disk quota", "File too large", "Read-only file system",
	}},
	{StoreFailed, "make sure that the package store can be written", none, []string{"EACCES", "EPERM", "Permission denied"}},
}

// explain converts a client's failure to an error of this package.
func explain(signs []sign, what string, err error) error {
	var e *clientError
	if !errors.As(err, &e) {
		return &Error{Code: FetchFailed, What: what, Detail: "could not be fetched", Err: err}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &Error{Code: FetchFailed, What: what, Detail: "fetching it was interrupted", Err: e.err, Hint: "try again"}
	}
	for _, s := range slices.Concat(signs, noSpace) {
		if slices.ContainsFunc(s.texts, func(text string) bool { return strings.Contains(e.said, text) }) {
			return &Error{Code: s.code, What: what, Detail: "could not be fetched", Err: e, Hint: s.hint, Command: s.command}
		}
	}
	return &Error{
		Code: FetchFailed, What: what, Detail: "could not be fetched", Err: e,
		Hint: fmt.Sprintf("check that %s works on its own and that the network is up", e.client),
	}
}
