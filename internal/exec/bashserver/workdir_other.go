//go:build !unix

package bashserver

import "io/fs"

// diskUsage returns the size of a file.
func diskUsage(info fs.FileInfo) int64 { return info.Size() }
