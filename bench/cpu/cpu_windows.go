package cpu

import (
	"syscall"
	"time"
)

// Used returns the user and system CPU time that this process has used so far.
func Used() time.Duration {
	self, err := syscall.GetCurrentProcess()
	if err != nil {
		panic(err) // GetCurrentProcess never fails
	}
	var created, exited, kernel, user syscall.Filetime
	if err := syscall.GetProcessTimes(self, &created, &exited, &kernel, &user); err != nil {
		panic(err) // GetProcessTimes never fails for this process
	}
	ticks := func(f syscall.Filetime) int64 { return int64(f.HighDateTime)<<32 | int64(f.LowDateTime) }
	return time.Duration(ticks(kernel)+ticks(user)) * 100 // a tick is 100 ns
}
