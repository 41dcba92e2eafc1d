package sqlite

import (
	"os"

	"golang.org/x/sys/windows"
)

// lock waits for an exclusive lock on a whole file.
func lock(f *os.File) error { return lockFile(f, 0) }

// tryLock reports whether it got the lock at once.
func tryLock(f *os.File) (bool, error) {
	switch err := lockFile(f, windows.LOCKFILE_FAIL_IMMEDIATELY); err {
	case nil:
		return true, nil
	case windows.ERROR_LOCK_VIOLATION, windows.ERROR_IO_PENDING:
		return false, nil
	default:
		return false, err
	}
}

func unlock(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, new(windows.Overlapped))
}

func lockFile(f *os.File, flags uint32) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|flags, 0, 1, 0, new(windows.Overlapped))
}
