//go:build unix

package home

import (
	"os"

	"golang.org/x/sys/unix"
)

// Lock waits for an exclusive lock on a whole file. It ends with the file.
func Lock(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != unix.EINTR {
			return err
		}
	}
}
