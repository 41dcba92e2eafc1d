//go:build unix

package bashserver

import (
	"io/fs"
	"syscall"
)

// diskUsage returns the blocks of a file: a sparse file uses less than its length.
func diskUsage(info fs.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Blocks * 512
	}
	return info.Size()
}
