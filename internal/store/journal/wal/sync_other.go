//go:build !linux

package wal

import "os"

// syncData waits until the data of a file is on disk.
func syncData(f *os.File) error { return f.Sync() }

// enableDirect does nothing, because direct writes are implemented only on Linux.
func enableDirect(*os.File) {}
