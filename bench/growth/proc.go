package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc.
const tick = 10 * time.Millisecond

// stat returns the fields of /proc/PID/stat that follow the name of the process. The name can contain spaces.
func stat(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return strings.Fields(rest)
}

// sum adds fields of stat that contain CPU times.
func sum(fields []string, which ...int) (all time.Duration) {
	for _, i := range which {
		if i < len(fields) {
			n, _ := strconv.ParseInt(fields[i], 10, 64)
			all += time.Duration(n) * tick
		}
	}
	return all
}

// Indexes of fields in the result of stat.
const (
	parent          = 1
	utime, stime    = 11, 12
	ended1, endedS1 = 13, 14 // the CPU times of ended child processes
)

// cpuOf returns the CPU time of a process, without its child processes.
func cpuOf(pid int) time.Duration { return sum(stat(pid), utime, stime) }

// cpuOfTree returns the CPU time of a process, its child processes, and their child processes.
func cpuOfTree(pid int) time.Duration {
	children := map[int][]int{}
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		id, err := strconv.Atoi(filepath.Base(dir))
		if f := stat(id); err == nil && len(f) > parent {
			above, _ := strconv.Atoi(f[parent])
			children[above] = append(children[above], id)
		}
	}
	var used time.Duration
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		used += sum(stat(queue[0]), utime, stime, ended1, endedS1)
		queue = append(queue, children[queue[0]]...)
	}
	return used
}
