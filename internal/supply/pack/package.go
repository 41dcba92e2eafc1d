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
	"syscall"
)

// Package is a verified package, file or program that can be run.
type Package struct {
	Kind    Kind
	Name    string
	Version string
	// Digest is the sha256 of the archive as published, or of the local file.
	Digest string
	// Tree is the digest of the installed tree, or of the project that contains a local file.
	Tree string
	// Lockfile is the digest of Dependencies.
	Lockfile string
	// Dependencies is the list of dependencies. It is empty for local files and programs.
	Dependencies []byte
	// Scripts lists the packages whose install scripts were allowed to run.
	Scripts []string
	// Platform is the platform (os/arch) for which the package was installed.
	Platform string
	// Dir is the folder in the store that contains the whole package and nothing else. It is the only folder of the store
	// that must be visible in a sandbox.
	Dir string
	// File is the path of the local file or program. It is empty for a package in the store.
	File string
	// Strays lists the folders outside the package where Node.js would look for a missing module. A sandbox should hide
	// these folders.
	Strays []string
	// Env contains the environment variables that a bundle or a project sets for its program.
	Env map[string]string
	// Needs lists the variables that the user must set.
	Needs []string

	argv []string
	// args lists a bundle's default arguments. missingArgs lists the required arguments that have no default value.
	args, missingArgs []string
	// script is set if an interpreter runs the local file.
	script bool
	// interpreter is the path of the interpreter, if the command specifies a path.
	interpreter string
	// outside lists the folders that Tree does not cover, but from which a local script can import code.
	outside []string
}

// Argv returns the command that runs the package's program with the given arguments. If args is empty, a bundle's
// program gets the bundle's default arguments.
func (p *Package) Argv(args []string) []string {
	if len(args) == 0 {
		args = p.args
	}
	return slices.Concat(p.argv, args)
}

// Want describes the package that the caller needs. An empty Digest or Tree matches any package.
type Want struct {
	Digest string
	Tree   string
	// Dependencies is the list of dependencies to install, which comes from a lock file. If Dependencies is nil, Fetch
	// installs the newest versions that the package accepts.
	Dependencies []byte
	// Scripts lists the packages whose install scripts Fetch is allowed to run.
	Scripts []string
	// Download downloads the archive of a bundle. If Download is nil, Fetch does not download bundles.
	Download Download
}

// Want returns a Want that matches exactly this package and its dependencies.
func (p *Package) Want() Want {
	return Want{Digest: p.Digest, Tree: p.Tree, Dependencies: p.Dependencies, Scripts: p.Scripts}
}

// record is the header line of a listing. It describes the package from which the tree was installed.
type record struct {
	Kind     Kind     `json:"kind"`
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	Digest   string   `json:"digest"`
	Lockfile string   `json:"lockfile"`
	Scripts  []string `json:"scripts,omitempty"`
	// Runtime is the version of Python for which the wheels were chosen, such as python3.12.
	Runtime string `json:"runtime,omitempty"`
}

func platform() string { return runtime.GOOS + "/" + runtime.GOARCH }

const (
	fileArchive      = "package"
	fileDependencies = "dependencies.json"
	fileListing      = "listing"
	dirTree          = "tree"
)

// maxListing limits the size of files that are read before they have been verified.
const maxListing = 256 << 20

// Open returns the stored package that ref and want describe. It hashes the whole package again. It fails with
// Tampered if the package was modified, and with NotStored if the package is not in the store.
func (s *Store) Open(ref Ref, want Want) (*Package, error) {
	if ref.Kind != NPM && ref.Kind != PyPI && ref.Kind != MCPB {
		return nil, fail(Unpinnable, ref.Name, "this is not a package",
			"use an npm package, a Python package or a bundle; the package store holds nothing else", nil)
	}
	dirs, err := s.candidates(want)
	if err != nil {
		return nil, err
	}
	var firstErr error
	anyList := want.Tree != "" || want.Dependencies != nil || ref.Kind == MCPB
	for _, dir := range dirs {
		if !anyList && !exists(s.resolvedMarker(filepath.Base(dir))) {
			continue
		}
		p, err := openVerified(dir, ref, want)
		if err == nil {
			return p, nil
		}
		if firstErr == nil || errors.Is(firstErr, NotStored) {
			firstErr = err
		}
	}
	if firstErr == nil || errors.Is(firstErr, NotStored) {
		return nil, fail(NotStored, ref.String(), "the package is not in the store", "fetch the package", nil, lockCommand)
	}
	return nil, firstErr
}

// candidates returns the folders that could contain the package, newest first.
func (s *Store) candidates(want Want) ([]string, error) {
	hex, ok := strings.CutPrefix(want.Digest, digestPrefix)
	if !ok {
		return nil, fail(NotStored, "", "the package is not pinned to a sha256", "pin the package", nil, lockCommand)
	}
	list, err := os.ReadDir(s.platformDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, storeFailed(s.Dir, "the package store cannot be read", err)
	}
	var all []fs.FileInfo
	for _, d := range list {
		if !strings.HasPrefix(d.Name(), hex+"-") || want.Tree != "" && d.Name() != folderName(want.Digest, want.Tree) {
			continue
		}
		if info, err := d.Info(); err == nil && info.IsDir() {
			all = append(all, info)
		}
	}
	slices.SortStableFunc(all, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	dirs := make([]string, len(all))
	for i, info := range all {
		dirs[i] = filepath.Join(s.platformDir(), info.Name())
	}
	return dirs, nil
}

// folderName returns the name of a package's folder in the store. To keep paths short, the name contains only the
// beginning of the tree digest. openVerified checks the whole digest.
func folderName(digest, tree string) string {
	return strings.TrimPrefix(digest, digestPrefix) + "-" + strings.TrimPrefix(tree, digestPrefix)[:16]
}

// openVerified verifies the package in dir and returns it. It first compares the digest of the listing with the
// expected digest. Then it compares all other files with the listing.
func openVerified(dir string, ref Ref, want Want) (*Package, error) {
	if err := checkNoExtra(dir, ref); err != nil {
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
	if err := r.checkMatch(ref, want); err != nil {
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
		p.Name = ref.Name // the same archive can be published at several addresses
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

// checkMatch returns an error if the stored package does not match ref and want.
func (r *record) checkMatch(ref Ref, want Want) error {
	switch {
	case r.Kind != ref.Kind || r.Name != ref.Name && r.Kind != MCPB && !(r.Kind == PyPI && samePython(r.Name, ref.Name)):
		return fail(DigestMismatch, ref.String(), "the pinned digest belongs to a different package, "+r.Name,
			"pin the package again", nil, lockCommand)
	case ref.Version != "" && !sameVersion(r.Kind, r.Version, ref.Version):
		return fail(VersionConflict, ref.Name,
			"the pinned digest belongs to version "+r.Version+", but the manifest declares version "+ref.Version,
			"pin the package again", nil, lockCommand)
	case want.Dependencies != nil && digestOf(want.Dependencies) != r.Lockfile, want.Tree == "" &&
		!slices.Equal(r.Scripts, sorted(want.Scripts)):
		return fail(NotStored, ref.String(), "the store has this package only with different dependencies or scripts", "",
			nil)
	}
	return nil
}

func damaged(ref Ref, file, how string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return storeFailed(file, "cannot be read", err)
	}
	return &Error{
		Code: Tampered, What: ref.String(), File: file, Err: err,
		Detail: "in the package store, " + file + " " + how + " (after the package was hashed)",
		Hint:   "find out who changed the file, then fetch the package again", Command: lockCommand,
	}
}

// checkNoExtra returns an error if the package's folder contains anything besides the archive, the dependencies, the
// listing and the tree. It also returns an error if there is a node_modules folder next to the package's folder or one
// level higher. Node.js would load modules from such a folder, although no listing contains them.
func checkNoExtra(dir string, ref Ref) error {
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

// strays returns the node_modules folders in the folders above dir.
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

// readBounded reads a regular file. It fails if the file is larger than limit bytes.
func readBounded(name string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe must not block
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
	case info.Size() > limit:
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("is too large")}
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// sorted returns a sorted copy of list without duplicates.
func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}
