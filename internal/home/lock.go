package home

import (
	"context"
	"os"
	"time"
)

// lockPause is between two tries to get a lock.
const lockPause = 10 * time.Millisecond

// LockWithin is [Lock] for whoever cannot wait for ever: a process that was stopped
// keeps its locks.
func LockWithin(ctx context.Context, f *os.File) error {
	pause := time.NewTicker(lockPause)
	defer pause.Stop()
	for {
		if got, err := tryLock(f); got || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-pause.C:
		}
	}
}
