package home

import (
	"context"
	"os"
	"time"
)

const lockPause = 10 * time.Millisecond

// lockWithin is like [Lock], but stops waiting when ctx is done. A suspended process keeps its locks, so Lock could
// wait forever.
func lockWithin(ctx context.Context, f *os.File) error {
	pause := time.NewTicker(lockPause)
	defer pause.Stop()
	for {
		if got, err := TryLock(f); got || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-pause.C:
		}
	}
}

// Hold acquires the lock on a file and returns a function that releases the lock. It creates a missing file, and waits
// for the lock until ctx is done.
func Hold(ctx context.Context, file string) (release func(), err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockWithin(ctx, f); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}
