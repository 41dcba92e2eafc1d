package egress

import (
	"testing"

	"go.uber.org/goleak"
)

// Every goroutine that a test starts must end with the test.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
