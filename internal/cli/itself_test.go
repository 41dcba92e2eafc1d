//go:build !race || prove

package cli_test

import "testing"

// program returns no folders for PATH. PATH already contains the test binary, and scripts run this binary as
// ambit.
func program(*testing.T) []string { return nil }
