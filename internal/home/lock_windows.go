package home

import (
	"os"

	"golang.org/x/sys/windows"
)

// Lock waits for an exclusive lock on a whole file. It ends with the file.
func Lock(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, new(windows.Overlapped))
}
