package front

import (
	"testing"

	"go.uber.org/goleak"
)

// Goroutines end with their test, except for pending reads of a client's standard input, which end
// with the input.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/ambit-run/ambit/internal/serve/front.readLines"))
}
