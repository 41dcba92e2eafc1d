//go:build unix

package sqlite

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const errQuota = syscall.EDQUOT

// remove removes an owner's file while it is locked, so that nobody can have
// claimed it in between.
func remove(f *os.File) error { return os.Remove(f.Name()) }

// lock waits for an exclusive lock on a whole file.
func lock(f *os.File) error { return flock(f, unix.LOCK_EX) }

// tryLock reports whether it got the lock at once.
func tryLock(f *os.File) (bool, error) {
	switch err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err {
	case nil:
		return true, nil
	case unix.EWOULDBLOCK:
		return false, nil
	default:
		return false, err
	}
}

// unlock lets go at once, also where a child that is being started holds a copy
// of the descriptor.
func unlock(f *os.File) error { return flock(f, unix.LOCK_UN) }

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}
