// Package bashserver is a small MCP tool server. Its only tool, execute, runs a shell command in the sandbox.
//
// Every command runs in the standard tier of the sandbox, without network. Memory, processes, time and output are
// limited. A command can use the machine's programs, but can write only to the work folder. If the sandbox is
// unavailable, every call is refused with isolation_unavailable. No option runs a command without the sandbox.
//
// All processes of a command are killed when the command ends. Only the files in the work folder are kept. The size
// of the work folder and its number of files are limited. The server measures the folder while a command runs, and
// kills a command that exceeds a limit. Commands can still delete files from a full folder.
package bashserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

// Name is the name of the MCP server.
const Name = "bash"

// Work is the path of the work folder inside the sandbox.
const Work = "/work"

const (
	maxCommand = 64 << 10
	// maxOutput is the maximum number of bytes in the result. It applies to stdout and stderr separately.
	maxOutput   = 64 << 10
	defaultTime = 30 * time.Second
	maxTime     = 10 * time.Minute
	memoryMB    = 512
	diskMB      = 256
	processes   = 128
)

// Options configure the server.
type Options struct {
	// Work is the absolute path of the work folder on this machine. If Work is empty, commands have no work folder.
	Work string
	// Own makes the sandbox's user the owner of the files in Work. It has no effect if ambit is not root. If Own is not
	// set, files keep their owners, and commands can change only files with suitable permissions. Set Own only if no
	// other user has files in the folder.
	Own bool
	// Home is ambit's home folder, where the results of the sandbox's checks are cached.
	Home    home.Home
	Version string

	maxWork size                                                         // zero means the default limits
	run     func(context.Context, sandbox.Spec) (sandbox.Outcome, error) // nil means sandbox.Run
}

const description = "Run a shell command with bash in a sandbox and return its output. " +
	"The command starts in " + Work + ", the only folder that is kept between calls. " +
	"There is no network, and all processes are killed when the command ends."

const inputSchema = `{"type":"object","additionalProperties":false,"required":["command"],"properties":{` +
	`"command":{"type":"string","minLength":1,"maxLength":65536,"description":"The bash command to run."},` +
	`"timeout_seconds":{"type":"integer","minimum":1,"maximum":600,` +
	`"description":"The time limit for the command in seconds. The default is 30."}}}`

const outputSchema = `{"type":"object","required":["exit_code","stdout","stderr"],"properties":{` +
	`"exit_code":{"type":"integer"},"stdout":{"type":"string"},"stderr":{"type":"string"},` +
	`"truncated":{"type":"boolean"},"timed_out":{"type":"boolean"},"out_of_memory":{"type":"boolean"},` +
	`"work_full":{"type":"boolean"},"duration_ms":{"type":"integer"}}}`

// Serve serves MCP on the two streams until the end of the input.
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

// execute runs one command. It reports errors in the result.
func (o Options) execute(ctx context.Context, arguments []byte) *mcp.CallToolResult {
	var asked struct {
		Command string `json:"command"`
		Timeout int    `json:"timeout_seconds"`
	}
	if err := json.Unmarshal(arguments, &asked); err != nil {
		return errorResult(call.Refuse(sandbox.Stage, call.InputInvalid,
			"the arguments do not match the input schema of the tool \"execute\""))
	}
	wall := time.Duration(asked.Timeout) * time.Second
	switch {
	case asked.Command == "" || len(asked.Command) > maxCommand || strings.ContainsRune(asked.Command, 0):
		return errorResult(call.Refuse(sandbox.Stage, call.InputInvalid,
			"the command must be 1 to %d bytes long and must not contain NUL", maxCommand))
	case asked.Timeout < 0 || asked.Timeout > int(maxTime.Seconds()):
		return errorResult(call.Refuse(sandbox.Stage, call.InputInvalid,
			"timeout_seconds must be from 1 to %d", int(maxTime.Seconds())))
	case wall == 0:
		wall = defaultTime
	}
	spec, stderr, err := o.spec(asked.Command, wall)
	if err != nil {
		return errorResult(call.Refuse(sandbox.Stage, call.ServerUnavailable, "%v", err))
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
			return errorResult(r)
		}
		return errorResult(call.Refuse(sandbox.Stage, call.ProgramFailed, "the command could not be run: %v", err))
	}
	if filled {
		stderr.add("the work folder has reached its limit of " + most.String() + "; delete files to continue")
	}
	return result(outcome, stderr.String(), filled)
}

// spec returns the sandbox settings for a command. The second result collects what the command writes to stderr.
func (o Options) spec(command string, wall time.Duration) (sandbox.Spec, *stderrLines, error) {
	stderr := &stderrLines{}
	s := sandbox.Spec{
		Tier: sandbox.Standard, Argv: []string{"/bin/bash", "--noprofile", "--norc", "-c", command}, Wall: wall,
		MemoryMB: memoryMB, DiskMB: diskMB, PIDs: processes, OnStderr: stderr.add, Proofs: o.Home.Dir(),
	}
	if o.Work == "" {
		return s, stderr, nil
	}
	// Resolve symbolic links here. The sandbox refuses paths that contain them, because another process could change a
	// link.
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
		b.WriteString("\n[the command reached its time limit and was killed]")
	case r.OutOfMemory:
		b.WriteString("\n[the command reached its memory limit and was killed]")
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

// clip truncates a text to maxOutput bytes of valid UTF-8. The second result reports whether the text was longer.
func clip(s string) (string, bool) {
	return strings.ToValidUTF8(diag.Cut(s, maxOutput), "\uFFFD"), len(s) > maxOutput
}

// errorResult converts a refusal to a tool result. The result has no structured content, because clients would validate
// it against the output schema.
func errorResult(r *call.Refusal) *mcp.CallToolResult {
	return &mcp.CallToolResult{
		Content: []mcp.Content{&mcp.TextContent{Text: r.Error() + " (" + r.Hint + ")"}}, IsError: true,
		Meta: mcp.Meta{"ambit/error": map[string]any{
			"code": r.Code, "message": r.Message, "hint": r.Hint, "retryable": r.Retryable,
		}},
	}
}

// stderrLines collects lines from stderr. It drops further lines when it has collected more than maxOutput bytes.
type stderrLines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *stderrLines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text.Len() <= maxOutput {
		l.text.WriteString(line + "\n")
	}
}

func (l *stderrLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.TrimSuffix(l.text.String(), "\n")
}

// These are the limits for a work folder. If a folder already exceeds a limit, its current size becomes the limit.
const (
	maxWork      = 1 << 30
	maxWorkFiles = 200_000
	// checkInterval is the minimum pause between two measurements of the folder. For large folders, the pause is
	// longer, so that measuring takes at most a tenth of the time.
	checkInterval = 250 * time.Millisecond
)

// errFull is the cancellation cause of a command that has filled its work folder.
var errFull = errors.New("the work folder is full")

// size is the disk usage of a folder and the number of its files.
type size struct{ bytes, files int64 }

func (s size) exceeds(most size) bool { return s.bytes > most.bytes || s.files > most.files }

func (s size) String() string { return fmt.Sprintf("%d MiB or %d files", s.bytes>>20, s.files) }

// measure returns the size of a folder without following links. A file that is created or deleted in the meantime may
// or may not be counted.
func measure(dir string) (s size) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // the file was deleted during the measurement
		}
		s.files++
		if info, err := d.Info(); err == nil {
			s.bytes += diskUsage(info)
		}
		return nil
	})
	return s
}

// limit returns the limits for the work folder during one command. If the folder already exceeds a default limit, its
// current size is the limit.
func (o Options) limit(dir string) size {
	most := cmp.Or(o.maxWork, size{maxWork, maxWorkFiles})
	now := measure(dir)
	return size{max(most.bytes, now.bytes), max(most.files, now.files)}
}

// watch measures the work folder while a command runs. It cancels the returned context when the folder exceeds its
// limits. The returned function stops watching and reports whether the folder is full.
func watch(ctx context.Context, dir string, most size) (run context.Context, full func() bool) {
	run, cancel := context.WithCancelCause(ctx)
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		pause := checkInterval
		for {
			timer := time.NewTimer(pause)
			select {
			case <-run.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			start := time.Now()
			if measure(dir).exceeds(most) {
				cancel(errFull)
				return
			}
			pause = max(checkInterval, 9*time.Since(start))
		}
	}()
	return run, func() bool {
		cancel(nil)
		<-looked
		return errors.Is(context.Cause(run), errFull) || measure(dir).exceeds(most)
	}
}
