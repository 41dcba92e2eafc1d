//go:build unix

package cpu

import (
	"syscall"
	"time"
)

// Used returns the user and system CPU time that this process has used so far.
func Used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // Getrusage never fails with these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
