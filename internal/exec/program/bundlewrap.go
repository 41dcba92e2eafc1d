package program

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"os"
	"path"
	"path/filepath"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/bundle"
)

// The harnesses call what a bundle exports, inside the sandbox.
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

// harness is the command that runs one.
func harness(kind, interpreter string) []string {
	if kind == "node" {
		return []string{interpreter, path.Join(harnessDir, "wrap.mjs")}
	}
	// Isolated: nothing but the bundle and the library is imported.
	return []string{interpreter, "-I", "-B", path.Join(harnessDir, "wrap.py")}
}

// task is what a harness reads.
type task struct {
	Entry  string         `json:"entry"`
	Export string         `json:"export"`
	Tool   string         `json:"tool"`
	Input  jsontext.Value `json:"input"`
	// Mark begins the one line that is the answer. Whatever else the code prints
	// is for the log.
	Mark string `json:"mark"`
}

// outcome is what it answers: one of these.
type outcome struct {
	Value jsontext.Value `json:"value"`
	// Thrown is the tool's own failure, Broken that there is nothing to call.
	Thrown *string `json:"thrown"`
	Broken *string `json:"broken"`
}

// Act calls a tool of a bundle that is wrapped.
func (b *Bundle) Act(ctx context.Context, t *agent.Tool, c *call.Call) (call.Result, error) {
	if _, ok := t.Binding.(agent.RunProgram); !ok || b.agent.Program.Contract != agent.Wrapped {
		return call.Result{}, failed(NotStarted, "%s is not a tool of code that is wrapped", diag.Quote(t.Name))
	}
	select {
	case b.turns <- struct{}{}:
		defer func() { <-b.turns }()
	case <-ctx.Done():
		return call.Result{}, call.Unsent(call.Refuse(sandbox.Stage, call.TimedOut, "too many calls of the bundle are under way").Again())
	}
	l, err := b.lend()
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
	job := task{Entry: path.Join(bundleDir, bundle.Built(path.Clean(p.Entry))), Export: p.Export, Tool: t.Name, Input: c.Arguments, Mark: rand.Text()}
	if r.Stdin, err = json.Marshal(job); err != nil {
		return call.Result{}, call.Unsent(call.Refuse(sandbox.Stage, call.InputInvalid, "the arguments are not one JSON value"))
	}
	out, err := sandbox.Run(ctx, r.Spec)
	if err != nil {
		return call.Result{Duration: out.Duration}, b.notRun(ctx, t, err)
	}
	answer := b.answer(r, out.Stdout, job.Mark)
	if f := ended(&out, r.Wall); f != nil && (answer == nil || f.Reason == TimedOut || f.Reason == TooLarge) {
		f.Hint = ""
		return call.Result{Duration: out.Duration}, b.weigh(t, f)
	}
	raw, isError, f := answer.result(r.lent)
	if f != nil {
		return call.Result{Duration: out.Duration}, b.weigh(t, f)
	}
	return call.Result{Raw: raw, IsError: isError, Duration: out.Duration}, nil
}

// answer finds the line of the harness, nil if there is none. Other lines are
// the code's own, for the log.
func (b *Bundle) answer(r *run, stdout []byte, mark string) *outcome {
	var found *outcome
	for line := range bytes.Lines(stdout) {
		line = bytes.TrimRight(line, "\r\n")
		text, ok := bytes.CutPrefix(line, []byte(mark))
		if !ok {
			if len(line) > 0 {
				b.options.Log(r.lent.hush(string(line)))
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

// result is what the code returned, as the result of a tool.
func (o *outcome) result(l *lent) (raw jsontext.Value, isError bool, f *Failure) {
	switch {
	case o == nil:
		return nil, false, failed(NoAnswer, "the code ended without an answer")
	case o.Broken != nil:
		f := failed(NotStarted, "the code cannot be called: %s", diag.Quote(l.hush(*o.Broken)))
		f.Hint = "what it wrote is in the log"
		return nil, false, f
	case o.Thrown != nil:
		return mustJSON(toolResult{Content: []textContent{{"text", *o.Thrown}}, IsError: true}), true, nil
	}
	switch o.Value.Kind() {
	case 'n', 0:
		return mustJSON(toolResult{Content: []textContent{}}), false, nil
	case '"':
		var text string
		if json.Unmarshal(o.Value, &text) != nil {
			return nil, false, failed(BadJSON, "the code's answer is not JSON")
		}
		return mustJSON(toolResult{Content: []textContent{{"text", text}}}), false, nil
	case '{':
		if whole, isError := wholeResult(o.Value); whole {
			return o.Value, isError, nil
		}
		return mustJSON(toolResult{Content: []textContent{{"text", string(o.Value)}}, Structured: o.Value}), false, nil
	}
	return mustJSON(toolResult{Content: []textContent{{"text", string(o.Value)}}}), false, nil
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

// mustJSON writes our own values, which always can be.
func mustJSON(v any) jsontext.Value {
	text, err := json.Marshal(v)
	if err != nil {
		return jsontext.Value(`{"content":[],"isError":true}`)
	}
	return text
}

// wholeResult reports whether the code has made a result of its own: an object
// with a list of typed content.
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
