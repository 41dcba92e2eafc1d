//go:build !unix

package bashserver

import "io/fs"

// taken is what a file takes of the disk.
func taken(info fs.FileInfo) int64 { return info.Size() }
