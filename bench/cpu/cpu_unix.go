//go:build unix

package cpu

import (
	"syscall"
	"time"
)

// Used returns the CPU time of this process so far, user and system.
func Used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // never fails with these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
