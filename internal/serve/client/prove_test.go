//go:build prove

package client_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// packages lists the npm packages of the real clients.
var packages = []string{
	"@anthropic-ai/claude-code@2.1.197", "@google/gemini-cli@0.61.0", "@openai/codex@0.166.0", "opencode-ai@1.18.33",
	"@qwen-code/qwen-code@0.15.10", "@github/copilot@1.0.102", "@modelcontextprotocol/inspector@0.15.0",
}

// TestRealClients installs an agent into real clients. The clients must list the agent. They must
// connect to the agent if that needs no account. After the uninstallation, they must no longer list the
// agent.
func TestRealClients(t *testing.T) {
	dir := t.TempDir()
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(env []string, name string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env, cmd.WaitDelay = env, 5*time.Second
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	install := append([]string{"install", "--prefix", filepath.Join(dir, "clients"), "--no-audit", "--no-fund"}, packages...)
	if out, err := run(os.Environ(), "npm", install...); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the clients cannot be installed: %v\n%s", err, out)
		}
		t.Skipf("the clients cannot be installed: %v\n%s", err, out)
	}
	ambit := filepath.Join(dir, "ambit")
	if out, err := run(os.Environ(), "go", "build", "-o", ambit, "github.com/ambit-run/ambit/cmd/ambit"); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	// Clients that are started from a desktop have almost no environment variables.
	bare := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GEMINI_CLI_TRUST_WORKSPACE=true"}
	must := func(name string, args ...string) string {
		t.Helper()
		out, err := run(bare, name, args...)
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
		}
		return out
	}
	client := func(name string) string { return filepath.Join(dir, "clients", "node_modules", ".bin", name) }
	agent, err := filepath.Abs("../../../agents/examples/mcp-tool")
	if err != nil {
		t.Fatal(err)
	}
	must(ambit, "install", agent, "--client", "claude-code,gemini-cli,codex,opencode,qwen-code,copilot-cli,cursor", "--force")

	for name, sign := range map[string]string{"claude": "✔ Connected", "gemini": "✓", "opencode": "✓", "qwen": "✓"} {
		line := lineOf(must(client(name), "mcp", "list"), "mcp-tool")
		if !strings.Contains(line, sign) || !strings.Contains(strings.ToLower(line), "connected") {
			t.Errorf("%s: %q", name, line)
		}
	}
	// The Copilot CLI lists its servers without starting them.
	if out := must(client("copilot"), "mcp", "list"); !strings.Contains(out, "mcp-tool") {
		t.Errorf("copilot: %s", out)
	}
	if command := codexCommand(t, must(client("codex"), "mcp", "list", "--json")); command != ambit {
		t.Errorf("codex starts %q", command)
	}
	config := filepath.Join(home, ".cursor", "mcp.json")
	if out := must(client("mcp-inspector"), "--cli", "--config", config, "--server", "mcp-tool", "--method", "tools/list"); !strings.Contains(out, "get_traffic_summary") {
		t.Errorf("the inspector: %s", out)
	}

	// Some clients have changed their files since the installation. Uninstalling removes only
	// ambit's entry.
	must(ambit, "uninstall", "mcp-tool")
	for _, name := range []string{"claude", "gemini", "codex", "opencode", "qwen", "copilot"} {
		if out := must(client(name), "mcp", "list"); strings.Contains(out, "mcp-tool") {
			t.Errorf("%s still lists the agent: %s", name, out)
		}
	}
}

func lineOf(out, word string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, word) {
			return line
		}
	}
	return out
}

// codexCommand returns the command that codex would start for the agent. It skips the warnings
// before the list in the output of codex.
func codexCommand(t *testing.T, out string) string {
	t.Helper()
	var list []struct {
		Name      string `json:"name"`
		Transport struct {
			Command string `json:"command"`
		} `json:"transport"`
	}
	if err := json.Unmarshal([]byte(out[max(0, strings.Index(out, "[\n")):]), &list); err != nil {
		t.Fatalf("codex: %v\n%s", err, out)
	}
	for _, s := range list {
		if s.Name == "mcp-tool" {
			return s.Transport.Command
		}
	}
	return ""
}
