package sqlite

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/windows"
)

const errQuota = windows.ERROR_DISK_FULL

// networkDisk returns "a network drive" if dir is on a network drive. Otherwise networkDisk returns "".
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

// remove closes and removes the file of a dead owner. Windows removes only closed files. A file that is less than a
// minute old is kept, because its owner may be about to lock it.
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
