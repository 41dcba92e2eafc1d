package pack

import (
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

// MCPB is the kind of a bundle, which is one archive that contains a server and its dependencies. The digest of a
// bundle is the sha256 of the archive. The name of a bundle is the URL of the archive.
const MCPB Kind = "mcpb"

// These constants limit the size of a bundle in bytes and the number of its files. maxBundleRatio limits how much
// larger an entry can become when it is unpacked. It applies only to entries larger than 1 MiB.
const (
	maxBundle         = 256 << 20
	maxBundleUnpacked = 1 << 30
	maxBundleFiles    = 100_000
	maxBundleRatio    = 250
	bundleManifest    = "manifest.json"
)

// Download is a function that downloads the archive of a bundle and writes the archive to w. The caller of this package
// provides the function, and thus decides which addresses are requested.
type Download func(ctx context.Context, w io.Writer) error

// bundle downloads, checks and unpacks a bundle. It does not read the content of the archive until the hash has been
// verified.
func (f *fetch) bundle(ctx context.Context) error {
	if f.want.Digest == "" {
		return fail(NotStored, f.ref.String(), "the bundle cannot be identified without its sha256", "", nil)
	}
	if len(f.want.Scripts) > 0 {
		return fail(Unsafe, f.ref.String(), "--allow-scripts does not apply: bundles have no install scripts",
			"remove --allow-scripts", nil)
	}
	f.progress("downloading " + f.ref.Name)
	name := f.path("download")
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return storeFailed(f.store.Dir, "the package store is not writable", err)
	}
	to := &bounded{to: out, left: maxBundle}
	err = f.want.Download(ctx, to)
	closed := out.Close()
	switch {
	case to.full:
		return fail(Unsafe, f.ref.String(), fmt.Sprintf("the bundle is larger than %d MiB", maxBundle>>20),
			"do not use this package, and inform its authors", nil)
	case to.err != nil || closed != nil:
		return storeFailed(f.store.Dir, "the package store is not writable", errors.Join(to.err, closed))
	case err != nil:
		return fail(FetchFailed, f.ref.String(), "could not be downloaded",
			"check the network connection, and the address in the server's registry entry", err)
	}
	if err := f.checkArchive(name, f.path(fileArchive)); err != nil {
		return err
	}
	if err := f.unpackBundle(); err != nil {
		return f.addName(err)
	}
	b, err := readBundle(f.path(dirTree), f.ref)
	if err != nil {
		return err
	}
	if err := b.executable(f.path(dirTree)); err != nil {
		return storeFailed(f.store.Dir, "the package store is not writable", err)
	}
	f.record.Kind, f.record.Name, f.record.Version, f.deps = MCPB, f.ref.Name, b.Version, []byte("{}")
	return nil
}

// bounded is a writer with a size limit.
type bounded struct {
	to   io.Writer
	left int64
	full bool
	err  error // the error from the last write
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

func (f *fetch) unpackBundle() error {
	r, err := unzip.OpenReader(f.path(fileArchive), maxBundleFiles)
	if err != nil {
		return unsafePackage(fileArchive, "is not an archive")
	}
	defer r.Close()
	if len(r.File) > maxBundleFiles {
		return unsafePackage(fileArchive, fmt.Sprintf("contains more than %d files", maxBundleFiles))
	}
	root, err := f.makeTree()
	if err != nil {
		return storeFailed(f.store.Dir, "the package store is not writable", err)
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
		if err := extract(root, z, name); err != nil {
			return err
		}
	}
	return nil
}

// plainPath reports whether name is a relative path that refers to the same file on every operating system.
func plainPath(name string) bool {
	return len(name) <= 1024 && utf8.ValidString(name) && fs.ValidPath(name) && name != "." &&
		filepath.IsLocal(filepath.FromSlash(name)) &&
		!strings.ContainsAny(name, `\:`) && !strings.ContainsFunc(name, unicode.IsControl)
}
