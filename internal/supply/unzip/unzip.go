// Package unzip opens untrusted zip archives with bounded memory.
//
// The directory at the end of an archive lists the entries. The package archive/zip reads the whole directory before
// the caller can count the entries. Each entry takes at least 46 bytes in the archive, and several times as much in
// memory. The archive declares the directory size and the number of entries, but these values do not limit how much
// archive/zip reads. It reads entries until it finds something else. Only then does it compare the number of entries
// with the declared number, and it compares only the low 16 bits. This package therefore limits the number of bytes
// that archive/zip can read.
package unzip

import (
	"archive/zip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// ErrTooMany means that the directory of an archive is larger than the limit.
var ErrTooMany = errors.New("the archive has too many entries, or their names are too long")

const (
	// entrySize is the average size in bytes that is allowed for a directory entry, including the path and extra fields.
	entrySize = 512
	// endSize is the number of bytes in which archive/zip searches for the end of the directory. It includes the bytes
	// that archive/zip reads ahead.
	endSize = 80 << 10
)

// NewReader is [zip.NewReader] with bounded memory. It fails with [ErrTooMany] if the archive has far more than the
// given number of entries. The limit is not exact, so the caller must still count the entries.
func NewReader(r io.ReaderAt, size int64, entries int) (*zip.Reader, error) {
	return newReader(r, size, endSize+entrySize*int64(entries))
}

func newReader(r io.ReaderAt, size, most int64) (*zip.Reader, error) {
	d := &directory{from: r, left: most}
	archive, err := zip.NewReader(d, size)
	if d.left < 0 {
		return nil, ErrTooMany
	}
	d.parsed = true
	return archive, err
}

// directory wraps the reader of an archive. While archive/zip parses the directory of the archive, only a limited
// number of bytes can be read.
type directory struct {
	from   io.ReaderAt
	left   int64 // the number of bytes that can still be read
	parsed bool  // true if the directory has been parsed; reads are then unlimited
}

func (d *directory) ReadAt(p []byte, at int64) (int, error) {
	n, err := d.from.ReadAt(p, at)
	if d.parsed {
		return n, err
	}
	if d.left -= int64(n); d.left < 0 {
		return 0, ErrTooMany
	}
	return n, err
}

// Archive is a file opened by [OpenReader].
type Archive struct {
	*zip.Reader
	file *os.File
}

func (a *Archive) Close() error { return a.file.Close() }

// OpenReader is [zip.OpenReader] with the limit of [NewReader].
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

// ErrDamaged means that the content of an entry does not match the declared size and checksum, or that the
// compression method is unknown.
var ErrDamaged = errors.New("the entry is damaged, or its compression method is unknown")

// Extract writes the entry f to a new file in root. The given name is the path of the file, with slashes. Extract fails
// if the content does not have the declared size and checksum.
func Extract(root *os.Root, f *zip.File, name string) error {
	name = filepath.FromSlash(name)
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	in, err := f.Open()
	if err != nil {
		return ErrDamaged
	}
	defer in.Close()
	out, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644|f.Mode().Perm()&0o111)
	if err != nil {
		return err
	}
	size := int64(f.UncompressedSize64)
	n, err := io.Copy(out, io.LimitReader(in, size+1)) // reading to the end of the entry verifies the checksum
	if _, failed := errors.AsType[*fs.PathError](err); !failed && (err != nil || n != size) {
		err = ErrDamaged
	}
	return errors.Join(err, out.Close())
}

// Names contains the paths of an archive's files and folders, in lower case. The value is true for a file and false
// for a folder.
type Names map[string]bool

// Claim adds the path of a file and the paths of its parent folders. It returns false if the file's path is already
// used, or if the path of a parent folder is already used by a file.
func (n Names) Claim(name string) bool {
	folded := strings.ToLower(norm.NFC.String(name))
	if _, taken := n[folded]; taken {
		return false
	}
	for dir := path.Dir(folded); dir != "." && dir != "/"; dir = path.Dir(dir) {
		if n[dir] {
			return false
		}
		n[dir] = false
	}
	n[folded] = true
	return true
}
