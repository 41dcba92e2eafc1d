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

// tail is a writer that keeps only the last maxTail bytes that were written to it.
type tail struct{ b []byte }

const maxTail = 64 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if over := len(t.b) - maxTail; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

// clientError is the error for a failed run of a package client (npm or pip).
type clientError struct {
	client string
	said   string // the output of the client
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

// clientNoise lists the prefixes of output lines that do not explain a failure.
var clientNoise = []string{
	"npm warn", "npm WARN", "code ", "errno ", "syscall ", "Log files were", "A complete log", "WARNING:", "[notice]",
	"Looking in ",
	"In most cases", "at ",
}

// summary returns the first two informative lines of the client's output, shortened to fit in an error message.
func (e *clientError) summary() string {
	var lines []string
	for line := range strings.Lines(e.said) {
		line = strings.TrimSpace(npmNoise().ReplaceAllString(strings.TrimSpace(line), ""))
		if len(line) < 4 ||
			slices.ContainsFunc(clientNoise, func(noise string) bool { return strings.HasPrefix(line, noise) }) {
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

// clientName returns the name by which users know the client: pip, or the base name of the program.
func clientName(argv []string) string {
	if len(argv) > 2 && argv[2] == runPip {
		return "pip"
	}
	return strings.TrimSuffix(filepath.Base(argv[0]), ".cmd")
}

// run runs a client and waits until it exits. If ctx is canceled first, the client and all its child processes are
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

// symptom describes a known cause of failure, and how to recognize it in the output of a client.
type symptom struct {
	code    Code
	texts   []string // the output must contain at least one of these strings
	hint    string
	command diag.Command
}

// newSymptom returns a symptom. The parameter texts contains the strings to look for, separated by "|".
func newSymptom(code Code, texts, hint string, command diag.Command) symptom {
	return symptom{code, strings.Split(texts, "|"), hint, command}
}

// storageSymptoms lists the symptoms of storage problems, which are the same for every client.
var storageSymptoms = []symptom{
	newSymptom(StoreFailed, "ENOSPC|EDQUOT|EFBIG|EROFS|No space left|Disk quota|File too large|Read-only file system",
		"make sure that the disk has space and that the package store is writable", none),
	newSymptom(StoreFailed, "EACCES|EPERM|Permission denied", "make sure that the package store is writable", none),
}

// explain converts a client's failure to an [Error] with the code and the hint of the first matching symptom. The
// parameter "what" contains the name of the package.
func explain(symptoms []symptom, what string, err error) error {
	e, ok := errors.AsType[*clientError](err)
	if !ok {
		return fail(FetchFailed, what, "could not be fetched", "", err)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fail(FetchFailed, what, "the download was interrupted", "try again", e.err)
	}
	for _, s := range slices.Concat(symptoms, storageSymptoms) {
		if slices.ContainsFunc(s.texts, func(text string) bool { return strings.Contains(e.said, text) }) {
			return fail(s.code, what, "could not be fetched", s.hint, e, s.command)
		}
	}
	return fail(FetchFailed, what, "could not be fetched",
		fmt.Sprintf("check that %s works on its own and that the network is up", e.client), e)
}
