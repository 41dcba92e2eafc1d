// Package bundle reads, builds, checks and writes code bundles: the code of an agent
// with its manifest, findagent.json, at the top.
//
// A bundle is a folder, or an archive (a gzipped tar, or a zip) of one. Both are read
// into the same [Tree] of plain files, so they share one check and one digest: a folder
// without TypeScript has the digest of its archive. The digest covers names, contents and
// the executable bit, not the archive's bytes, so packing again does not change it.
//
// The code that runs is the code that was checked. A tree is held in memory after it is
// read, and [Tree.Write] writes exactly that tree for the sandbox.
//
// Design decisions:
//
//   - Nothing in an archive is trusted. Sizes are counted while unpacking, and an archive
//     that grows too large or too fast is refused. Names must be simple and mean the same
//     file on every system. Only files and folders are allowed.
//   - Names that begin with a dot are not part of a bundle, since keys, histories and
//     caches have such names. They are skipped in folders and in archives.
//   - All problems are reported, not only the first. A bundle with errors does not run;
//     warnings are for the reviewer.
//   - TypeScript is built when a bundle is packed, into a file beside its source,
//     NAME.ts.mjs. The manifest stays as it was written and reviewed.
package bundle

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/manifest"
)

// ManifestName is the file that describes a bundle.
const ManifestName = "findagent.json"

// Limits of a bundle.
const (
	maxArchive  = 64 << 20
	maxUnpacked = 128 << 20
	maxFile     = 32 << 20
	maxFiles    = 10_000
	maxProblems = 1000
	// A higher ratio than maxRatio, beyond the first MiB, is treated as a zip bomb.
	maxRatio  = 200
	ratioFrom = 4 << 20
)

// File is one file of a bundle.
type File struct {
	// Path is relative to the bundle, with slashes.
	Path       string
	Executable bool
	Data       []byte
}

// Tree is the files of a bundle, sorted by path.
type Tree []File

// Find returns the file at a path, or nil.
func (t Tree) Find(path string) *File {
	i, ok := slices.BinarySearchFunc(t, path, func(f File, path string) int { return strings.Compare(f.Path, path) })
	if !ok {
		return nil
	}
	return &t[i]
}

// put adds a file, or replaces the file at that path.
func (t Tree) put(f File) Tree {
	i, ok := slices.BinarySearchFunc(t, f.Path, func(f File, path string) int { return strings.Compare(f.Path, path) })
	if ok {
		t[i] = f
		return t
	}
	return slices.Insert(t, i, f)
}

// Size is the total size of all files.
func (t Tree) Size() (n int64) {
	for i := range t {
		n += int64(len(t[i].Data))
	}
	return n
}

// Digest identifies the tree: equal files give equal digests.
func (t Tree) Digest() string {
	h := sha256.New()
	for i := range t {
		f := &t[i]
		mode := '-'
		if f.Executable {
			mode = 'x'
		}
		fmt.Fprintf(h, "%x %c %q\n", sha256.Sum256(f.Data), mode, f.Path)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// Write copies the tree into an empty folder, readable by every user.
func (t Tree) Write(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for i := range t {
		f := &t[i]
		name := filepath.FromSlash(f.Path)
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		if f.Executable {
			mode = 0o755
		}
		out, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
		if err != nil {
			return err
		}
		_, err = out.Write(f.Data)
		if err := errors.Join(err, out.Chmod(mode), out.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Bundle is a bundle and its problems.
type Bundle struct {
	// Path is where the bundle was read from.
	Path string
	Tree Tree
	// Manifest is nil if it cannot be read. It is valid if no problem is an error.
	Manifest *manifest.Manifest
	// LeftOut are the skipped names that begin with a dot.
	LeftOut  []string
	Problems []Problem

	archived bool
}

// Agent returns the bundle's agent; nil if its manifest is not valid.
func (b *Bundle) Agent() *agent.Agent {
	if b.Manifest == nil || !b.Manifest.Valid() {
		return nil
	}
	return b.Manifest.Agent()
}

// Errors counts the problems that keep the bundle from running.
func (b *Bundle) Errors() (n int) {
	for _, p := range b.Problems {
		if p.Severity == diag.Error {
			n++
		}
	}
	return n
}

// Invalid is the error of a bundle that cannot run.
type Invalid struct{ *Bundle }

func (e *Invalid) Error() string {
	first := Problem{}
	for _, p := range e.Problems {
		if p.Severity == diag.Error {
			first = p
			break
		}
	}
	more := ""
	if n := e.Errors(); n > 1 {
		more = fmt.Sprintf(" (and %d more)", n-1)
	}
	return fmt.Sprintf("%s: %s%s", first.Code, first.Message, more)
}

func (b *Bundle) report(r *diag.Rule, path string, line int, format string, args ...any) {
	if len(b.Problems) > maxProblems {
		return
	}
	b.Problems = append(b.Problems, Problem{r.Code, r.Severity, path, line, fmt.Sprintf(format, args...), r.Fix})
}

// Open reads and checks a bundle. The path is a folder, its manifest, or an archive.
// The error means that the path cannot be read; problems of the bundle itself are in
// its Problems.
func Open(name string) (*Bundle, error) {
	b, err := read(name)
	if err != nil {
		return nil, err
	}
	b.check()
	slices.SortStableFunc(b.Problems, func(a, c Problem) int {
		return cmp.Or(cmp.Compare(a.Severity, c.Severity), strings.Compare(a.Path, c.Path), cmp.Compare(a.Line, c.Line), strings.Compare(a.Code, c.Code))
	})
	return b, nil
}

func read(name string) (*Bundle, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	b := &Bundle{Path: name}
	switch {
	case info.IsDir():
		err = b.readFolder(name)
	case filepath.Base(name) == ManifestName:
		err = b.readFolder(filepath.Dir(name))
	case !info.Mode().IsRegular():
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("it is neither a file nor a folder")}
	case info.Size() > maxArchive:
		b.report(ruleTooLarge, "", 0, "the archive is larger than %d MiB", maxArchive>>20)
	default:
		var data []byte
		if data, err = os.ReadFile(name); err == nil {
			b.readArchive(data)
		}
	}
	return b, err
}

// readFolder adds the files of a folder.
func (b *Bundle) readFolder(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	in := newIntake(b)
	return fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == ".":
			return nil
		case strings.HasPrefix(e.Name(), "."):
			b.LeftOut = append(b.LeftOut, name)
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case e.IsDir():
			return nil
		case !e.Type().IsRegular():
			b.report(ruleLink, name, 0, "%s is a link or another special file", diag.Quote(name))
			return nil
		}
		f, err := root.Open(filepath.FromSlash(name))
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if !in.take(name, info.Mode()&0o111 != 0, f) {
			return fs.SkipAll
		}
		return nil
	})
}

// readArchive adds the files of an archive.
func (b *Bundle) readArchive(data []byte) {
	b.archived = true
	switch {
	case bytes.HasPrefix(data, []byte{0x1f, 0x8b}):
		b.readTar(data)
	case bytes.HasPrefix(data, []byte("PK\x03\x04")):
		b.readZip(data)
	default:
		b.report(ruleUnreadable, "", 0, "it is neither a gzipped tar nor a zip archive")
	}
}
