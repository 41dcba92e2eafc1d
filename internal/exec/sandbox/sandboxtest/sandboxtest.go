// Package sandboxtest skips tests that run programs if this machine cannot isolate
// them. In CI such a test fails instead, so that no test is skipped unnoticed.
package sandboxtest

import (
	"os"
	"testing"

	"github.com/ambit-run/ambit/internal/exec/sandbox"
)

// Need skips or fails a test if programs cannot be isolated.
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
