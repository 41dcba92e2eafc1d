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

// TestContractAtTheTierStrong checks the contract in gVisor, for every runtime. A process
// caches its proofs, so this needs another process than the tests without gVisor.
func TestContractAtTheTierStrong(t *testing.T) {
	const apart = "TEST_TIER_STRONG"
	if os.Getenv(apart) != "" {
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
	cmd.Env = append(os.Environ(), apart+"=1", "PATH="+os.Getenv("PATH")+":"+filepath.Dir(strings.TrimSpace(string(text))))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
}
