package bundle

import (
	"archive/tar"
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

// intake adds files to a bundle and enforces the limits on the number and the size of the files.
type intake struct {
	of    *Bundle
	names unzip.Names
	left  int64
	files int
}

func newIntake(b *Bundle) *intake {
	return &intake{of: b, names: unzip.Names{}, left: maxUnpacked}
}

// add adds a file to the bundle. It calls open() to get the content of the file. It skips folders and hidden files, and
// reports any other kind of entry as a problem. It returns false if the caller must stop adding files.
func (in *intake) add(name string, mode fs.FileMode, open func() (io.ReadCloser, error)) bool {
	b := in.of
	switch in.files++; {
	case len(b.Problems) >= maxProblems:
		b.report(ruleTooLarge, "", 0, "the bundle has too many problems; the remaining files were not checked")
		return false
	case in.files > maxFiles:
		b.report(ruleTooLarge, "", 0, "the bundle contains more than %d files", maxFiles)
		return false
	}
	short := strings.TrimSuffix(strings.TrimPrefix(name, "./"), "/")
	switch {
	case name == "./":
	case !isPortable(short):
		b.report(rulePath, name, 0, "%s is not a plain relative path in the bundle", diag.Quote(name))
	case !mode.IsRegular() && !mode.IsDir():
		b.report(ruleLink, short, 0, "%s is a link or a device", diag.Quote(short))
	case isHidden(short):
		b.LeftOut = append(b.LeftOut, short)
	case mode.IsDir(): // folders are not added, because the paths of the files contain the folder names
	case !in.names.Claim(short):
		b.report(ruleTwice, short, 0, "%s appears twice, or is both a file and a folder", diag.Quote(short))
	default:
		from, err := open()
		if err != nil {
			b.report(ruleUnreadable, short, 0, "%s cannot be read: %v", diag.Quote(short), err)
			return true
		}
		defer from.Close()
		return in.take(short, mode&0o111 != 0, from)
	}
	return true
}

// take reads the content of a file and adds the file to the bundle. It returns false if the caller must stop adding
// files.
func (in *intake) take(name string, executable bool, from io.Reader) bool {
	b, most := in.of, min(in.left, maxFile)
	data, err := io.ReadAll(io.LimitReader(from, most+1))
	in.left -= min(int64(len(data)), most)
	switch {
	case int64(len(data)) > most && most < maxFile:
		b.report(ruleTooLarge, "", 0, "the files are larger than %d MiB in total", maxUnpacked>>20)
		return false
	case int64(len(data)) > most:
		b.report(ruleTooLarge, name, 0, "%s is larger than %d MiB", diag.Quote(name), maxFile>>20)
		return in.left > 0
	case err != nil:
		b.report(ruleUnreadable, name, 0, "%s cannot be read: the file is damaged", diag.Quote(name))
		return true
	}
	b.Tree = b.Tree.put(File{Path: name, Executable: executable, Data: data})
	return true
}

// isPortable reports whether name is a relative path that refers to the same file on every operating system.
func isPortable(name string) bool {
	if len(name) > 1024 || !utf8.ValidString(name) || !fs.ValidPath(name) || name == "." ||
		strings.ContainsAny(name, `\:*?"<>|`) {
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

// isHidden reports whether any part of a path begins with a dot.
func isHidden(name string) bool {
	return strings.HasPrefix(name, ".") || strings.Contains(name, "/.")
}

func (b *Bundle) readTar(data []byte) {
	packed := bytes.NewReader(data) // gzip does not read ahead, so any data after the archive stays in this reader
	unzipped, err := gzip.NewReader(packed)
	if err != nil {
		b.report(ruleUnreadable, "", 0, "the archive is damaged")
		return
	}
	unzipped.Multistream(false)
	// The limit covers the whole archive, including the bytes between the files.
	safe := &io.LimitedReader{R: unzipped, N: min(2*maxUnpacked, max(ratioFrom, maxRatio*int64(len(data))))}
	if b.readEntries(safe) {
		// The limit is enough, because tar programs add less than 1 MiB of padding.
		rest, err := io.ReadAll(io.LimitReader(safe, 1<<20))
		if err != nil || packed.Len() > 0 || len(bytes.Trim(rest, "\x00")) > 0 {
			b.report(ruleUnreadable, "", 0, "the archive is damaged, or contains data after the end of the archive")
		}
	}
	if safe.N == 0 {
		b.report(ruleTooLarge, "", 0, "the archive becomes more than %d times larger when unpacked", maxRatio)
	}
}

// readEntries adds the entries of a tar archive. It returns false if it stops before the end of the archive.
func (b *Bundle) readEntries(from io.Reader) bool {
	in, archive := newIntake(b), tar.NewReader(from)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			b.report(ruleUnreadable, "", 0, "the archive is damaged")
			return false
		}
		mode := h.FileInfo().Mode()
		if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir {
			mode = fs.ModeIrregular
		}
		if !in.add(h.Name, mode, func() (io.ReadCloser, error) { return io.NopCloser(archive), nil }) {
			return false
		}
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
		// The ratio is checked for each entry, because several entries can refer to the same compressed bytes.
		if f.UncompressedSize64 > ratioFrom && f.UncompressedSize64/maxRatio > f.CompressedSize64 {
			b.report(ruleTooLarge, "", 0, "%s becomes more than %d times larger when unpacked", diag.Quote(f.Name), maxRatio)
			return
		}
		open := func() (io.ReadCloser, error) {
			if f.Flags&1 != 0 {
				return nil, errors.New("the file is encrypted")
			}
			return f.Open()
		}
		if !in.add(f.Name, f.Mode(), open) {
			return
		}
	}
}

// Pack writes the tree to w as a gzipped tar archive. Equal trees produce equal archives.
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
