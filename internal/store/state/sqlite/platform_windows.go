package sqlite

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/windows"
)

const errQuota = windows.ERROR_DISK_FULL

// networkDisk names the network file system that a folder lies on, or is "".
func networkDisk(dir string) (string, error) {
	root, err := windows.UTF16PtrFromString(filepath.VolumeName(dir) + `\`)
	if err != nil {
		return "", err
	}
	if windows.GetDriveType(root) == windows.DRIVE_REMOTE {
		return "a network drive", nil
	}
	return "", nil
}

// remove removes an owner's file, which Windows does only once it is closed.
// A young one stays: its owner may be about to lock it.
func remove(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if time.Since(info.ModTime()) < time.Minute {
		return nil
	}
	return os.Remove(f.Name())
}

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
