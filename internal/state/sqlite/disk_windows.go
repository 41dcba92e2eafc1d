package sqlite

import (
	"path/filepath"

	"golang.org/x/sys/windows"
)

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
