package bashserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/exec/sandbox/sandboxtest"
	_ "github.com/ambit-run/ambit/internal/exec/sandbox/shim"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/home"
)

// talk connects a client to a server with the given options.
func talk(t *testing.T, o Options) *mcp.ClientSession {
	t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Serve(t.Context(), o, in, out) }()
	c, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return c
}

func execute(t *testing.T, c *mcp.ClientSession, command string) (*mcp.CallToolResult, Result) {
	t.Helper()
	got, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "execute", Arguments: map[string]any{"command": command}})
	if err != nil {
		t.Fatal(err)
	}
	var r Result
	if text, err := json.Marshal(got.StructuredContent); err != nil || json.Unmarshal(text, &r) != nil {
		t.Fatalf("structured content %v", got.StructuredContent)
	}
	return got, r
}

func TestExecute(t *testing.T) {
	sandboxtest.Need(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("quiet"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CANARY", "a value of this process")
	work := t.TempDir()
	if err := os.WriteFile(filepath.Join(work, "here.txt"), []byte("hello\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := talk(t, Options{Work: work, Own: true, Home: home.At(t.TempDir())})
	for _, tt := range []struct {
		name, command  string
		code           int
		stdout, stderr string
	}{
		{"a command sees the work folder", "pwd; cat here.txt", 0, "/work\nhello\n", ""},
		{"a command can change files", "echo more >> here.txt && mkdir made && echo x > made/new && cat here.txt", 0, "hello\nmore\n", ""},
		{"changes are kept for the next command", "cat made/new", 0, "x\n", ""},
		{"its exit code is reported", "echo no >&2; exit 7", 7, "", "no"},
		{"other files are not visible", "cat " + secret, 1, "", "No such file"},
		{"the environment is not inherited", "echo [$CANARY]", 0, "[]\n", ""},
		{"there is no network", "exec 3<>/dev/tcp/127.0.0.1/22 || exit 9", 9, "", "refused"},
		{"there is no route to other machines", "exec 3<>/dev/tcp/192.0.2.1/80 || exit 9", 9, "", "unreachable"},
		{"system folders are read-only", "touch /usr/x || exit 4", 4, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, r := execute(t, c, tt.command)
			if r.ExitCode != tt.code || tt.stdout != "" && r.Stdout != tt.stdout || !strings.Contains(r.Stderr, tt.stderr) || got.IsError != (tt.code != 0) {
				t.Errorf("result = %+v, want exit code %d", r, tt.code)
			}
		})
	}
	if text, err := os.ReadFile(filepath.Join(work, "made", "new")); err != nil || string(text) != "x\n" {
		t.Errorf("the file on the host contains %q, %v", text, err)
	}
}

func TestExecuteEnds(t *testing.T) {
	sandboxtest.Need(t)
	c := talk(t, Options{Home: home.At(t.TempDir())})
	got, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "execute", Arguments: map[string]any{"command": "sleep 600", "timeout_seconds": 1}})
	if err != nil || !got.IsError {
		t.Fatalf("error %v, result %+v; want a result with an error", err, got)
	}
	if m, ok := got.StructuredContent.(map[string]any); !ok || m["timed_out"] != true {
		t.Errorf("structured content = %v, want timed_out", got.StructuredContent)
	}
	if _, r := execute(t, c, "yes | head -c 1000000"); !r.Truncated || len(r.Stdout) != maxOutput {
		t.Errorf("stdout has %d bytes, truncated %v", len(r.Stdout), r.Truncated)
	}
}

// TestExecuteFills checks that a command is killed if it fills its work folder. Later commands must be able to
// delete files.
func TestExecuteFills(t *testing.T) {
	sandboxtest.Need(t)
	work := t.TempDir()
	c := talk(t, Options{Work: work, Own: true, Home: home.At(t.TempDir()), maxWork: size{1 << 20, 20}})
	for _, tt := range []struct {
		name, command string
		full          bool
	}{
		{"a file that fits", "head -c 100000 /dev/zero > a", false},
		{"an endless writer", "while :; do i=$(((i + 1) % 15)); head -c 100000 /dev/zero > b$i; done", true},
		{"the folder stays full", "echo more > c && head -c 900000 /dev/zero > d", true},
		{"files can be deleted", "rm -f b* c d", false},
		{"the folder can be used again", "head -c 100000 /dev/zero > e", false},
		{"many files", "for i in $(seq 30); do : > f$i; done", true},
		{"a sparse file uses no space", "rm -f f*; truncate -s 100M g", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, r := execute(t, c, tt.command)
			if r.WorkFull != tt.full || r.TimedOut || got.IsError != tt.full || tt.full && !strings.Contains(r.Stderr, "the work folder has reached its limit of") {
				t.Errorf("result = %+v, isError %v; want a full work folder: %v", r, got.IsError, tt.full)
			}
		})
	}
}

// TestExecuteIsNeverWithout checks that no command runs without a sandbox, and that the refusal contains the reason.
func TestExecuteIsNeverWithout(t *testing.T) {
	ran := 0
	o := Options{Home: home.At(t.TempDir()), run: func(_ context.Context, s sandbox.Spec) (sandbox.Outcome, error) {
		ran++
		if s.Tier != sandbox.Standard || s.Network != nil {
			t.Errorf("the command requests %+v, want the standard tier without network", s)
		}
		return sandbox.Outcome{}, call.Refuse(sandbox.Stage, call.IsolationUnavailable, "there is no bubblewrap here")
	}}
	got, _ := execute(t, talk(t, o), "echo hi")
	text := got.Content[0].(*mcp.TextContent).Text
	if !got.IsError || !strings.Contains(text, "isolation_unavailable: there is no bubblewrap here") || ran != 1 {
		t.Errorf("text = %q after %d runs, want isolation_unavailable after 1", text, ran)
	}
	if e, ok := got.Meta["ambit/error"].(map[string]any); !ok || e["code"] != string(call.IsolationUnavailable) {
		t.Errorf("_meta = %v, want the code isolation_unavailable", got.Meta)
	}
}

func TestExecuteRefuses(t *testing.T) {
	o := Options{Home: home.At(t.TempDir()), run: func(context.Context, sandbox.Spec) (sandbox.Outcome, error) {
		return sandbox.Outcome{}, errors.New("the command was run")
	}}
	for name, arguments := range map[string]string{
		"no command":               `{}`,
		"a zero byte":              `{"command":"a\u0000b"}`,
		"too long":                 `{"command":"` + strings.Repeat("x", maxCommand+1) + `"}`,
		"too much time":            `{"command":"a","timeout_seconds":601}`,
		"a timeout that overflows": `{"command":"a","timeout_seconds":18446744074}`,
		"no JSON":                  `{`,
	} {
		got := o.execute(t.Context(), []byte(arguments))
		if text := got.Content[0].(*mcp.TextContent).Text; !got.IsError || !strings.Contains(text, "input_invalid") {
			t.Errorf("%s: text = %s, want input_invalid", name, text)
		}
	}
	o.Work = filepath.Join(t.TempDir(), "gone")
	got := o.execute(t.Context(), []byte(`{"command":"a"}`))
	if text := got.Content[0].(*mcp.TextContent).Text; !got.IsError || !strings.Contains(text, "work folder") {
		t.Errorf("error for a missing work folder: %s", text)
	}
}
