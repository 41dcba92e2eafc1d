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

// Package is a verified package, file or program that can be run.
type Package struct {
	Kind    Kind
	Name    string
	Version string
	// Digest is the sha256 of the archive as published, or of the local file.
	Digest string
	// Tree is the digest of the installed tree, Lockfile the digest of Dependencies.
	// All three are empty for local files and programs.
	Tree         string
	Lockfile     string
	Dependencies []byte
	// Scripts are the packages whose install scripts were allowed to run.
	Scripts []string
	// Platform is the os/arch that the package was installed for.
	Platform string
	// Dir contains the whole package and nothing else. It is the only folder of the
	// store that a sandbox must show.
	Dir string
	// File is the local file or program; empty for a package in the store.
	File string
	// Strays are folders outside the package where Node.js would look for a missing
	// module. A sandbox should hide them.
	Strays []string
	// Env are variables that a bundle sets for its program, and Needs the ones that
	// its user must set.
	Env   map[string]string
	Needs []string

	argv []string
	// args are a bundle's default arguments, and lacks the names of those without a
	// value.
	args, lacks []string
}

// Argv returns the command that runs the package's program with these arguments.
// Without arguments a bundle's default arguments are used.
func (p *Package) Argv(args []string) []string {
	if len(args) == 0 {
		args = p.args
	}
	return slices.Concat(p.argv, args)
}

// Want describes a required package. Empty fields match anything.
type Want struct {
	Digest string
	Tree   string
	// Dependencies is the list to install, from a lock file. Without it the newest
	// versions that fit are installed.
	Dependencies []byte
	// Scripts are the packages whose install scripts may run.
	Scripts []string
}

// Want returns a Want for exactly this package and its dependencies.
func (p *Package) Want() Want {
	return Want{Digest: p.Digest, Tree: p.Tree, Dependencies: p.Dependencies, Scripts: p.Scripts}
}

// record is the header of a listing: the origin of the tree.
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

// maxListing limits the bytes that are read before verification.
const maxListing = 256 << 20

// Open returns the package with that digest after hashing all of it again. A modified
// package returns Tampered, a missing one NotStored.
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

// Size returns a number that grows with the count of a package's files, so that
// packages can be compared. It is 0 for anything outside the store.
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

// candidates are the folders that may contain the package, newest first.
func (s *Store) candidates(want Want) ([]string, error) {
	hex, ok := strings.CutPrefix(want.Digest, digestPrefix)
	if !ok {
		return nil, &Error{Code: NotStored, Detail: "the package has no sha256", Hint: "compute it", Command: lockCommand}
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

// folderName is a package's folder in the store. It contains only the start of the
// tree digest, to keep paths short; all of the digest is verified.
func folderName(digest, tree string) string {
	return strings.TrimPrefix(digest, digestPrefix) + "-" + strings.TrimPrefix(tree, digestPrefix)[:16]
}

// open verifies one package from the outside in: first the listing by its digest, then
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
		return nil, damaged(ref, fileListing, "has different content", nil)
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
		return nil, damaged(ref, fileDependencies, "has different content", err)
	}
	if got, err := hashFile(filepath.Join(dir, fileArchive)); err != nil || got != r.Digest {
		return nil, damaged(ref, fileArchive, "has different content", err)
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

// fits refuses a stored package that is not the one asked for.
func (r *record) fits(ref Ref, want Want) error {
	switch {
	case r.Kind != ref.Kind || r.Name != ref.Name && r.Kind != MCPB && !(r.Kind == PyPI && samePython(r.Name, ref.Name)):
		return &Error{
			Code: DigestMismatch, What: ref.String(), Detail: "the digest belongs to another package, " + r.Name,
			Hint: "compute the digest again", Command: lockCommand,
		}
	case ref.Version != "" && !sameVersion(r.Kind, r.Version, ref.Version):
		return &Error{
			Code: VersionConflict, What: ref.Name, Detail: "the digest belongs to version " + r.Version + ", but version " + ref.Version + " is declared",
			Hint: "compute the digest again", Command: lockCommand,
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
		Detail: "in the package store, " + file + " " + how + " (changed since it was hashed)",
		Hint:   "find out who changed it, then fetch it again", Command: lockCommand,
	}
}

// noMore refuses extra entries beside the parts of a package. Node.js would find
// modules there although no listing contains them.
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

// strays returns the node_modules folders above the store.
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

// readBounded reads a regular file of at most most bytes.
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
