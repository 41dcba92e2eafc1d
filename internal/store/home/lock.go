package home

import (
	"context"
	"os"
	"time"
)

// lockPause is the time between two attempts to get a lock.
const lockPause = 10 * time.Millisecond

// lockWithin is [Lock] with a context. A stopped process keeps its locks, so some callers
// must not wait for ever.
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

// Hold locks a file until release is called. It creates a missing file.
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
