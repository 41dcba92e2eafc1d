package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// TestStrongIsNeverLess: without gVisor, or with another program of its name, the tier
// strong refuses and reports what is missing.
func TestStrongIsNeverLess(t *testing.T) {
	if again() {
		return
	}
	able(t)
	for name, script := range map[string]string{
		"":                           "",
		"something else":             "#!/bin/sh\necho ran\n",
		"something that only starts": "#!/bin/sh\nexec /proc/self/fd/4 ambit-sandbox-guest\n",
		"no place for its files":     "#!/bin/sh\necho ran\n",
	} {
		missing := "gvisor"
		t.Setenv("TMPDIR", "/tmp")
		switch name {
		case "something that only starts":
			missing = "mounts" // they are the machine's, where there is no such folder
		case "no place for its files":
			missing = "sandbox"
			t.Setenv("TMPDIR", "/dev/null/none")
		}
		folder := space(t)
		t.Setenv("PATH", "/usr/bin:/bin")
		if name != "" {
			if err := os.WriteFile(filepath.Join(folder, Runsc), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		out, err := Run(t.Context(), Spec{Tier: Strong, Argv: []string{"echo", "ran"}, Proofs: folder})
		u, ok := errors.AsType[*Unavailable](err)
		if !ok || u.Code != call.IsolationUnavailable || u.Missing[0].What != missing || u.Hint == "" || strings.Contains(string(out.Stdout), "ran") {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := filepath.Glob(filepath.Join(folder, "sandbox-proof*")); len(left) > 0 {
			t.Errorf("%s: a proof was kept: %v", name, left)
		}
	}
	nothingLeft(t)
}
