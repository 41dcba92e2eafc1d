package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// peak polls the peak memory of a process until it ends. The kernel's value for an ended process is useless here, because
// it includes the memory of the parent before exec.
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
