package home

import (
	"os"

	"golang.org/x/sys/windows"
)

// Lock locks a file exclusively and waits if necessary. Closing the file releases the lock.
func Lock(f *os.File) error { return lockFile(f, 0) }

// TryLock is like Lock, but does not wait. It returns false if another process holds the lock.
func TryLock(f *os.File) (bool, error) {
	err := lockFile(f, windows.LOCKFILE_FAIL_IMMEDIATELY)
	if err == windows.ERROR_LOCK_VIOLATION || err == windows.ERROR_IO_PENDING {
		return false, nil
	}
	return err == nil, err
}

// Unlock releases the lock.
func Unlock(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, new(windows.Overlapped))
}

func lockFile(f *os.File, flags uint32) error {
	flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	return windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped))
}
