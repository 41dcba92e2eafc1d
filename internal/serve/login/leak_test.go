package login

import (
	"testing"

	"go.uber.org/goleak"
)

// Goroutines end with their test.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
