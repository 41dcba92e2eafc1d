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

// An owner is a file that its process keeps locked. The kernel releases the lock when the
// process ends, however it ends, so ownership needs no timeout. Names are never reused:
// an owner without a file is dead.

// claim creates an owner in dir.
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
		// Another process may have swept the file before it was locked.
		if ours && same(f) {
			return f, nil
		}
		f.Close()
	}
}

// same reports whether an open file still has its name.
func same(f *os.File) bool {
	here, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(f.Name())
	return err == nil && os.SameFile(here, there)
}

// alive reports whether an owner holds the lock of its file.
func alive(dir, owner string) (bool, error) {
	if owner == "" || strings.Trim(owner, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" {
		return false, nil // not a name that claim creates, and perhaps a path
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

// sweep removes the files of dead owners. It ignores errors: nothing depends on it, and
// the next sweep tries again.
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

// release ends an ownership. Another process may sweep the file before release removes it.
func release(f *os.File) error {
	err := errors.Join(home.Unlock(f), f.Close())
	if e := os.Remove(f.Name()); !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return err
}
