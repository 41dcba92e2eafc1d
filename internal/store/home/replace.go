package home

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Replace puts a text in the place of a file: whoever reads it finds the old one or
// the new one whole, also after a crash. When it returns, the new one is on the disk.
func Replace(file string, mode fs.FileMode, text []byte) error {
	return ReplaceBy(file, mode, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// ReplaceBy is [Replace] for what is written bit by bit.
func ReplaceBy(file string, mode fs.FileMode, write func(io.Writer) error) error {
	dir := filepath.Dir(file)
	f, err := os.CreateTemp(dir, "."+filepath.Base(file)+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // there only if something failed
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

// SyncFolder makes the names in a folder last. Windows has nothing like it, and
// keeps them by itself.
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
