//go:build prove && linux

package program_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/exec/sandbox"
)

// TestContractAtTheTierStrong checks the contract in gVisor, for every runtime. A process caches
// which tiers work. This test therefore runs in its own process, with gVisor in PATH.
func TestContractAtTheTierStrong(t *testing.T) {
	const inChild = "TEST_TIER_STRONG"
	if os.Getenv(inChild) != "" {
		contract(t, sandbox.Strong)
		return
	}
	build := exec.CommandContext(t.Context(), "../../../scripts/runsc")
	build.Stderr = os.Stderr
	text, err := build.Output()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inChild+"=1", "PATH="+os.Getenv("PATH")+":"+filepath.Dir(strings.TrimSpace(string(text))))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
}
