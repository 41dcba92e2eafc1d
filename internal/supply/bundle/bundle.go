// Package bundle reads, builds, checks and writes code bundles. A code bundle contains the code of an agent and, at
// the top, the manifest findagent.json.
//
// A bundle is a folder or an archive of a folder (a gzipped tar or a zip). Folders and archives are read into the
// same type, [Tree], and are checked in the same way. The digest covers the names, contents and executable bits of
// the files, but not the bytes of the archive. Packing a bundle again does not change its digest. A folder without
// TypeScript has the same digest as its archive.
//
// The code that runs is the code that was checked. A tree stays in memory after it is read. [Tree.Write] writes
// exactly this tree for the sandbox.
//
// Design decisions:
//
//   - Archives are not trusted. Sizes are counted while an archive is unpacked. An archive is refused if it grows too
//     large in total or in relation to its packed size. A path must mean the same file on every operating system.
//     Only files and folders are allowed.
//   - Files and folders whose names begin with a dot are skipped. Keys, histories and caches often have such names.
//   - All problems are reported, not only the first. A bundle with errors does not run. Warnings are meant for the
//     reviewer.
//   - TypeScript is built when a bundle is packed. The built file NAME.ts.mjs is in the same folder as its source.
//     The manifest stays as it was written and reviewed.
package bundle

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/manifest"
)

// ManifestName is the name of the manifest file at the top of a bundle.
const ManifestName = "findagent.json"

// The limits of a bundle. Sizes are in bytes.
const (
	maxArchive  = 64 << 20
	maxUnpacked = 128 << 20
	maxFile     = 32 << 20
	maxFiles    = 10_000
	maxProblems = 1000
	// An archive is rejected as a zip bomb if its unpacked size is larger than ratioFrom bytes and also larger than
	// maxRatio times its packed size.
	maxRatio  = 200
	ratioFrom = 4 << 20
)

// File is one file of a bundle.
type File struct {
	// Path is the slash-separated path of the file, relative to the bundle.
	Path       string
	Executable bool
	Data       []byte
}

// Tree contains the files of a bundle, sorted by path.
type Tree []File

// Find returns the file at path, or nil.
func (t Tree) Find(path string) *File {
	i, ok := slices.BinarySearchFunc(t, path, func(f File, path string) int { return strings.Compare(f.Path, path) })
	if !ok {
		return nil
	}
	return &t[i]
}

// put adds a file, or replaces the file with the same path.
func (t Tree) put(f File) Tree {
	i, ok := slices.BinarySearchFunc(t, f.Path, func(f File, path string) int { return strings.Compare(f.Path, path) })
	if ok {
		t[i] = f
		return t
	}
	return slices.Insert(t, i, f)
}

// Size returns the total size of all files in bytes.
func (t Tree) Size() (n int64) {
	for i := range t {
		n += int64(len(t[i].Data))
	}
	return n
}

// Digest returns a hash of the tree. Equal trees have equal digests.
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

// Write writes the tree to dir, which must be an empty folder. All users of the machine can read the files.
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

// Bundle is a code bundle with the problems that were found in it.
type Bundle struct {
	// Path is the path from which the bundle was read.
	Path string
	Tree Tree
	// Manifest is nil if the manifest cannot be read. It is valid if Problems contains no error.
	Manifest *manifest.Manifest
	// LeftOut lists the files and folders that were skipped because their names begin with a dot.
	LeftOut  []string
	Problems []Problem

	archived bool // whether the bundle was read from an archive
}

// Agent returns the agent of the bundle, or nil if the manifest is not valid.
func (b *Bundle) Agent() *agent.Agent {
	if b.Manifest == nil || !b.Manifest.Valid() {
		return nil
	}
	return b.Manifest.Agent()
}

// Errors returns the number of problems that prevent the bundle from running.
func (b *Bundle) Errors() (n int) {
	for _, p := range b.Problems {
		if p.Severity == diag.Error {
			n++
		}
	}
	return n
}

// Invalid is the error that reports why a bundle cannot run.
type Invalid struct{ *Bundle }

func (e *Invalid) Error() string {
	first := e.Problems[slices.IndexFunc(e.Problems, func(p Problem) bool { return p.Severity == diag.Error })]
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

// Open reads and checks the bundle at a path. The path can be a folder, the manifest in a folder, or an archive. Open
// fails only if the path cannot be read. Problems in the bundle are listed in the field Problems.
func Open(name string) (*Bundle, error) {
	b, err := read(name)
	if err != nil {
		return nil, err
	}
	b.check()
	slices.SortStableFunc(b.Problems, func(a, c Problem) int {
		return cmp.Or(cmp.Compare(a.Severity, c.Severity), strings.Compare(a.Path, c.Path), cmp.Compare(a.Line, c.Line),
			strings.Compare(a.Code, c.Code))
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
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("the path is neither a file nor a folder")}
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
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if !in.add(name, info.Mode(), func() (io.ReadCloser, error) { return root.Open(filepath.FromSlash(name)) }) {
			return fs.SkipAll
		}
		return nil
	})
}

func (b *Bundle) readArchive(data []byte) {
	b.archived = true
	switch {
	case bytes.HasPrefix(data, []byte{0x1f, 0x8b}):
		b.readTar(data)
	case bytes.HasPrefix(data, []byte("PK\x03\x04")):
		b.readZip(data)
	default:
		b.report(ruleUnreadable, "", 0, "the file is neither a gzipped tar archive nor a zip archive")
	}
}
