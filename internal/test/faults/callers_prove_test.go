//go:build linux && prove

package faults

import (
	"testing"
	"time"
)

// TestCallersTokensAtScale is TestCallersTokens with 10,000 calls of 50 principals. The tokens live longer: on a busy
// machine, 50 principals would otherwise do nothing but renew them.
func TestCallersTokensAtScale(t *testing.T) { testCallers(t, 50, 10_000, 8, 30*time.Second) }
