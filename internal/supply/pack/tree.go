package pack

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// A listing describes the content of a tree. It begins with a header line. One line follows for each file, folder and
// symbolic link below the root, sorted by path.
//
//	d "node_modules"
//	f <sha256> "node_modules/zod/package.json"
//	x <sha256> "node_modules/zod/cli.js"
//	l "../zod/cli.js" "node_modules/.bin/zod"
//
// The first word is the mark: d for a folder, f for a file, x for an executable file, l for a symbolic link. Files
// and folders in the store are read-only. If a file or folder is not read-only, its mark in a scan is its file mode.
// No listing contains such a mark, so the scan differs from the listing.

// entry is one line of a listing.
type entry struct {
	path string // the path relative to the root of the tree, with slashes
	mark string // d, f, x or l; in a scan, it can also be a file mode
	// detail is the hash of a file or the target of a link.
	detail string
	err    error
}

func (e entry) append(b []byte) []byte {
	b = append(b, e.mark...)
	switch e.mark {
	case "f", "x":
		b = append(append(b, ' '), e.detail...)
	case "l":
		b = strconv.AppendQuote(append(b, ' '), e.detail)
	}
	return append(strconv.AppendQuote(append(b, ' '), e.path), '\n')
}

// digestOf returns the sha256 of b in the form that manifests use.
func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return digestPrefix + hex.EncodeToString(sum[:])
}

const digestPrefix = "sha256:"

// hashFile returns the digest of a regular file. If the path is a symbolic link, hashFile follows the link.
func hashFile(name string) (string, error) {
	file, err := filepath.EvalSymlinks(name)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	mode, err := hashInto(h, file, make([]byte, 128<<10))
	if err == nil && !mode.IsRegular() {
		err = &fs.PathError{Op: "read", Path: name, Err: errors.New("is not a regular file")}
	}
	return digestPrefix + hex.EncodeToString(h.Sum(nil)), err
}

// scan returns the entries of the tree below root, sorted by path. It hashes files on all cores. If a file cannot be
// read, scan sets the err field of its entry. It returns an error only if root cannot be read.
func scan(root string) ([]entry, error) {
	var list []entry
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil && p == root {
			return err
		}
		if p == root {
			return nil
		}
		if err != nil { // p is an unreadable folder; its entry is the last in the list
			list[len(list)-1].err = err
			return nil
		}
		list = append(list, entry{path: filepath.ToSlash(p[len(root)+1:]), mark: typeMark(d.Type())})
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	readAll(root, list)
	return list, nil
}

// readAll reads the entries of a tree on all cores.
func readAll(root string, list []entry) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			h, buf := sha256.New(), make([]byte, 128<<10)
			for {
				i := int(next.Add(1)) - 1
				if i >= len(list) {
					return
				}
				list[i].read(root, h, buf)
			}
		})
	}
	wg.Wait()
}

// typeMark returns the preliminary mark of a file, which depends only on the file type. The mark of a device or a pipe
// is its mode, so that entry.read does not open it.
func typeMark(t fs.FileMode) string {
	switch {
	case t.IsDir():
		return "d"
	case t.IsRegular():
		return "f"
	case t&fs.ModeSymlink != 0:
		return "l"
	}
	return t.String()
}

// read sets the final mark and the detail of the entry. The parameters h and buf are scratch space.
func (e *entry) read(root string, h hash.Hash, buf []byte) {
	if e.err != nil {
		return
	}
	name := root + string(filepath.Separator) + filepath.FromSlash(e.path)
	switch e.mark {
	case "d":
		info, err := os.Lstat(name)
		if e.err = err; err == nil {
			e.mark = modeMark(info.Mode())
		}
	case "l":
		target, err := os.Readlink(name)
		e.detail, e.err = filepath.ToSlash(target), err
	case "f":
		mode, err := hashInto(h, name, buf)
		if e.err = err; err == nil {
			e.mark, e.detail = modeMark(mode), hex.EncodeToString(h.Sum(nil))
		}
	}
}

// hashInto resets h, writes the content of a regular file to h, and returns the mode of the file.
func hashInto(h hash.Hash, name string, buf []byte) (fs.FileMode, error) {
	f, err := os.OpenFile(name, openFile, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	h.Reset()
	if info.Mode().IsRegular() {
		_, err = io.CopyBuffer(h, struct{ io.Reader }{f}, buf)
	}
	return info.Mode(), err
}

// Modes of read-only files and folders in the store.
const (
	sealedFile = 0o444
	sealedExec = 0o555
	sealedDir  = 0o555
)

const modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// modeMark returns the mark of a file or folder with the mode m. If m is not one of the modes that seal() sets, the
// mark is m itself. Windows does not have these modes, so on Windows every mode is treated as sealed.
func modeMark(m fs.FileMode) string {
	bits := m & modeBits
	switch {
	case m.IsDir() && (bits == sealedDir || runtime.GOOS == "windows"):
		return "d"
	case !m.IsRegular():
	case bits == sealedFile || runtime.GOOS == "windows":
		return "f"
	case bits == sealedExec:
		return "x"
	}
	return m.String()
}

// listing returns the listing of a scanned tree. It fails if an entry could not be read.
func listing(header []byte, list []entry) ([]byte, error) {
	b := append(append(make([]byte, 0, 160*len(list)), header...), '\n')
	for _, e := range list {
		if e.err != nil {
			return nil, e.err
		}
		b = e.append(b)
	}
	return b, nil
}

// seal makes a tree read-only. It fails if the tree contains a device, a pipe, or a symbolic link that leads out of
// the tree.
func seal(root string) error {
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return err
	}
	var dirs []string
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := filepath.ToSlash(strings.TrimPrefix(p, root+string(filepath.Separator)))
		switch t := d.Type(); {
		case t.IsDir():
			dirs = append(dirs, p)
			return nil
		case t&fs.ModeSymlink != 0:
			return sealLink(real, p, rel)
		case !t.IsRegular():
			return unsafePackage(rel, "is not a file, a folder or a link")
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode()&0o100 != 0 {
			return os.Chmod(p, sealedExec)
		}
		return os.Chmod(p, sealedFile)
	})
	if err != nil {
		return err
	}
	for _, dir := range slices.Backward(dirs) {
		if err := os.Chmod(dir, sealedDir); err != nil {
			return err
		}
	}
	return nil
}

func sealLink(root, p, rel string) error {
	target, err := os.Readlink(p)
	if err != nil {
		return err
	}
	if filepath.IsAbs(target) {
		return unsafePackage(rel, "is a link to an absolute path")
	}
	end, err := filepath.EvalSymlinks(p)
	if err != nil {
		return unsafePackage(rel, "is a broken link")
	}
	if within, err := filepath.Rel(root, end); err != nil || !filepath.IsLocal(within) {
		return unsafePackage(rel, "is a link to a file outside the package")
	}
	return nil
}

func unsafePackage(file, detail string) error {
	return &Error{
		Code: Unsafe, What: file, File: file, Detail: detail, Hint: "do not use this package, and inform its authors",
	}
}

// difference compares a scanned tree with its listing, which is given without its header. The results are the first
// path that differs and a description of the difference. If there is no difference, both results are empty.
func difference(want []byte, list []entry) (file, how string) {
	i := 0
	for line := range bytes.Lines(want) {
		path, ok := pathOf(line)
		if !ok {
			return "listing", "has a malformed line"
		}
		switch {
		case i >= len(list) || list[i].path > path:
			return path, "is missing"
		case list[i].path < path:
			return list[i].path, "was added"
		case list[i].err != nil:
			return path, "cannot be read"
		}
		if got := list[i].append(nil); !bytes.Equal(got, line) {
			return path, describeChange(line[0], list[i].mark)
		}
		i++
	}
	if i < len(list) {
		return list[i].path, "was added"
	}
	return "", ""
}

// pathOf returns the path in a line of a listing. The path is the last quoted string in the line.
func pathOf(line []byte) (string, bool) {
	text, _ := strings.CutSuffix(string(line), "\"\n")
	path, err := strconv.Unquote(text[strings.LastIndex(text, ` "`)+1:] + `"`)
	return path, err == nil
}

// describeChange describes how an entry changed. oldMark is its mark in the listing, and mark is its current mark.
func describeChange(oldMark byte, mark string) string {
	names := map[string]string{"d": "a folder", "f": "a file", "x": "an executable file", "l": "a symbolic link"}
	switch name, known := names[mark]; {
	case mark == string(oldMark) && mark == "l":
		return "is a link with a different target"
	case mark == string(oldMark):
		return "has different content"
	case known:
		return "was " + names[string(oldMark)] + " and is now " + name
	}
	return "has the mode " + mark
}
