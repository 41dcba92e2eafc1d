//go:build unix

package home

import (
	"os"

	"golang.org/x/sys/unix"
)

// Lock waits for an exclusive lock on a whole file. It ends with the file.
func Lock(f *os.File) error { return flock(f, unix.LOCK_EX) }

// tryLock reports whether it got the lock at once.
func tryLock(f *os.File) (bool, error) {
	err := flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}
