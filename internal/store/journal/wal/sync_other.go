//go:build !linux

package wal

import (
	"os"
	"runtime"
)

// syncData waits until what was written is on the disk.
func syncData(f *os.File) error { return f.Sync() }

// direct is known on Linux only.
func direct(*os.File) {}

// SyncFolder waits until the folder names the files that it has, and no others. Windows needs no such thing.
func SyncFolder(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
