package host

import (
	"testing"

	"go.uber.org/goleak"
)

// Goroutines end with their test, except for the thread that starts programs: the kernel would kill
// the programs with it.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/ambit-run/ambit/internal/exec/toolserver.startPrograms"))
}
