//go:build !linux

package wal

import "os"

// syncData waits until the data of a file is on disk.
func syncData(f *os.File) error { return f.Sync() }

// direct is implemented on Linux only.
func direct(*os.File) {}
