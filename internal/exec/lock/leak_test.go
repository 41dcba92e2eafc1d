package lock

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails if a goroutine is still running after the tests. The goroutine that starts programs is
// ignored: it keeps its thread, because the kernel would kill the programs when that thread ends.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/ambit-run/ambit/internal/exec/toolserver.startPrograms"))
}
