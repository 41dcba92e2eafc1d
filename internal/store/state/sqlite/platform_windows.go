package sqlite

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/windows"
)

const errQuota = windows.ERROR_DISK_FULL

// networkDisk returns "a network drive" if dir is on one, or "".
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

// remove removes an owner's file. Windows requires that it is closed first, so a recent
// file is kept: its owner may be about to lock it.
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
