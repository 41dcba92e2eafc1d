//go:build linux && prove

package faults

import "testing"

// TestCallersTokensAtScale is TestCallersTokens with 10,000 calls of 50 principals.
func TestCallersTokensAtScale(t *testing.T) { testCallers(t, 50, 10_000, 8) }
