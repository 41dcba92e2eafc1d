package sqlite

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ambit-run/ambit/internal/store/home"
)

// Each owner of the store has a file in the "owners" directory. The owner's process keeps the file locked. The kernel
// releases the lock when the process exits for any reason, so no timeout is needed. Names are never reused, so an owner
// without a file is dead.

// claim creates and locks a file in dir for a new owner.
func claim(dir string) (*os.File, error) {
	for {
		f, err := os.OpenFile(filepath.Join(dir, rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		ours, err := home.TryLock(f)
		if err != nil {
			return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
		// Another process may have removed the file before it was locked here.
		if ours && sameFile(f) {
			return f, nil
		}
		f.Close()
	}
}

// sameFile reports whether the name of an open file still refers to that file.
func sameFile(f *os.File) bool {
	here, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(f.Name())
	return err == nil && os.SameFile(here, there)
}

// alive reports whether an owner still has its file locked.
func alive(dir, owner string) (bool, error) {
	if owner == "" || strings.Trim(owner, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" {
		return false, nil // claim() does not create such names, and they could be paths of other files
	}
	f, err := os.OpenFile(filepath.Join(dir, owner), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	free, err := home.TryLock(f)
	if free {
		err = home.Unlock(f)
	}
	return !free, err
}

// sweep removes the files of dead owners. Errors are ignored, because nothing depends on the removal and the next
// call tries again.
func sweep(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		f, err := os.OpenFile(filepath.Join(dir, entry.Name()), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if free, err := home.TryLock(f); free && err == nil {
			remove(f)
		}
		f.Close()
	}
}

// release unlocks and removes the file of an owner. The file may be missing, because another process may have removed
// it.
func release(f *os.File) error {
	err := errors.Join(home.Unlock(f), f.Close())
	if e := os.Remove(f.Name()); !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return err
}
