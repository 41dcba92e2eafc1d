package program

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/bundle"
)

// These are the harnesses. A harness runs inside the sandbox and calls the function that the bundle exports.
var (
	//go:embed harness/wrap.mjs
	wrapNode []byte
	//go:embed harness/wrap.py
	wrapPython []byte
)

func writeHarness(dir string) error {
	write := func(name string, text []byte) error {
		file := filepath.Join(dir, name)
		return errors.Join(os.WriteFile(file, text, 0o644), os.Chmod(file, 0o644))
	}
	return errors.Join(write("wrap.mjs", wrapNode), write("wrap.py", wrapPython))
}

func harness(kind, interpreter string) []string {
	if kind == "node" {
		return []string{interpreter, path.Join(harnessDir, "wrap.mjs")}
	}
	// The flag -I turns on isolated mode. The code can then import only the bundle and the standard library.
	return []string{interpreter, "-I", "-B", path.Join(harnessDir, "wrap.py")}
}

type task struct {
	Entry  string         `json:"entry"`
	Export string         `json:"export"`
	Tool   string         `json:"tool"`
	Input  jsontext.Value `json:"input"`
	// Mark is the random prefix of the line with the answer. All other lines go to the log.
	Mark string `json:"mark"`
}

// outcome is the answer of a harness. Exactly one of its fields is set.
type outcome struct {
	// Value is the value that the function returned.
	Value jsontext.Value `json:"value"`
	// Thrown is the error that the function threw.
	Thrown *string `json:"thrown"`
	// Broken is the reason why the function could not be loaded.
	Broken *string `json:"broken"`
}

// Act calls a tool of wrapped code.
func (b *Bundle) Act(ctx context.Context, t *agent.Tool, c *call.Call) (call.Result, error) {
	if _, ok := t.Binding.(agent.RunProgram); !ok || b.agent.Program.Contract != agent.Wrapped {
		return call.Result{}, failed(NotStarted, "the tool %s is not implemented by wrapped code", diag.Quote(t.Name))
	}
	select {
	case b.turns <- struct{}{}:
		defer func() { <-b.turns }()
	case <-ctx.Done():
		refusal := call.Refuse(sandbox.Stage, call.TimedOut, "too many calls to the bundle are running")
		return call.Result{}, call.Unsent(refusal.Again())
	}
	l, err := b.credentials()
	if err == nil {
		err = l.complete()
	}
	if err != nil {
		return call.Result{}, call.Unsent(err)
	}
	r, err := b.prepare(l)
	if err != nil {
		return call.Result{}, err
	}
	defer r.end()
	p := b.agent.Program
	job := task{
		Entry: path.Join(bundleDir, bundle.Built(path.Clean(p.Entry))), Export: p.Export, Tool: t.Name,
		Input: c.Arguments, Mark: rand.Text(),
	}
	if r.Stdin, err = json.Marshal(job); err != nil {
		refusal := call.Refuse(sandbox.Stage, call.InputInvalid, "the arguments are not a single JSON value")
		return call.Result{}, call.Unsent(refusal)
	}
	out, err := sandbox.Run(ctx, r.Spec)
	result := call.Result{Duration: out.Duration}
	if err != nil {
		return result, notRun(ctx, err, func(f *call.Refusal) error { return b.setEffect(t, f) })
	}
	answer := b.answer(r, out.Stdout, job.Mark)
	f := exitFailure(&out, r.Wall)
	if f != nil && (answer == nil || f.Reason == TimedOut || f.Reason == TooLarge) {
		f.Hint = "" // the hint mentions fields that a bundle's manifest does not have
		return result, b.setEffect(t, f)
	}
	if result.Raw, result.IsError, f = answer.result(r.credentials); f != nil {
		return result, b.setEffect(t, f)
	}
	return result, nil
}

// answer parses the harness's answer, which is the line that begins with the mark. It returns nil if there is no such
// line. All other lines go to the log.
func (b *Bundle) answer(r *run, stdout []byte, mark string) *outcome {
	var found *outcome
	var keys guard.KeyLines
	for line := range bytes.Lines(stdout) {
		line = bytes.TrimRight(line, "\r\n")
		text, ok := bytes.CutPrefix(line, []byte(mark))
		if !ok {
			if len(line) > 0 {
				b.options.Log(r.credentials.redact(keys.Hide(string(line))))
			}
			continue
		}
		var o outcome
		if json.Unmarshal(text, &o) == nil {
			found = &o
		}
	}
	return found
}

// result converts the answer of the harness to a tool result.
func (o *outcome) result(l *runCredentials) (raw jsontext.Value, isError bool, f *call.Refusal) {
	switch {
	case o == nil:
		return nil, false, failed(NoAnswer, "the code exited without returning a result")
	case o.Broken != nil:
		f := failed(NotStarted, "the code cannot be called: %s", diag.Quote(l.redact(*o.Broken)))
		f.Hint = "see the log for the output of the code"
		return nil, false, f
	}
	var err error
	r := toolResult{Content: []textContent{{"text", string(o.Value)}}}
	switch kind := o.Value.Kind(); {
	case o.Thrown != nil:
		r.Content[0].Text, r.IsError = *o.Thrown, true
	case kind == 'n', kind == 0:
		r.Content = []textContent{}
	case kind == '"':
		err = json.Unmarshal(o.Value, &r.Content[0].Text)
	case kind == '{':
		if whole, isError := wholeResult(o.Value); whole {
			return o.Value, isError, nil
		}
		r.Structured = o.Value
	}
	if err == nil {
		raw, err = json.Marshal(r)
	}
	if err != nil {
		return nil, false, failed(BadJSON, "the code's result is not valid JSON")
	}
	return raw, r.IsError, nil
}

type textContent struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type toolResult struct {
	Content    []textContent  `json:"content"`
	Structured jsontext.Value `json:"structuredContent,omitempty"`
	IsError    bool           `json:"isError,omitzero"`
}

// wholeResult reports whether a value is a complete tool result, which is an object with a list of typed content.
func wholeResult(v jsontext.Value) (whole, isError bool) {
	var r struct {
		Content []struct {
			Type string `json:"type"`
		} `json:"content"`
		IsError bool `json:"isError"`
	}
	if json.Unmarshal(v, &r) != nil || r.Content == nil {
		return false, false
	}
	for _, c := range r.Content {
		if c.Type == "" {
			return false, false
		}
	}
	return true, r.IsError
}

var _ call.Binding = (*Bundle)(nil)

// An MCP server runs as long as its agent, so the limits are high.
const (
	serverWall = 365 * 24 * time.Hour
	serverLog  = 256 << 20
)

// Server is the MCP server of a bundle. It runs in a sandbox.
type Server struct {
	Stdin  io.WriteCloser
	Stdout io.ReadCloser

	stop  context.CancelFunc
	ended chan struct{}
	err   error
}

// Native reports whether the bundle is an MCP server.
func (b *Bundle) Native() bool { return b.agent.Program.Contract == agent.NativeMCP }

// Launch starts the bundle's MCP server. The caller must stop the server. The error is a refusal.
func (b *Bundle) Launch() (*Server, error) {
	l, err := b.credentials()
	if err != nil {
		return nil, err
	}
	r, err := b.prepare(l)
	if err != nil {
		return nil, err
	}
	s := &Server{ended: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	started := make(chan struct{})
	r.Wall, r.MaxStderr, r.Pool = serverWall, serverLog, nil
	r.Talk = func(stdin io.WriteCloser, stdout io.ReadCloser) {
		s.Stdin, s.Stdout = stdin, stdout
		close(started)
	}
	go func() {
		defer close(s.ended)
		defer r.end()
		defer stop()
		out, err := sandbox.Run(ctx, r.Spec)
		if errors.Is(err, sandbox.ErrNotStarted) {
			err = failed(NotStarted, "%v", err)
		}
		if f := exitFailure(&out, r.Wall); err == nil && f != nil {
			err = f
		}
		s.err = err
	}()
	select {
	case <-started:
		b.mu.Lock()
		defer b.mu.Unlock()
		b.server, b.lacks = s, len(l.missing) > 0
		return s, nil
	case <-s.ended:
		if s.err == nil {
			s.err = failed(NoAnswer, "the server exited before the first request")
		}
		return nil, s.err
	}
}

// Stop kills all processes of the server. If the server had already exited, Stop returns the error of its run.
func (s *Server) Stop() error {
	select {
	case <-s.ended:
		return s.err
	default:
	}
	s.stop()
	<-s.ended
	return nil
}

// Complete returns a refusal while a required credential is missing. A server also runs without the credential, so
// that its tools can be listed and checked. Once the credential is set, Complete stops the server, and the supervisor
// restarts it with the credential.
func (b *Bundle) Complete() error {
	b.mu.Lock()
	server, lacks := b.server, b.lacks
	b.mu.Unlock()
	if !lacks {
		return nil
	}
	l, err := b.credentials()
	if err == nil {
		err = l.complete()
	}
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.lacks = false
	b.mu.Unlock()
	server.Stop()
	return nil
}
