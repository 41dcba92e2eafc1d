package manifest

import (
	"errors"
	"io"
	"os"

	"github.com/ambit-run/ambit/internal/manifest/doc"
)

// readAll reads a file, but no more than the most that a manifest may have and
// one byte.
func readAll(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, &os.PathError{Op: "read", Path: f.Name(), Err: errors.New("is a folder, not a manifest")}
	case !info.Mode().IsRegular() || info.Size() == 0 || info.Size() > doc.MaxBytes:
		return io.ReadAll(io.LimitReader(f, doc.MaxBytes+1))
	}
	src := make([]byte, info.Size())
	n, err := io.ReadFull(f, src)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = nil // it has become shorter
	}
	return src[:n], err
}
