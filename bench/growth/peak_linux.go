package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// peak returns the peak memory of a process. It polls the process until the given channel is closed. The kernel also
// reports a peak value after the exit, but this value includes the memory of the parent process before exec.
func peak(pid int, ended <-chan struct{}) (most int64) {
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if _, rest, ok := strings.Cut(string(status), "VmHWM:"); err == nil && ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			most = max(most, kib<<10)
		}
		select {
		case <-ended:
			return most
		case <-look.C:
		}
	}
}
