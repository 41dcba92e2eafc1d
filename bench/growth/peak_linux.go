package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// peak follows the most memory that a process has had, until it has ended. What the
// kernel tells of one that has ended will not do: it counts the memory of the process
// that started it, too.
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
