package cli_test

import (
	"os"
	"testing"

	"github.com/ambit-run/ambit/internal/sandbox"
)

// needSandbox ends a test that runs programs where they cannot be isolated; under
// CI that is a failure.
func needSandbox(t *testing.T) {
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
