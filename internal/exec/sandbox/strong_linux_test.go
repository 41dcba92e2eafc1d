package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// TestStrongIsNeverLess checks that runs in the strong tier are refused if gVisor is missing or runsc is another
// program. The refusal names what is missing.
func TestStrongIsNeverLess(t *testing.T) {
	if again() {
		return
	}
	able(t)
	for name, script := range map[string]string{
		"":                           "",
		"another program":            "#!/bin/sh\necho ran\n",
		"a program without a kernel": "#!/bin/sh\nexec /proc/self/fd/4 ambit-sandbox-guest\n",
		"no temporary folder":        "#!/bin/sh\necho ran\n",
	} {
		missing := "gvisor"
		t.Setenv("TMPDIR", "/tmp")
		switch name {
		case "a program without a kernel":
			missing = "mounts" // the guest sees the machine's folders and cannot make its own
		case "no temporary folder":
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
		if !ok || u.Code != call.IsolationUnavailable || u.Missing.What != missing || u.Hint == "" || strings.Contains(string(out.Stdout), "ran") {
			t.Errorf("%s: got error %v, want that %s is missing", name, err, missing)
		}
		if left, _ := filepath.Glob(filepath.Join(folder, "sandbox-proof*")); len(left) > 0 {
			t.Errorf("%s: a proof was stored: %v", name, left)
		}
	}
	nothingLeft(t)
}
