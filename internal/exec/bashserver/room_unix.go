//go:build unix

package bashserver

import (
	"io/fs"
	"syscall"
)

// taken is what a file takes of the disk: one with holes takes less than its length.
func taken(info fs.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Blocks * 512
	}
	return info.Size()
}
