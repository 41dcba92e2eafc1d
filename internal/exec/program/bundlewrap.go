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

// The harnesses run inside the sandbox and call the function that a bundle exports.
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

// harness returns the command of a harness.
func harness(kind, interpreter string) []string {
	if kind == "node" {
		return []string{interpreter, path.Join(harnessDir, "wrap.mjs")}
	}
	// Isolated mode: only the bundle and the standard library can be imported.
	return []string{interpreter, "-I", "-B", path.Join(harnessDir, "wrap.py")}
}

// task is the input of a harness.
type task struct {
	Entry  string         `json:"entry"`
	Export string         `json:"export"`
	Tool   string         `json:"tool"`
	Input  jsontext.Value `json:"input"`
	// Mark is the prefix of the line with the answer. All other lines go to the log.
	Mark string `json:"mark"`
}

// outcome is the answer of a harness; one of the fields is set.
type outcome struct {
	Value jsontext.Value `json:"value"`
	// Thrown is an error of the tool. Broken means that there is no function to call.
	Thrown *string `json:"thrown"`
	Broken *string `json:"broken"`
}

// Act calls a tool of wrapped code.
func (b *Bundle) Act(ctx context.Context, t *agent.Tool, c *call.Call) (call.Result, error) {
	if _, ok := t.Binding.(agent.RunProgram); !ok || b.agent.Program.Contract != agent.Wrapped {
		return call.Result{}, failed(NotStarted, "%s is not a tool of wrapped code", diag.Quote(t.Name))
	}
	select {
	case b.turns <- struct{}{}:
		defer func() { <-b.turns }()
	case <-ctx.Done():
		refusal := call.Refuse(sandbox.Stage, call.TimedOut, "too many calls of the bundle are running")
		return call.Result{}, call.Unsent(refusal.Again())
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
	job := task{
		Entry: path.Join(bundleDir, bundle.Built(path.Clean(p.Entry))), Export: p.Export, Tool: t.Name,
		Input: c.Arguments, Mark: rand.Text(),
	}
	if r.Stdin, err = json.Marshal(job); err != nil {
		return call.Result{}, call.Unsent(call.Refuse(sandbox.Stage, call.InputInvalid, "the arguments are not one JSON value"))
	}
	out, err := sandbox.Run(ctx, r.Spec)
	result := call.Result{Duration: out.Duration}
	if err != nil {
		return result, notRun(ctx, err, func(f *Failure) error { return b.setEffect(t, f) })
	}
	answer := b.answer(r, out.Stdout, job.Mark)
	f := exitFailure(&out, r.Wall)
	if f != nil && (answer == nil || f.Reason == TimedOut || f.Reason == TooLarge) {
		f.Hint = "" // it is about the manifests of programs
		return result, b.setEffect(t, f)
	}
	if result.Raw, result.IsError, f = answer.result(r.lent); f != nil {
		return result, b.setEffect(t, f)
	}
	return result, nil
}

// answer finds the line of the harness; nil if there is none. Other lines go to the
// log.
func (b *Bundle) answer(r *run, stdout []byte, mark string) *outcome {
	var found *outcome
	for line := range bytes.Lines(stdout) {
		line = bytes.TrimRight(line, "\r\n")
		text, ok := bytes.CutPrefix(line, []byte(mark))
		if !ok {
			if len(line) > 0 {
				b.options.Log(r.lent.redact(string(line)))
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

// result converts the value that the code returned to the result of a tool.
func (o *outcome) result(l *lent) (raw jsontext.Value, isError bool, f *Failure) {
	switch {
	case o == nil:
		return nil, false, failed(NoAnswer, "the code ended without an answer")
	case o.Broken != nil:
		f := failed(NotStarted, "the code cannot be called: %s", diag.Quote(l.redact(*o.Broken)))
		f.Hint = "see the log for its output"
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
		return nil, false, failed(BadJSON, "the code's answer is not valid JSON")
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

// wholeResult reports whether the code returned a complete tool result: an object
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
