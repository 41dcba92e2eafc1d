//go:build unix

package cpu

import (
	"syscall"
	"time"
)

// Used is what this process has used so far, user and system.
func Used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // of these arguments it never fails
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
