package pack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Store is a folder of packages.
type Store struct {
	// Dir is created on first use.
	Dir string
}

// Progress receives a short description of each step of a fetch.
type Progress func(step string)

const (
	workPrefix = ".fetch-"
	// Older work folders belong to processes that were killed.
	staleWork = 24 * time.Hour
)

func (s *Store) platformDir() string {
	return filepath.Join(s.Dir, runtime.GOOS+"-"+runtime.GOARCH)
}

func (s *Store) cacheDir(client string) string { return filepath.Join(s.Dir, "cache", client) }

// Fetch makes sure that the store contains the package that ref names, and returns it.
// Without ref.Version it fetches the newest version. If the store contains want.Digest
// intact, nothing is downloaded. progress may be nil.
func (s *Store) Fetch(ctx context.Context, ref Ref, want Want, progress Progress) (*Package, error) {
	if progress == nil {
		progress = func(string) {}
	}
	if want.Digest != "" {
		p, err := s.Open(ref, want)
		if err == nil || !errors.Is(err, NotStored) && !errors.Is(err, Tampered) {
			return p, err
		}
	}
	f := &fetch{ref: ref, want: want, progress: progress, store: s}
	f.want.Scripts = sorted(want.Scripts)
	if err := f.begin(); err != nil {
		return nil, err
	}
	defer removeAll(f.work)
	var err error
	switch ref.Kind {
	case NPM:
		err = f.npm(ctx)
	case PyPI:
		err = f.python(ctx)
	default:
		return nil, &Error{Code: Unpinnable, What: ref.Name, Detail: "is not a package", Hint: "only npm and Python packages can be fetched"}
	}
	if err != nil {
		return nil, err
	}
	tree, err := f.finish()
	if err != nil {
		return nil, err
	}
	if want.Dependencies == nil {
		if err := s.choose(folderName(f.record.Digest, tree)); err != nil {
			return nil, err
		}
	}
	ref.Version = f.record.Version
	return s.Open(ref, Want{Digest: f.record.Digest, Tree: tree})
}

// fetch is one package on its way into the store. The client (npm, pip) leaves the
// archive and the tree in the work folder and fills in the record.
type fetch struct {
	store    *Store
	ref      Ref
	want     Want
	progress Progress
	work     string
	record   record
	deps     []byte
}

// begin creates the work folder, within the store so that it can be renamed into
// place.
func (f *fetch) begin() error {
	dir := f.store.platformDir()
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		sweep(dir)
		f.work, err = os.MkdirTemp(dir, workPrefix)
	}
	if err != nil {
		return storeFailed(f.store.Dir, "the package store cannot be written", err)
	}
	return nil
}

// sweep removes the work folders of killed processes. Failures do not matter.
func sweep(dir string) {
	list, _ := os.ReadDir(dir)
	for _, d := range list {
		if !strings.HasPrefix(d.Name(), workPrefix) {
			continue
		}
		if info, err := d.Info(); err == nil && time.Since(info.ModTime()) > staleWork {
			removeAll(filepath.Join(dir, d.Name()))
		}
	}
}

func (f *fetch) path(elem ...string) string {
	return filepath.Join(append([]string{f.work}, elem...)...)
}

// checkArchive hashes a download, compares the hash with the pinned digest, and
// renames the download to its place for installation.
func (f *fetch) checkArchive(name, to string) error {
	digest, err := hashFile(name)
	if err != nil {
		return storeFailed(name, "the download cannot be read", err)
	}
	f.record.Digest = digest
	if f.want.Digest != "" && digest != f.want.Digest {
		return &Error{
			Code: DigestMismatch, What: f.ref.String(), Detail: "the published package has the sha256 " + digest + ", but " + f.want.Digest + " is pinned",
			Hint: "the version differs, or its published content has changed; find out why, then lock again", Command: updateCommand,
		}
	}
	if err := os.Rename(name, to); err != nil {
		return storeFailed(f.store.Dir, "the package store cannot be written", err)
	}
	return nil
}

// take moves archive and tree out of the client's folder and removes the rest.
func (f *fetch) take(dir, archive string, tree func() error) error {
	err := os.Rename(archive, f.path(fileArchive))
	if err == nil {
		err = tree()
	}
	if err != nil {
		return storeFailed(f.store.Dir, "the package store cannot be written", err)
	}
	if removeAll(dir); exists(dir) {
		return storeFailed(dir, "could not be removed", errors.New("it is not empty"))
	}
	return nil
}

// finish seals the tree, writes the listing and moves the package into place.
func (f *fetch) finish() (tree string, err error) {
	f.progress("hashing " + f.record.Name)
	root := f.path(dirTree)
	if err := seal(root); err != nil {
		return "", f.name(storeFailed(root, "the package could not be sealed", err))
	}
	list, err := scan(root)
	if err != nil {
		return "", storeFailed(root, "the package could not be hashed", err)
	}
	f.record.Lockfile, f.record.Scripts = digestOf(f.deps), f.want.Scripts
	header, err := json.Marshal(f.record)
	if err != nil {
		return "", err
	}
	text, err := listing(header, list)
	if err != nil {
		return "", storeFailed(root, "the package could not be hashed", err)
	}
	tree = digestOf(text)
	if f.want.Tree != "" && tree != f.want.Tree {
		return "", f.otherTree(tree)
	}
	for name, b := range map[string][]byte{fileListing: text, fileDependencies: f.deps} {
		if err := os.WriteFile(f.path(name), b, sealedFile); err != nil {
			return "", storeFailed(name, "could not be written", err)
		}
	}
	if err := os.Chmod(f.path(fileArchive), sealedFile); err != nil {
		return "", storeFailed(fileArchive, "could not be sealed", err)
	}
	return tree, f.place(tree)
}

func (f *fetch) otherTree(tree string) error {
	e := &Error{
		Code: DigestMismatch, What: f.ref.String(), Detail: "the installed tree is " + tree + ", but the lock has " + f.want.Tree,
		Hint: "the registry serves different dependencies than before; find out why before you lock again", Command: updateCommand,
	}
	if len(f.want.Scripts) > 0 {
		e.Hint, e.Command = "its install scripts write different files on each machine; lock it again on this one", lockCommand
	}
	return e
}

// name adds the package to an error about one of its files.
func (f *fetch) name(err error) error {
	var e *Error
	if errors.As(err, &e) && e.Code == Unsafe {
		e.Detail, e.What = e.File+" "+e.Detail, f.ref.String()
	}
	return err
}

// place renames the work folder into the store. If the package already exists, another
// fetch was faster. A damaged package is replaced.
func (f *fetch) place(tree string) error {
	to := filepath.Join(f.store.platformDir(), folderName(f.record.Digest, tree))
	failed := func(err error) error {
		return storeFailed(f.store.Dir, "the package could not be moved into the store", err)
	}
	for range 3 {
		err := os.Rename(f.work, to)
		if err == nil {
			return nil
		}
		if !exists(to) {
			return failed(err)
		}
		ref := f.ref
		ref.Version = f.record.Version
		if _, err := open(to, ref, Want{Digest: f.record.Digest, Tree: tree}); !errors.Is(err, Tampered) {
			return nil
		}
		bad, err := os.MkdirTemp(f.store.platformDir(), workPrefix)
		if err != nil {
			return failed(err)
		}
		err = os.Rename(to, filepath.Join(bad, "damaged"))
		removeAll(bad)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return failed(err)
		}
	}
	return failed(fmt.Errorf("%s cannot be replaced", filepath.Base(to)))
}

// chosen is a marker file: the dependencies of a stored package were resolved on this
// machine. Dependencies from a lock serve only the owner of that lock. A caller with
// only the archive's digest, which is the same, must not get them.
func (s *Store) chosen(folder string) string {
	return filepath.Join(s.Dir, "chosen", filepath.Base(s.platformDir()), folder)
}

func (s *Store) choose(folder string) error {
	file := s.chosen(folder)
	err := os.MkdirAll(filepath.Dir(file), 0o700)
	if err == nil {
		err = os.WriteFile(file, nil, 0o600)
	}
	if err != nil {
		return storeFailed(file, "could not be written", err)
	}
	return nil
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// removeAll removes a folder, even a sealed one. sweep removes the rest later.
func removeAll(dir string) {
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			return os.Chmod(p, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(dir)
}
