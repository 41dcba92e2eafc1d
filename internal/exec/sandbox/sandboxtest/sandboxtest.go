// Package sandboxtest skips a test if the test needs a sandbox and this machine cannot isolate programs. In CI, the
// test fails instead.
package sandboxtest

import (
	"os"
	"testing"

	"github.com/ambit-run/ambit/internal/exec/sandbox"
)

// Need skips the test if programs cannot be isolated on this machine. In CI, the test fails instead.
func Need(t testing.TB) {
	t.Helper()
	err := sandbox.Check(t.Context(), sandbox.Standard, "")
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}
