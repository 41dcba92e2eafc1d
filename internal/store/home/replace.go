package home

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Replace replaces the content of a file atomically. Even after a crash, a reader sees either all of the old content or
// all of the new content. When Replace returns nil, the new content is on disk.
func Replace(file string, mode fs.FileMode, text []byte) error {
	return ReplaceBy(file, mode, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// ReplaceBy is like [Replace], but a callback writes the content.
func ReplaceBy(file string, mode fs.FileMode, write func(io.Writer) error) error {
	dir := filepath.Dir(file)
	f, err := os.CreateTemp(dir, "."+filepath.Base(file)+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // Remove does nothing after a successful rename
	err = write(f)
	if mode != 0o600 {
		err = errors.Join(err, f.Chmod(mode))
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), file); err != nil {
		return err
	}
	return SyncFolder(dir)
}

// SyncFolder flushes the entries of a directory to disk, so that a crash cannot undo the creation, renaming or removal
// of a file. On Windows, SyncFolder does nothing, because Windows flushes directories itself.
func SyncFolder(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// WithoutPath removes the path from the error of a file operation. Callers use WithoutPath if their message already
// contains the path or must not reveal the path.
func WithoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
