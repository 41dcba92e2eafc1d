package bundle

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/unzip"
)

// intake adds files to a bundle, within its limits.
type intake struct {
	of    *Bundle
	names unzip.Names
	left  int64
	files int
}

func newIntake(b *Bundle) *intake {
	return &intake{of: b, names: unzip.Names{}, left: maxUnpacked}
}

// take reads a file. It returns false if no more files can be added.
func (in *intake) take(name string, executable bool, from io.Reader) bool {
	b := in.of
	if !in.count() {
		return false
	}
	if !plain(name) {
		b.report(rulePath, name, 0, "%s is not a simple path within the bundle", diag.Quote(name))
		return true
	}
	if !in.names.Claim(name) {
		b.report(ruleTwice, name, 0, "%s appears twice, or is both a file and a folder", diag.Quote(name))
		return true
	}
	most := min(in.left, maxFile)
	data, err := io.ReadAll(io.LimitReader(from, most+1))
	switch {
	case errors.Is(err, errBomb):
		b.report(ruleTooLarge, name, 0, "%s grows to more than %d times its size when unpacked", diag.Quote(name), maxRatio)
		return false
	case int64(len(data)) > most && most < maxFile:
		b.report(ruleTooLarge, "", 0, "the files are larger than %d MiB together", maxUnpacked>>20)
		return false
	case int64(len(data)) > most:
		b.report(ruleTooLarge, name, 0, "%s is larger than %d MiB", diag.Quote(name), maxFile>>20)
		in.left -= most
		return in.left > 0
	case err != nil:
		b.report(ruleUnreadable, name, 0, "%s cannot be read: it is damaged", diag.Quote(name))
		return true
	}
	in.left -= int64(len(data))
	b.Tree = b.Tree.put(File{Path: name, Executable: executable, Data: data})
	return true
}

// count counts an entry of any kind. It returns false if there are too many entries,
// or too many problems to report.
func (in *intake) count() bool {
	if len(in.of.Problems) >= maxProblems {
		in.of.report(ruleTooLarge, "", 0, "there are too many problems; the rest was not checked")
		return false
	}
	if in.files++; in.files > maxFiles {
		in.of.report(ruleTooLarge, "", 0, "there are more than %d files", maxFiles)
		return false
	}
	return true
}

// plain reports whether a name means the same file within the bundle on every system.
func plain(name string) bool {
	if len(name) > 1024 || !utf8.ValidString(name) || !fs.ValidPath(name) || name == "." || strings.ContainsAny(name, `\:*?"<>|`) {
		return false
	}
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) }) || diag.Hidden(name) != "" {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > 255 || strings.HasSuffix(part, ".") || strings.HasSuffix(part, " ") {
			return false
		}
	}
	return true
}

// hidden reports whether a name or a folder of it begins with a dot.
func hidden(name string) bool {
	return strings.HasPrefix(name, ".") || strings.Contains(name, "/.")
}

// entry adds an entry of an archive: a file with its content, or a folder.
func (in *intake) entry(name string, mode fs.FileMode, open func() (io.ReadCloser, error)) bool {
	b := in.of
	short := strings.TrimSuffix(strings.TrimPrefix(name, "./"), "/")
	if !in.count() {
		return false
	}
	switch {
	case short == "" && name == "./":
		return true
	case !plain(short):
		b.report(rulePath, name, 0, "%s is not a simple path within the bundle", diag.Quote(name))
		return true
	case !mode.IsRegular() && !mode.IsDir():
		b.report(ruleLink, short, 0, "%s is a link or device", diag.Quote(short))
		return true
	case hidden(short):
		b.LeftOut = append(b.LeftOut, short)
		return true
	case mode.IsDir():
		return true
	}
	from, err := open()
	if err != nil {
		b.report(ruleUnreadable, short, 0, "%s cannot be read: it is encrypted, or its compression method is unknown", diag.Quote(short))
		return true
	}
	defer from.Close()
	in.files-- // it was counted before
	return in.take(short, mode&0o111 != 0, from)
}

// errBomb means that a file grows too fast.
var errBomb = errors.New("it grows too fast")

// watched reads unpacked data, and stops when it is too much for the packed bytes read
// so far.
type watched struct {
	from io.Reader
	in   func() int64
	out  int64
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.from.Read(p)
	if w.out += int64(n); w.out > ratioFrom && w.out > maxRatio*w.in() {
		return 0, errBomb
	}
	return n, err
}

// counted counts the bytes that are read.
type counted struct {
	from io.Reader
	n    int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.n += int64(n)
	return n, err
}

func (b *Bundle) readTar(data []byte) {
	raw := &counted{from: bytes.NewReader(data)}
	buffered := bufio.NewReader(raw)
	unzipped, err := gzip.NewReader(buffered)
	if err != nil {
		b.report(ruleUnreadable, "", 0, "the archive is damaged")
		return
	}
	unzipped.Multistream(false)
	// The limit covers all of it, including the bytes between the files.
	safe := &io.LimitedReader{R: &watched{from: unzipped, in: func() int64 { return raw.n }}, N: 2 * maxUnpacked}
	if b.readEntries(safe) {
		b.tarEnd(safe, buffered)
	}
}

// readEntries adds the entries of a tar. It returns false if it does not reach the
// end.
func (b *Bundle) readEntries(from io.Reader) bool {
	in, archive := newIntake(b), tar.NewReader(from)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			b.damaged(err)
			return false
		}
		mode := h.FileInfo().Mode()
		if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir {
			mode = fs.ModeIrregular
		}
		if !in.entry(h.Name, mode, func() (io.ReadCloser, error) { return io.NopCloser(archive), nil }) {
			return false
		}
	}
}

func (b *Bundle) damaged(err error) {
	if errors.Is(err, errBomb) {
		b.report(ruleTooLarge, "", 0, "it grows to more than %d times its size when unpacked", maxRatio)
		return
	}
	b.report(ruleUnreadable, "", 0, "the archive is damaged")
}

// tarEnd reports data after the end of the tar or of its gzip.
func (b *Bundle) tarEnd(unpacked, packed io.Reader) {
	rest := make([]byte, 32<<10)
	for {
		n, err := unpacked.Read(rest)
		if len(bytes.Trim(rest[:n], "\x00")) > 0 {
			b.report(ruleUnreadable, "", 0, "the archive has data after its end")
			return
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			b.damaged(err)
			return
		}
	}
	if n, _ := packed.Read(rest[:1]); n > 0 {
		b.report(ruleUnreadable, "", 0, "the archive has data after its end")
	}
}

func (b *Bundle) readZip(data []byte) {
	archive, err := unzip.NewReader(bytes.NewReader(data), int64(len(data)), maxFiles)
	if errors.Is(err, unzip.ErrTooMany) {
		b.report(ruleTooLarge, "", 0, "%v", err)
		return
	}
	if err != nil {
		b.report(ruleUnreadable, "", 0, "the archive is damaged")
		return
	}
	in := newIntake(b)
	for _, f := range archive.File {
		// Two entries can share their packed bytes, so each has its own ratio.
		open := func() (io.ReadCloser, error) {
			if f.Flags&1 != 0 {
				return nil, zip.ErrAlgorithm
			}
			from, err := f.Open()
			if err != nil {
				return nil, err
			}
			return struct {
				io.Reader
				io.Closer
			}{&watched{from: from, in: func() int64 { return int64(f.CompressedSize64) }}, from}, nil
		}
		if !in.entry(f.Name, f.Mode(), open) {
			return
		}
	}
}

// Pack writes the tree as an archive. Equal trees give equal bytes.
func (t Tree) Pack(w io.Writer) error {
	zipped, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(t.writeEntries(zipped), zipped.Close())
}

func (t Tree) writeEntries(w io.Writer) error {
	archive := tar.NewWriter(w)
	for i := range t {
		f := &t[i]
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Size: int64(len(f.Data)), Mode: 0o644}
		if f.Executable {
			h.Mode = 0o755
		}
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		if _, err := archive.Write(f.Data); err != nil {
			return err
		}
	}
	return archive.Close()
}
