//go:build prove && linux

package program_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/sandbox"
)

// TestContractAtTheTierStrong is one line in and one line out in a kernel of
// gVisor's own, for every runtime.
func TestContractAtTheTierStrong(t *testing.T) {
	build := exec.CommandContext(t.Context(), "../../scripts/runsc")
	build.Stderr = os.Stderr
	text, err := build.Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", os.Getenv("PATH")+":"+filepath.Dir(strings.TrimSpace(string(text))))
	contract(t, sandbox.Strong)
}
