//go:build unix

package credential

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFile waits for an exclusive lock on a whole file.
func lockFile(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != unix.EINTR {
			return err
		}
	}
}

// syncFolder makes sure that a renamed file stays renamed.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
