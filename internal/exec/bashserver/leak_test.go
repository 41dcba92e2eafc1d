package bashserver

import (
	"testing"

	"go.uber.org/goleak"
)

// Every goroutine of a test must end with it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
