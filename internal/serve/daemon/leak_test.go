package daemon

import (
	"testing"

	"go.uber.org/goleak"
)

// Whatever a test starts ends with it, but for the thread that starts programs: the
// kernel would end them with it.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/ambit-run/ambit/internal/exec/toolserver.startPrograms"))
}
