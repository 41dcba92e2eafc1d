//go:build unix && prove

package docs

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMakeRun builds ambit in a fresh clone and runs scripts/run, as "make run" does. The output must end with
// the link to the console and the command that installs an agent.
func TestMakeRun(t *testing.T) {
	clone := t.TempDir()
	if out, err := exec.Command("git", "clone", "-q", "--no-hardlinks", root, clone).CombinedOutput(); err != nil {
		t.Fatalf("git clone: %v: %s", err, out)
	}
	if out, err := exec.Command("make", "-C", clone, "build").CombinedOutput(); err != nil {
		t.Fatalf("make build: %v: %s", err, out)
	}
	cmd := exec.Command(filepath.Join(clone, "scripts", "run"), "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "AMBIT_HOME="+t.TempDir(), "NO_COLOR=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(5*time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	var screen []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		screen = append(screen, lines.Text())
		if strings.Contains(lines.Text(), "output of tool servers:") {
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("scripts/run exited with %v", err)
	}
	all := strings.Join(screen, "\n")
	for _, agent := range []string{
		"default", "neo", "forge", "gpars-researcher", "wordcount", "research", "mcp-tool", "autonomous-agent", "skills-bundle", "static-recipe",
		"code-bundle", "code-bundle-python", "code-bundle-native",
	} {
		// On a slow machine, some agents are still starting when the others are ready.
		if !regexp.MustCompile(`(?m)^  (ready|starting) +` + agent + ` `).MatchString(all) {
			t.Errorf("the output does not list the agent %s:\n%s", agent, all)
		}
	}
	for _, want := range []string{"/login?ticket=", " install agents/default.json --client claude-code", "output of tool servers: bin/servers.log"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is missing in\n%s", want, all)
		}
	}
	if strings.Contains(all, "rejected") || strings.Contains(all, "starters ") {
		t.Errorf("an unexpected agent is served:\n%s", all)
	}
	if strings.Contains(all, "running on stdio") {
		t.Errorf("the output contains the output of tool servers:\n%s", all)
	}
}
