//go:build unix

package bashserver

import (
	"io/fs"
	"syscall"
)

// diskUsage returns the number of bytes that a file occupies on disk, which can be less than its length if the file is
// sparse.
func diskUsage(info fs.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Blocks * 512
	}
	return info.Size()
}
