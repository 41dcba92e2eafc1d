//go:build prove && linux

package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAtTheTierStrong builds gVisor if necessary and runs the same tests with gVisor, as the current user and as an
// unprivileged user.
func TestAtTheTierStrong(t *testing.T) {
	const others = "TestFailsClosed|TestCanariesNotice|Pool|Ahead|Watcher" // these tests cover only the standard tier
	if again() {
		return
	}
	able(t)
	build := exec.CommandContext(t.Context(), "../../../scripts/runsc")
	build.Stderr = os.Stderr
	text, err := build.Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := space(t)
	content, err := os.ReadFile(strings.TrimSpace(string(text)))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, Runsc), content, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Run("as this user", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), probe(), "-test.v", "-test.count=1", "-test.timeout=300s", "-test.skip="+others)
		cmd.Env = append(os.Environ(), "PROBE_FILE="+probe(), "PROBE_HOW=strong", "PATH=/usr/bin:/bin:"+dir)
		passes(t, cmd)
	})
	t.Run("as an ordinary user", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("this user is already an ordinary user")
		}
		t.Setenv("PROBE_RUNSC", filepath.Join(dir, Runsc))
		ordinary(t, "strong", others)
	})
}
