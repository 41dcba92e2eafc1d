// Package bashserver is a small MCP tool server with one tool, execute, which runs a shell command in the
// sandbox.
//
// The limits do not depend on the command: the sandbox's standard tier, no network, bounded memory,
// processes, time and output, only the machine's programs visible, and one writable work folder. Where the
// sandbox is unavailable, every call is refused with isolation_unavailable. No option runs a command
// without the sandbox.
//
// Each command is a separate run. Its processes end with it, and only the files in the work folder stay.
// That folder is limited in bytes and in files: it is measured while a command runs, and a command that
// fills it is ended. Commands can still delete files from a full folder.
package bashserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
)

// Name is the name of the server.
const Name = "bash"

// Work is the path of the work folder inside the sandbox.
const Work = "/work"

const (
	maxCommand = 64 << 10
	// maxOutput bounds how much of each stream is returned.
	maxOutput   = 64 << 10
	defaultTime = 30 * time.Second
	maxTime     = 10 * time.Minute
	memoryMB    = 512
	diskMB      = 256
	processes   = 128
)

// Options configure the server.
type Options struct {
	// Work is the absolute path of the work folder on this machine; empty means none.
	Work string
	// Own allows root to give the files in Work to the sandbox's user, because no other user has files
	// there. Otherwise files keep their owners, and commands change only what their permissions allow.
	Own bool
	// Home contains the cached checks of the sandbox.
	Home    home.Home
	Version string

	maxWork size                                                         // zero means the default
	run     func(context.Context, sandbox.Spec) (sandbox.Outcome, error) // nil means the sandbox
}

const description = "Run a shell command with bash in a sandbox and return what it wrote. The command starts in " + Work +
	", the only folder that is kept between calls. There is no network, and nothing keeps running when the command has ended."

const inputSchema = `{"type":"object","additionalProperties":false,"required":["command"],"properties":{` +
	`"command":{"type":"string","minLength":1,"maxLength":65536,"description":"The command, as bash reads it."},` +
	`"timeout_seconds":{"type":"integer","minimum":1,"maximum":600,"description":"When it is ended; 30 if it is not said."}}}`

const outputSchema = `{"type":"object","required":["exit_code","stdout","stderr"],"properties":{` +
	`"exit_code":{"type":"integer"},"stdout":{"type":"string"},"stderr":{"type":"string"},` +
	`"truncated":{"type":"boolean"},"timed_out":{"type":"boolean"},"out_of_memory":{"type":"boolean"},` +
	`"work_full":{"type":"boolean"},"duration_ms":{"type":"integer"}}}`

// Serve speaks MCP until its input ends.
func Serve(ctx context.Context, o Options, in io.ReadCloser, out io.WriteCloser) error {
	if o.run == nil {
		o.run = sandbox.Run
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "ambit-bash", Title: "A sandboxed shell", Version: o.Version}, nil)
	destructive, open := true, false
	s.AddTool(&mcp.Tool{
		Name: "execute", Description: description,
		InputSchema: json.RawMessage(inputSchema), OutputSchema: json.RawMessage(outputSchema),
		Annotations: &mcp.ToolAnnotations{DestructiveHint: &destructive, OpenWorldHint: &open},
	}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return o.execute(ctx, r.Params.Arguments), nil
	})
	err := s.Run(ctx, &mcp.IOTransport{Reader: in, Writer: out})
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return err
}

// Result is the outcome of a command.
type Result struct {
	ExitCode    int    `json:"exit_code"`
	Stdout      string `json:"stdout"`
	Stderr      string `json:"stderr"`
	Truncated   bool   `json:"truncated,omitempty"`
	TimedOut    bool   `json:"timed_out,omitempty"`
	OutOfMemory bool   `json:"out_of_memory,omitempty"`
	WorkFull    bool   `json:"work_full,omitempty"`
	DurationMS  int64  `json:"duration_ms"`
}

// execute runs one command. Errors are reported in the result.
func (o Options) execute(ctx context.Context, arguments []byte) *mcp.CallToolResult {
	var asked struct {
		Command string `json:"command"`
		Timeout int    `json:"timeout_seconds"`
	}
	if err := json.Unmarshal(arguments, &asked); err != nil {
		return failed(call.Refuse(sandbox.Stage, call.InputInvalid, "the arguments do not match the input schema of execute"))
	}
	wall := time.Duration(asked.Timeout) * time.Second
	switch {
	case asked.Command == "" || len(asked.Command) > maxCommand || strings.ContainsRune(asked.Command, 0):
		return failed(call.Refuse(sandbox.Stage, call.InputInvalid,
			"the command must have 1 to %d bytes and no NUL", maxCommand))
	case asked.Timeout < 0 || asked.Timeout > int(maxTime.Seconds()):
		return failed(call.Refuse(sandbox.Stage, call.InputInvalid,
			"timeout_seconds must be 1 to %d", int(maxTime.Seconds())))
	case wall == 0:
		wall = defaultTime
	}
	spec, stderr, err := o.spec(asked.Command, wall)
	if err != nil {
		return failed(call.Refuse(sandbox.Stage, call.ServerUnavailable, "%v", err))
	}
	full := func() bool { return false }
	var most size
	if len(spec.Mounts) > 0 {
		most = o.limit(spec.Mounts[0].Source)
		ctx, full = watch(ctx, spec.Mounts[0].Source, most)
	}
	outcome, err := o.run(ctx, spec)
	filled := full()
	if err != nil && !(filled && errors.Is(err, errFull)) {
		if r, ok := errors.AsType[*call.Refusal](err); ok {
			return failed(r)
		}
		return failed(call.Refuse(sandbox.Stage, call.ProgramFailed, "the command could not be run: %v", err))
	}
	if filled {
		stderr.add("the work folder is limited to " + most.String() + ": remove files")
	}
	return result(outcome, stderr.String(), filled)
}

// spec describes the run of a command and collects its stderr.
func (o Options) spec(command string, wall time.Duration) (sandbox.Spec, *lines, error) {
	stderr := &lines{}
	s := sandbox.Spec{
		Tier: sandbox.Standard, Argv: []string{"/bin/bash", "--noprofile", "--norc", "-c", command}, Wall: wall,
		MemoryMB: memoryMB, DiskMB: diskMB, PIDs: processes, OnStderr: stderr.add, Proofs: o.Home.Dir(),
	}
	if o.Work == "" {
		return s, stderr, nil
	}
	// The sandbox refuses links in paths, because another process could change them.
	work, err := filepath.EvalSymlinks(o.Work)
	if err == nil {
		work, err = filepath.Abs(work)
	}
	if err == nil {
		if info, statErr := os.Stat(work); statErr != nil || !info.IsDir() {
			err = errors.New("not a folder")
		}
	}
	if err != nil {
		return s, stderr, fmt.Errorf("the work folder cannot be used: %w", err)
	}
	s.Mounts, s.Dir = []sandbox.Mount{{Source: work, To: Work, Write: true, Give: o.Own}}, Work
	return s, stderr, nil
}

// result converts an outcome to a tool result.
func result(out sandbox.Outcome, stderr string, full bool) *mcp.CallToolResult {
	stdout, cut := clip(string(out.Stdout))
	stderr, cutToo := clip(stderr)
	r := Result{
		ExitCode: out.ExitCode, Stdout: stdout, Stderr: stderr, Truncated: cut || cutToo || out.TooLarge != "",
		TimedOut: out.TimedOut, OutOfMemory: out.OOM, WorkFull: full, DurationMS: out.Duration.Milliseconds(),
	}
	var b strings.Builder
	b.WriteString(stdout)
	if stderr != "" {
		b.WriteString("\n[stderr]\n" + stderr)
	}
	switch {
	case r.WorkFull:
		b.WriteString("\n[the work folder is full]")
	case r.TimedOut:
		b.WriteString("\n[ended: time limit reached]")
	case r.OutOfMemory:
		b.WriteString("\n[ended: memory limit reached]")
	case r.ExitCode != 0:
		fmt.Fprintf(&b, "\n[exit code %d]", r.ExitCode)
	}
	if r.Truncated {
		b.WriteString("\n[output truncated]")
	}
	return &mcp.CallToolResult{
		Content: []mcp.Content{&mcp.TextContent{Text: strings.TrimPrefix(b.String(), "\n")}}, StructuredContent: r,
		IsError: r.ExitCode != 0 || r.TimedOut || r.OutOfMemory || r.WorkFull,
	}
}

// clip keeps the beginning of a text, as valid UTF-8.
func clip(s string) (string, bool) {
	return strings.ToValidUTF8(diag.Cut(s, maxOutput), "\uFFFD"), len(s) > maxOutput
}

// failed converts a refusal to a tool result. It has no structured content, because clients validate that
// against the output schema.
func failed(r *call.Refusal) *mcp.CallToolResult {
	return &mcp.CallToolResult{
		Content: []mcp.Content{&mcp.TextContent{Text: r.Error() + " (" + r.Hint + ")"}}, IsError: true,
		Meta: mcp.Meta{"ambit/error": map[string]any{
			"code": r.Code, "message": r.Message, "hint": r.Hint, "retryable": r.Retryable,
		}},
	}
}

// lines collects stderr up to the limit.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text.Len() <= maxOutput {
		l.text.WriteString(line + "\n")
	}
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.TrimSuffix(l.text.String(), "\n")
}
