// Package unzip opens zip archives of strangers.
//
// archive/zip reads the whole directory at the end of an archive before anybody
// can count its entries, each of which takes several times the 46 bytes that it
// has at least. What the archive says of the directory's size and number of
// entries is no bound: archive/zip reads on until something is no entry, and
// compares the number in 16 bits. So what is bounded is how much it may read.
package unzip

import (
	"archive/zip"
	"errors"
	"io"
	"os"
)

// ErrTooMany says that the directory of an archive is larger than it may be.
var ErrTooMany = errors.New("the archive has too many entries, or their names are too long")

const (
	// each is what an entry has in the directory on average, at most: the fixed
	// part, a path, and what packers add to it.
	each = 512
	// tail is where archive/zip looks for the end of the directory, and what it
	// reads ahead.
	tail = 80 << 10
)

// NewReader is [zip.NewReader] for an archive that is meant to have no more than
// so many entries. One that has a few times as many is opened too: whoever wants
// to know exactly counts them then.
func NewReader(r io.ReaderAt, size int64, entries int) (*zip.Reader, error) {
	return newReader(r, size, tail+each*int64(entries))
}

func newReader(r io.ReaderAt, size, most int64) (*zip.Reader, error) {
	d := &directory{from: r, left: most}
	archive, err := zip.NewReader(d, size)
	if d.left < 0 {
		return nil, ErrTooMany
	}
	d.read = true
	return archive, err
}

// directory is an archive of which only so much can be read before its directory
// has been.
type directory struct {
	from io.ReaderAt
	left int64
	read bool
}

func (d *directory) ReadAt(p []byte, at int64) (int, error) {
	n, err := d.from.ReadAt(p, at)
	if d.read {
		return n, err
	}
	if d.left -= int64(n); d.left < 0 {
		return 0, ErrTooMany
	}
	return n, err
}

// Archive is a file that was opened by [OpenReader].
type Archive struct {
	*zip.Reader
	file *os.File
}

// Close closes the file.
func (a *Archive) Close() error { return a.file.Close() }

// OpenReader is [zip.OpenReader] with the bound of [NewReader].
func OpenReader(file string, entries int) (*Archive, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r, err := NewReader(f, info.Size(), entries)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Archive{r, f}, nil
}
