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

// findHolder finds the process that has locked a file. The kernel lists every file lock in /proc/locks. A line
// contains the process ID, and the device and inode of the file:
//
//	12: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF
//
// A line with an arrow describes a process that waits for the lock. Such lines are ignored.
func findHolder(file string) (found holder, ok bool) {
	info, err := os.Stat(file)
	if err != nil {
		return found, false
	}
	// The kernel returns the list page by page. If other locks are released between two pages, a held lock can be
	// missing from the list. An unsuccessful search is therefore repeated.
	for range 8 {
		if found, ok = searchLocks(info); ok {
			break
		}
	}
	return found, ok
}

func searchLocks(info os.FileInfo) (found holder, ok bool) {
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return found, false
	}
	// On some file systems, the listed device differs from the device that stat reports, so only the inode is compared.
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
	return found, false
}

// hasOpen reports whether a process has a file open. The inode alone does not identify a file, because a file on
// another disk can have the same inode.
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

// status returns the quoted name of a process and reports whether the process is stopped.
func status(pid int) (name string, stopped bool) {
	// The content has the form "4711 (program name) T …". The name can contain any byte.
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	open, end := bytes.IndexByte(text, '('), bytes.LastIndex(text, []byte(") "))
	if err != nil || open < 0 || end < open || len(text) < end+3 {
		return "already exited", false
	}
	return strconv.QuoteToASCII(string(text[open+1 : end])), text[end+2] == 'T'
}
