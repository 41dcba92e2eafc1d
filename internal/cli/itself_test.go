//go:build !race || prove

package cli_test

import "testing"

// program is empty: the ambit that scripts call is the test binary, which is in PATH.
func program(*testing.T) []string { return nil }
