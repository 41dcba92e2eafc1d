//go:build unix

package home

import (
	"os"

	"golang.org/x/sys/unix"
)

// Lock locks a file exclusively and waits if necessary. Closing the file releases the lock.
func Lock(f *os.File) error { return flock(f, unix.LOCK_EX) }

// TryLock is like Lock, but does not wait. It returns false if another process holds the lock.
func TryLock(f *os.File) (bool, error) {
	err := flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}

// Unlock releases the lock. Closing the file does not release the lock while a new child process still has a copy of
// the file descriptor.
func Unlock(f *os.File) error { return flock(f, unix.LOCK_UN) }

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}
