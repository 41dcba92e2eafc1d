//go:build unix

package login

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
