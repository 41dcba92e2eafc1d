package front

import (
	"testing"

	"go.uber.org/goleak"
)

// Whatever a test starts ends with it, but for whoever reads the standard input
// of a client that is left: that read ends with the input.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/ambit-run/ambit/internal/serve/front.readLines"))
}
