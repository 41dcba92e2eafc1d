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

// Store is a package store: a folder that contains packages.
type Store struct {
	// Dir is the path of the folder. Fetch creates the folder if it does not exist.
	Dir string
}

// Progress receives a short description of each step of a fetch.
type Progress func(step string)

const (
	workPrefix = ".fetch-"
	// A work folder that is older than staleWork belongs to a process that was killed.
	staleWork = 24 * time.Hour
)

func (s *Store) platformDir() string {
	return filepath.Join(s.Dir, runtime.GOOS+"-"+runtime.GOARCH)
}

func (s *Store) cacheDir(client string) string { return filepath.Join(s.Dir, "cache", client) }

// Fetch returns the package that ref refers to. It downloads the package unless the store contains an intact package
// that matches want. If ref.Version is empty, Fetch fetches the newest version. If want.Download is nil, Fetch does
// not download bundles. The parameter progress can be nil.
func (s *Store) Fetch(ctx context.Context, ref Ref, want Want, progress Progress) (*Package, error) {
	if progress == nil {
		progress = func(string) {}
	}
	offline := ref.Kind == MCPB && want.Download == nil
	if want.Digest != "" || offline {
		p, err := s.Open(ref, want)
		// A tampered bundle is not replaced. Fetch also runs when a server starts, so replacing the bundle would hide the
		// tampering.
		replace := func() bool { return errors.Is(err, NotStored) || errors.Is(err, Tampered) && ref.Kind != MCPB }
		if offline || !replace() {
			return p, err
		}
		done, failed := takeTurn(ctx, s.Dir+"\n"+want.Digest+"\n"+want.Tree)
		if failed != nil {
			return nil, failed
		}
		defer done()
		if p, err = s.Open(ref, want); !replace() { // someone else has fetched the package in the meantime
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
	case MCPB:
		err = f.bundle(ctx)
	default:
		return nil, fail(Unpinnable, ref.Name, "this is not a package", "use an npm or Python package, or a bundle", nil)
	}
	if err != nil {
		return nil, err
	}
	tree, err := f.finish()
	if err != nil {
		return nil, err
	}
	if want.Dependencies == nil {
		if err := s.markResolved(folderName(f.record.Digest, tree)); err != nil {
			return nil, err
		}
	}
	ref.Version = f.record.Version
	return s.Open(ref, Want{Digest: f.record.Digest, Tree: tree})
}

// FetchOnce returns a package that no digest pins. It fetches the package the first time and returns the same package
// later, even if the registry then offers a different package under the same version.
func (s *Store) FetchOnce(ctx context.Context, ref Ref, progress Progress) (*Package, error) {
	name := strings.TrimPrefix(digestOf([]byte(string(ref.Kind)+" "+ref.String())), digestPrefix)
	file := filepath.Join(s.Dir, "unpinned", filepath.Base(s.platformDir()), name)
	done, err := takeTurn(ctx, file)
	if err != nil {
		return nil, err
	}
	defer done()
	if text, err := readBounded(file, maxListing); err == nil {
		digest, tree, _ := strings.Cut(string(text), " ")
		p, err := s.Open(ref, Want{Digest: digest, Tree: tree})
		if !errors.Is(err, NotStored) {
			return p, err
		}
	}
	p, err := s.Fetch(ctx, ref, Want{}, progress)
	if err != nil {
		return nil, err
	}
	if err = os.MkdirAll(filepath.Dir(file), 0o700); err == nil {
		err = replaceFile(file, []byte(p.Digest+" "+p.Tree))
	}
	if err != nil {
		return nil, storeFailed(file, "could not be written", err)
	}
	return p, nil
}

// ErrUnknownScripts returns the error for a package in --allow-scripts that no server of the agent needs.
func ErrUnknownScripts(name string) error {
	return fail(NotFound, name, "--allow-scripts lists this package, but no server depends on it",
		"correct the name, or remove the package from --allow-scripts", nil)
}

// ErrScripts returns the error for a package that would run install scripts when a server starts. Scripts run without a
// sandbox, and a lock file can come from a stranger. So only ambit lock runs them, when a person asks for it.
func ErrScripts(ref Ref, scripts []string) error {
	return fail(ScriptsNotAllowed, ref.String(), "the lock file lists install scripts of "+strings.Join(scripts, ", "),
		"if you trust these packages, lock again with --allow-scripts "+strings.Join(scripts, ","), nil, lockCommand)
}

// fetch holds the state of fetching one package. Each kind of package has its own method (npm, python or bundle), which
// puts the archive and the tree into the work folder and sets the record and deps fields.
type fetch struct {
	store    *Store
	ref      Ref
	want     Want
	progress Progress
	work     string
	record   record
	deps     []byte
}

// begin creates the work folder in the store. Later, place() renames this folder to its final name.
func (f *fetch) begin() error {
	dir := f.store.platformDir()
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		sweep(dir)
		f.work, err = os.MkdirTemp(dir, workPrefix)
	}
	if err != nil {
		return storeFailed(f.store.Dir, "the package store is not writable", err)
	}
	return nil
}

// sweep removes the work folders of killed processes. Errors are ignored.
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

// checkArchive hashes a downloaded file, compares the hash with the pinned digest, and renames the file to newPath.
func (f *fetch) checkArchive(download, newPath string) error {
	digest, err := hashFile(download)
	if err != nil {
		return storeFailed(download, "the download cannot be read", err)
	}
	f.record.Digest = digest
	if f.want.Digest != "" && digest != f.want.Digest {
		return fail(DigestMismatch, f.ref.String(),
			"the published package has the sha256 "+digest+", but the pinned sha256 is "+f.want.Digest,
			"find out whether the published content has changed, and then lock the package again", nil, updateCommand)
	}
	if err := os.Rename(download, newPath); err != nil {
		return storeFailed(f.store.Dir, "the package store is not writable", err)
	}
	return nil
}

// take moves the archive to the work folder and calls moveTree to move the tree there. Then it removes dir, the
// folder in which the client worked.
func (f *fetch) take(dir, archive string, moveTree func() error) error {
	err := os.Rename(archive, f.path(fileArchive))
	if err == nil {
		err = moveTree()
	}
	if err != nil {
		return storeFailed(f.store.Dir, "the package store is not writable", err)
	}
	if removeAll(dir); exists(dir) {
		return storeFailed(dir, "could not be removed", errors.New("the folder is not empty"))
	}
	return nil
}

// finish makes the tree read-only, writes the listing and moves the package to its place in the store. It returns the
// tree digest.
func (f *fetch) finish() (tree string, err error) {
	f.progress("hashing " + f.record.Name)
	root := f.path(dirTree)
	if err := seal(root); err != nil {
		return "", f.addName(storeFailed(root, "the package could not be made read-only", err))
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
		return "", f.treeMismatch(tree)
	}
	for name, b := range map[string][]byte{fileListing: text, fileDependencies: f.deps} {
		if err := os.WriteFile(f.path(name), b, sealedFile); err != nil {
			return "", storeFailed(name, "could not be written", err)
		}
	}
	if err := os.Chmod(f.path(fileArchive), sealedFile); err != nil {
		return "", storeFailed(fileArchive, "could not be made read-only", err)
	}
	return tree, f.place(tree)
}

// treeMismatch returns the error for an installed tree that differs from the lock file.
func (f *fetch) treeMismatch(tree string) error {
	hint, command := "find out why the registry now serves different dependencies; then lock again", updateCommand
	if len(f.want.Scripts) > 0 {
		hint = "lock the package on this machine, because its install scripts write different files on each machine"
		command = lockCommand
	}
	return fail(DigestMismatch, f.ref.String(),
		"the installed tree has the digest "+tree+", but the digest in the lock file is "+f.want.Tree, hint, nil, command)
}

// addName adds the package's name to an error about one of the package's files.
func (f *fetch) addName(err error) error {
	if e, ok := errors.AsType[*Error](err); ok && e.Code == Unsafe {
		e.Detail, e.What = e.File+" "+e.Detail, f.ref.String()
	}
	return err
}

// place renames the work folder to its final name in the store. If another process has stored the same package in the
// meantime, that package is kept, unless it is damaged.
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
		if _, err := openVerified(to, ref, Want{Digest: f.record.Digest, Tree: tree}); !errors.Is(err, Tampered) {
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

// resolvedMarker returns the path of a marker file for a stored package. The marker exists if the dependencies of the
// package were resolved on this machine. If there is no marker, the dependencies come from a lock file. To open such an
// npm or Python package, the caller must set want.Tree or want.Dependencies, because want.Digest does not cover the
// dependencies.
func (s *Store) resolvedMarker(folder string) string {
	return filepath.Join(s.Dir, "chosen", filepath.Base(s.platformDir()), folder)
}

// markResolved creates the marker file of a stored package.
func (s *Store) markResolved(folder string) error {
	file := s.resolvedMarker(folder)
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

// removeAll removes a folder, even if the folder is read-only. Errors are ignored, because sweep later removes
// anything that remains.
func removeAll(dir string) {
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			return os.Chmod(p, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(dir)
}
