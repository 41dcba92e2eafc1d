package sqlite

import (
	"os"
	"time"
)

// remove removes an owner's file, which Windows does only once it is closed.
// A young one stays: its owner may be about to lock it.
func remove(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if time.Since(info.ModTime()) < time.Minute {
		return nil
	}
	return os.Remove(f.Name())
}
