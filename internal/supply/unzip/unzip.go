// Package unzip opens untrusted zip archives with bounded memory.
//
// archive/zip reads the whole directory at the end of an archive before its caller can
// count the entries. Each entry takes at least 46 bytes in the archive and several
// times that in memory. The archive's own size and count of the directory are no
// limit: archive/zip reads until it finds something that is not an entry, and compares
// the count in 16 bits only. So this package limits the bytes that archive/zip may
// read.
package unzip

import (
	"archive/zip"
	"errors"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// ErrTooMany means that the directory of an archive is larger than allowed.
var ErrTooMany = errors.New("the archive has too many entries, or their names are too long")

const (
	// each is the allowed average size of a directory entry: the fixed part, a path,
	// and extra fields.
	each = 512
	// tail is where archive/zip looks for the end of the directory, plus its
	// read-ahead.
	tail = 80 << 10
)

// NewReader is [zip.NewReader] with a limit for an archive of at most so many entries.
// The limit is not exact: an archive with a few times as many entries may be opened
// too, so the caller counts them.
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

// directory limits how much of an archive can be read before its directory has been
// parsed.
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

// Names are the paths of an archive's files, ignoring case: true for a file, false for a
// folder.
type Names map[string]bool

// Claim reserves a name for one file, and the name's folders for folders. It returns
// false if one of them is taken.
func (n Names) Claim(name string) bool {
	folded := strings.ToLower(norm.NFC.String(name))
	if _, taken := n[folded]; taken {
		return false
	}
	for dir := path.Dir(folded); dir != "."; dir = path.Dir(dir) {
		if n[dir] {
			return false
		}
		n[dir] = false
	}
	n[folded] = true
	return true
}
