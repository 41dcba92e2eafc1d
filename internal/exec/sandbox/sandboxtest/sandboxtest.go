// Package sandboxtest says to tests whether programs can be isolated here. There
// is one answer for all of them: where it is no, a test that runs programs is left
// out with the reason, and under CI it fails, so that none is left out unseen.
package sandboxtest

import (
	"os"
	"testing"

	"github.com/ambit-run/ambit/internal/exec/sandbox"
)

// Need ends a test where programs cannot be isolated.
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
