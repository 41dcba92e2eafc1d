package pack

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Package is something that can be run, and was hashed a moment ago.
type Package struct {
	Kind    Kind
	Name    string
	Version string
	// Digest is the sha256 of the archive as published, or of the local file.
	Digest string
	// Tree is the digest of everything that is installed, Lockfile that of
	// Dependencies. All three are empty for what is not in the store.
	Tree         string
	Lockfile     string
	Dependencies []byte
	// Scripts are the packages whose install scripts were allowed to run.
	Scripts []string
	// Platform is the os/arch it is for.
	Platform string
	// Dir holds the whole package and nothing else: what a sandbox has to show
	// of the store.
	Dir string
	// File is the local file or program; empty for what is in the store.
	File string
	// Strays are folders outside the package in which Node.js would look for a
	// module that the package lacks. A sandbox should hide them.
	Strays []string
	// Env are variables that a bundle sets for its program, and Needs those that
	// only its user can.
	Env   map[string]string
	Needs []string

	argv []string
	// args are a bundle's own arguments, and lacks those of them without a value.
	args, lacks []string
}

// Argv is the command that runs the package's program with these arguments; those
// that a bundle brings are for where there are none.
func (p *Package) Argv(args []string) []string {
	if len(args) == 0 {
		args = p.args
	}
	return slices.Concat(p.argv, args)
}

// Want is what a package must be. Empty fields ask for nothing.
type Want struct {
	Digest string
	Tree   string
	// Dependencies is the list to install, from a lock file. Without one the
	// newest that fit are taken.
	Dependencies []byte
	// Scripts are the packages whose install scripts may run.
	Scripts []string
}

// Want asks for this very package, with what it was installed with.
func (p *Package) Want() Want {
	return Want{Digest: p.Digest, Tree: p.Tree, Dependencies: p.Dependencies, Scripts: p.Scripts}
}

// record is the header of a listing: what the tree was made of.
type record struct {
	Kind     Kind     `json:"kind"`
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	Digest   string   `json:"digest"`
	Lockfile string   `json:"lockfile"`
	Scripts  []string `json:"scripts,omitempty"`
	// Runtime is the Python that the wheels were chosen for.
	Runtime string `json:"runtime,omitempty"`
}

func platform() string { return runtime.GOOS + "/" + runtime.GOARCH }

// The files of a package in the store.
const (
	fileArchive      = "package"
	fileDependencies = "dependencies.json"
	fileListing      = "listing"
	dirTree          = "tree"
)

// maxListing bounds what is read before anything is verified.
const maxListing = 256 << 20

// Open returns the package of that digest, after hashing all of it again. What
// is not what it was is refused as Tampered; what is not there is NotStored.
func (s *Store) Open(ref Ref, want Want) (*Package, error) {
	if ref.Kind != NPM && ref.Kind != PyPI && ref.Kind != MCPB {
		return nil, &Error{Code: Unpinnable, What: ref.Name, Detail: "is not a package", Hint: "the package store holds npm and Python packages and bundles only"}
	}
	dirs, err := s.candidates(want)
	if err != nil {
		return nil, err
	}
	var firstErr error
	anyList := want.Tree != "" || want.Dependencies != nil || ref.Kind == MCPB
	for _, dir := range dirs {
		if !anyList && !exists(s.chosen(filepath.Base(dir))) {
			continue
		}
		p, err := open(dir, ref, want)
		if err == nil {
			return p, nil
		}
		if firstErr == nil || errors.Is(firstErr, NotStored) {
			firstErr = err
		}
	}
	if firstErr == nil || errors.Is(firstErr, NotStored) {
		return nil, &Error{Code: NotStored, What: ref.String(), Detail: "is not in the package store", Hint: "fetch it", Command: lockCommand}
	}
	return nil, firstErr
}

// Size tells how large a package is, to compare it with others: it grows with
// the number of its files. It is 0 for what is not in the store.
func (s *Store) Size(want Want) int64 {
	dirs, err := s.candidates(want)
	if err != nil || len(dirs) == 0 {
		return 0
	}
	info, err := os.Stat(filepath.Join(dirs[0], fileListing))
	if err != nil {
		return 0
	}
	return info.Size()
}

// candidates are the folders that may hold what is wanted, the newest first.
func (s *Store) candidates(want Want) ([]string, error) {
	hex, ok := strings.CutPrefix(want.Digest, digestPrefix)
	if !ok {
		return nil, &Error{Code: NotStored, Detail: "a package is opened by its sha256, and there is none", Hint: "compute it", Command: lockCommand}
	}
	list, err := os.ReadDir(s.platformDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, storeFailed(s.Dir, "the package store cannot be read", err)
	}
	type found struct {
		dir  string
		time int64
	}
	var all []found
	for _, d := range list {
		if !strings.HasPrefix(d.Name(), hex+"-") || want.Tree != "" && d.Name() != folderName(want.Digest, want.Tree) {
			continue
		}
		if info, err := d.Info(); err == nil && info.IsDir() {
			all = append(all, found{filepath.Join(s.platformDir(), d.Name()), info.ModTime().UnixNano()})
		}
	}
	slices.SortStableFunc(all, func(a, b found) int { return int(min(max(b.time-a.time, -1), 1)) })
	dirs := make([]string, len(all))
	for i, f := range all {
		dirs[i] = f.dir
	}
	return dirs, nil
}

// folderName is that of a package in the store. The start of the tree digest
// keeps paths short; the whole of it is verified.
func folderName(digest, tree string) string {
	return strings.TrimPrefix(digest, digestPrefix) + "-" + strings.TrimPrefix(tree, digestPrefix)[:16]
}

// open verifies one package, from the outside in: the listing by its digest,
// everything else by the listing.
func open(dir string, ref Ref, want Want) (*Package, error) {
	if err := noMore(dir, ref); err != nil {
		return nil, err
	}
	text, err := readBounded(filepath.Join(dir, fileListing), maxListing)
	if err != nil {
		return nil, damaged(ref, fileListing, "cannot be read", err)
	}
	tree := digestOf(text)
	if want.Tree != "" && tree != want.Tree || filepath.Base(dir) != folderName(want.Digest, tree) {
		return nil, damaged(ref, fileListing, "has other content", nil)
	}
	head, lines, _ := bytes.Cut(text, []byte("\n"))
	var r record
	if err := json.Unmarshal(head, &r); err != nil {
		return nil, damaged(ref, fileListing, "has no header", err)
	}
	if err := r.fits(ref, want); err != nil {
		return nil, err
	}
	deps, err := readBounded(filepath.Join(dir, fileDependencies), maxListing)
	if err != nil || digestOf(deps) != r.Lockfile {
		return nil, damaged(ref, fileDependencies, "has other content", err)
	}
	if got, err := hashFile(filepath.Join(dir, fileArchive)); err != nil || got != r.Digest {
		return nil, damaged(ref, fileArchive, "has other content", err)
	}
	list, err := scan(filepath.Join(dir, dirTree))
	if err != nil {
		return nil, damaged(ref, dirTree, "cannot be read", err)
	}
	if file, how := difference(lines, list); file != "" {
		return nil, damaged(ref, dirTree+"/"+file, how, nil)
	}
	p := &Package{
		Kind: r.Kind, Name: r.Name, Version: r.Version, Digest: r.Digest, Tree: tree, Lockfile: r.Lockfile,
		Dependencies: deps, Scripts: r.Scripts, Platform: platform(), Dir: dir,
	}
	switch root := filepath.Join(dir, dirTree); r.Kind {
	case PyPI:
		p.argv, err = pythonProgram(root, ref, r.Runtime)
	case MCPB:
		var b *bundle
		p.Name = ref.Name // the same bytes may be published at several addresses
		if b, err = readBundle(root, ref); err == nil {
			err = b.program(p, root, ref)
		}
	default:
		p.Strays = strays(dir)
		p.argv, err = nodeProgram(root, ref)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// fits holds a package in the store to what was asked for.
func (r *record) fits(ref Ref, want Want) error {
	switch {
	case r.Kind != ref.Kind || r.Name != ref.Name && r.Kind != MCPB && !(r.Kind == PyPI && samePython(r.Name, ref.Name)):
		return &Error{
			Code: DigestMismatch, What: ref.String(), Detail: "the digest is that of another package, " + r.Name,
			Hint: "compute the digest anew", Command: lockCommand,
		}
	case ref.Version != "" && !sameVersion(r.Kind, r.Version, ref.Version):
		return &Error{
			Code: VersionConflict, What: ref.Name, Detail: "the digest is that of version " + r.Version + ", and the version is declared as " + ref.Version,
			Hint: "compute the digest anew", Command: lockCommand,
		}
	case want.Dependencies != nil && digestOf(want.Dependencies) != r.Lockfile, want.Tree == "" && !slices.Equal(r.Scripts, sorted(want.Scripts)):
		return &Error{Code: NotStored, What: ref.String(), Detail: "is in the store with other dependencies"}
	}
	return nil
}

func damaged(ref Ref, file, how string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return storeFailed(file, "cannot be read", err)
	}
	return &Error{
		Code: Tampered, What: ref.String(), File: file, Err: err,
		Detail: "in the package store, " + file + " " + how + "; it is not what was hashed",
		Hint:   "find out who changed it, then fetch it again", Command: lockCommand,
	}
}

// noMore refuses what stands beside the parts of a package, where Node.js would
// find it although no listing names it: within the store nothing but a package
// has modules.
func noMore(dir string, ref Ref) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return storeFailed(dir, "the package store cannot be read", err)
	}
	for _, d := range list {
		if !slices.Contains([]string{fileArchive, fileDependencies, fileListing, dirTree}, d.Name()) {
			return damaged(ref, d.Name(), "was added", nil)
		}
	}
	for _, up := range []string{"..", filepath.Join("..", "..")} {
		if name := filepath.Join(up, "node_modules"); exists(filepath.Join(dir, name)) {
			return damaged(ref, filepath.ToSlash(name), "was added", nil)
		}
	}
	return nil
}

// strays are the node_modules folders above the store that a package is in.
func strays(dir string) []string {
	var found []string
	for {
		up := filepath.Dir(dir)
		if up == dir {
			return found
		}
		if dir = up; filepath.Base(dir) != "node_modules" && exists(filepath.Join(dir, "node_modules")) {
			found = append(found, filepath.Join(dir, "node_modules"))
		}
	}
}

// readBounded reads a regular file that is not larger than most.
func readBounded(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("is not a regular file")}
	case info.Size() > most:
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("is too large")}
	}
	return io.ReadAll(io.LimitReader(f, most))
}

func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}
