package sqlite

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// findHolder finds the process that has locked a file. The kernel lists every lock with
// the process and the file's device and inode:
//
//	12: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF
//
// A line with an arrow is a process that waits.
func findHolder(file string) (by holder, ok bool) {
	info, err := os.Stat(file)
	if err != nil {
		return by, false
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return by, false
	}
	// The device is ignored: some file systems report another one here than in stat.
	number := fmt.Sprintf(":%d", info.Sys().(*syscall.Stat_t).Ino)
	for line := range strings.Lines(string(locks)) {
		word := strings.Fields(line)
		if len(word) < 6 || word[1] != "FLOCK" || !strings.HasSuffix(word[5], number) {
			continue
		}
		if pid, err := strconv.Atoi(word[4]); err == nil && hasOpen(pid, info) {
			name, stopped := status(pid)
			return holder{pid, name, stopped}, true
		}
	}
	return by, false
}

// hasOpen reports whether a process has a file open. The inode alone is not enough: a
// file on another disk may have the same one.
func hasOpen(pid int, file os.FileInfo) bool {
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	open, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(open, func(fd os.DirEntry) bool {
		info, err := os.Stat(dir + fd.Name())
		return err == nil && os.SameFile(info, file)
	})
}

// status returns the name of a process and whether it is stopped.
func status(pid int) (name string, stopped bool) {
	// 4711 (its name) T …, where the name may contain any byte.
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	open, end := bytes.IndexByte(text, '('), bytes.LastIndex(text, []byte(") "))
	if err != nil || open < 0 || end < open || len(text) < end+3 {
		return "it has ended since", false
	}
	return strconv.QuoteToASCII(string(text[open+1 : end])), text[end+2] == 'T'
}
