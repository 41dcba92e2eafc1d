//go:build !unix

package pack

import (
	"hash"
	"io"
	"io/fs"
	"os"
)

// hashInto hashes a file and returns its mode.
func hashInto(h hash.Hash, name string, buf []byte) (fs.FileMode, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	h.Reset()
	_, err = io.CopyBuffer(h, f, buf)
	return info.Mode(), err
}
