//go:build unix

package home

import (
	"os"

	"golang.org/x/sys/unix"
)

// Lock waits for an exclusive lock on a whole file. Closing the file releases the lock.
func Lock(f *os.File) error { return flock(f, unix.LOCK_EX) }

// TryLock reports whether it got the lock without waiting.
func TryLock(f *os.File) (bool, error) {
	err := flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}

// Unlock releases the lock at once, even if a child process that is being started holds
// a copy of the descriptor.
func Unlock(f *os.File) error { return flock(f, unix.LOCK_UN) }

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}
