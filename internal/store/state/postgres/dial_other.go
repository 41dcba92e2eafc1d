//go:build !linux

package postgres

import "syscall"

// setUserTimeout does nothing, because this system has no equivalent of TCP_USER_TIMEOUT. A statement still times out
// after roundTripLimit.
func setUserTimeout(_, _ string, _ syscall.RawConn) error { return nil }
