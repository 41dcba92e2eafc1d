package home

import (
	"os"

	"golang.org/x/sys/windows"
)

// Lock waits for an exclusive lock on a whole file. It ends with the file.
func Lock(f *os.File) error { return lockFile(f, 0) }

// tryLock reports whether it got the lock at once.
func tryLock(f *os.File) (bool, error) {
	err := lockFile(f, windows.LOCKFILE_FAIL_IMMEDIATELY)
	if err == windows.ERROR_LOCK_VIOLATION || err == windows.ERROR_IO_PENDING {
		return false, nil
	}
	return err == nil, err
}

func lockFile(f *os.File, flags uint32) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|flags, 0, 1, 0, new(windows.Overlapped))
}
