package sqlite

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// An owner is a file that its process keeps locked. The kernel lets go of the
// lock when the process ends, however it ends, so there is no clock in this.
// Names are never used twice: an owner without a file is dead.

// claim makes an owner in a folder.
func claim(dir string) (*os.File, error) {
	for {
		f, err := os.OpenFile(filepath.Join(dir, rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		ours, err := tryLock(f)
		if err != nil {
			return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
		// Between its making and its locking, somebody who sweeps may have
		// taken it for a dead one.
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

// alive reports whether an owner holds its file.
func alive(dir, owner string) (bool, error) {
	if owner == "" || strings.Trim(owner, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" {
		return false, nil // not a name that claim makes, and perhaps a path
	}
	f, err := os.OpenFile(filepath.Join(dir, owner), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	free, err := tryLock(f)
	if free {
		err = unlock(f)
	}
	return !free, err
}

// sweep removes the files of dead owners. What it cannot remove it leaves to
// the next one: nothing depends on it.
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
		if free, err := tryLock(f); free && err == nil {
			remove(f)
		}
		f.Close()
	}
}

// release ends an ownership. The file may be swept before it is removed here.
func release(f *os.File) error {
	err := errors.Join(unlock(f), f.Close())
	if e := os.Remove(f.Name()); !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return err
}
