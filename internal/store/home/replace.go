package home

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Replace writes a file atomically: a reader sees either the old content or the new one,
// also after a crash. When Replace returns, the new content is on disk.
func Replace(file string, mode fs.FileMode, text []byte) error {
	return ReplaceBy(file, mode, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// ReplaceBy is [Replace] for content that write produces.
func ReplaceBy(file string, mode fs.FileMode, write func(io.Writer) error) error {
	dir := filepath.Dir(file)
	f, err := os.CreateTemp(dir, "."+filepath.Base(file)+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // after a rename there is nothing to remove
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

// SyncFolder makes the names in a directory durable. Windows does this by itself and has
// no call for it.
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
