package pack

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/unzip"
)

// MCPB is a bundle: one archive with a server and its dependencies. Its digest is the
// archive's, and its name is the address of the archive.
const MCPB Kind = "mcpb"

// Limits of a bundle. The ratio of unpacked to packed size applies to entries larger
// than 1 MiB.
const (
	maxBundle         = 256 << 20
	maxBundleUnpacked = 1 << 30
	maxBundleFiles    = 100_000
	maxBundleRatio    = 250
	bundleManifest    = "manifest.json"
)

// Download writes the archive of a bundle. The caller decides which addresses it may
// request.
type Download func(ctx context.Context, to io.Writer) error

// FetchBundle makes sure that the store contains a bundle, and returns it. want.Digest
// is required, since it identifies the bundle. Nothing is downloaded if the store has
// the bundle or get is nil.
func (s *Store) FetchBundle(ctx context.Context, ref Ref, want Want, get Download, progress Progress) (*Package, error) {
	p, err := s.Open(ref, want)
	if err == nil || !errors.Is(err, NotStored) || get == nil || want.Digest == "" {
		return p, err
	}
	if progress == nil {
		progress = func(string) {}
	}
	f := &fetch{ref: ref, want: want, progress: progress, store: s}
	if err := f.begin(); err != nil {
		return nil, err
	}
	defer removeAll(f.work)
	if err := f.bundle(ctx, get); err != nil {
		return nil, err
	}
	tree, err := f.finish()
	if err != nil {
		return nil, err
	}
	return s.Open(ref, Want{Digest: f.record.Digest, Tree: tree})
}

// bundle downloads, checks and unpacks. It reads nothing in the archive before the
// hash matches.
func (f *fetch) bundle(ctx context.Context, get Download) error {
	if len(f.want.Scripts) > 0 {
		return &Error{Code: Unsafe, What: f.ref.String(), Detail: "bundles have no install scripts to allow", Hint: "remove --allow-scripts"}
	}
	f.progress("downloading " + f.ref.Name)
	name := f.path("download")
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return storeFailed(f.store.Dir, "the package store cannot be written", err)
	}
	to := &bounded{to: out, left: maxBundle}
	err = get(ctx, to)
	closed := out.Close()
	switch {
	case to.full:
		return &Error{Code: Unsafe, What: f.ref.String(), Detail: fmt.Sprintf("is larger than %d MiB", maxBundle>>20), Hint: "do not use this package, or report it to its authors"}
	case to.err != nil || closed != nil:
		return storeFailed(f.store.Dir, "the package store cannot be written", errors.Join(to.err, closed))
	case err != nil:
		return &Error{Code: FetchFailed, What: f.ref.String(), Detail: "could not be downloaded", Err: err, Hint: "check the connection, and the address in the registry's entry"}
	}
	if err := f.checkArchive(name, f.path(fileArchive)); err != nil {
		return err
	}
	if err := f.unpackBundle(); err != nil {
		return f.name(err)
	}
	b, err := readBundle(f.path(dirTree), f.ref)
	if err != nil {
		return err
	}
	if err := b.executable(f.path(dirTree)); err != nil {
		return storeFailed(f.store.Dir, "the package store cannot be written", err)
	}
	f.record.Kind, f.record.Name, f.record.Version, f.deps = MCPB, f.ref.Name, b.Version, []byte("{}")
	return nil
}

// bounded is a file with a size limit.
type bounded struct {
	to   io.Writer
	left int64
	full bool
	err  error // of the file, not of the download
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		b.full = true
		return 0, errors.New("the download is too large")
	}
	n, err := b.to.Write(p)
	b.err = err
	return n, err
}

// unpackBundle writes the files of the archive to the tree.
func (f *fetch) unpackBundle() error {
	r, err := unzip.OpenReader(f.path(fileArchive), maxBundleFiles)
	if err != nil {
		return unsafePackage(fileArchive, "is not an archive")
	}
	defer r.Close()
	if len(r.File) > maxBundleFiles {
		return unsafePackage(fileArchive, fmt.Sprintf("contains more than %d files", maxBundleFiles))
	}
	if err := os.Mkdir(f.path(dirTree), 0o700); err != nil {
		return storeFailed(f.store.Dir, "the package store cannot be written", err)
	}
	root, err := os.OpenRoot(f.path(dirTree))
	if err != nil {
		return storeFailed(f.store.Dir, "the package store cannot be written", err)
	}
	defer root.Close()
	names, left := unzip.Names{}, uint64(maxBundleUnpacked)
	for _, z := range r.File {
		file := diag.Quote(z.Name)
		name, folder := strings.CutSuffix(strings.TrimPrefix(z.Name, "./"), "/")
		switch {
		case !plainPath(name):
			return unsafePackage(file, "is not a simple relative path")
		case folder:
			continue // folders are created with their files
		case z.Mode().Type() != 0:
			return unsafePackage(file, "is a link or a device")
		case z.Flags&1 != 0:
			return unsafePackage(file, "is encrypted")
		case !names.Claim(name):
			return unsafePackage(file, "appears twice, or is both a file and a folder")
		case z.UncompressedSize64 > left:
			return unsafePackage(fileArchive, fmt.Sprintf("is larger than %d MiB when unpacked", maxBundleUnpacked>>20))
		case z.UncompressedSize64 > 1<<20 && z.UncompressedSize64/maxBundleRatio > z.CompressedSize64:
			return unsafePackage(file, fmt.Sprintf("grows to more than %d times its size when unpacked", maxBundleRatio))
		}
		left -= z.UncompressedSize64
		if err := unpackEntry(root, z, filepath.FromSlash(name)); err != nil {
			return err
		}
	}
	return nil
}

// plainPath reports whether a name means the same file below a folder on every system.
func plainPath(name string) bool {
	return len(name) <= 1024 && utf8.ValidString(name) && fs.ValidPath(name) && name != "." && filepath.IsLocal(filepath.FromSlash(name)) &&
		!strings.ContainsAny(name, `\:`) && !strings.ContainsFunc(name, unicode.IsControl)
}

// unpackEntry writes one file of exactly its declared size.
func unpackEntry(root *os.Root, z *zip.File, name string) error {
	in, err := z.Open()
	if err != nil {
		return unsafePackage(diag.Quote(z.Name), "uses an unknown compression method")
	}
	defer in.Close()
	if dir := filepath.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o700); err != nil {
			return storeFailed(name, "could not be unpacked", err)
		}
	}
	mode := fs.FileMode(0o600)
	if z.Mode()&0o100 != 0 {
		mode = 0o700
	}
	out, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return storeFailed(name, "could not be unpacked", err)
	}
	size := int64(z.UncompressedSize64)
	n, err := io.Copy(out, io.LimitReader(in, size+1)) // the checksum is verified at the end of the entry
	if closed := out.Close(); closed != nil {
		return storeFailed(name, "could not be unpacked", closed)
	}
	if err != nil || n != size {
		return unsafePackage(diag.Quote(z.Name), "is damaged")
	}
	return nil
}
