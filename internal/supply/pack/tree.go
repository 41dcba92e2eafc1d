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

// A listing is the content of a tree as text: a header line, then one line for
// each file, folder and link below the root, in the order of their paths.
//
//	d "node_modules"
//	f <sha256> "node_modules/zod/package.json"
//	x <sha256> "node_modules/zod/cli.js"
//	l "../zod/cli.js" "node_modules/.bin/zod"
//
// f is a file, x one that can be executed. In the store nothing can be written:
// an entry whose mode is not as sealed has its mode for a letter, which is in
// no listing.

// entry is one line of a listing.
type entry struct {
	path string // with slashes, from the root
	mark string // d, f, x, l, or another mark that no listing contains
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

// hashFile returns the digest of a regular file.
func hashFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return "", err
	} else if !info.Mode().IsRegular() {
		return "", &fs.PathError{Op: "read", Path: name, Err: errors.New("is not a regular file")}
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return digestPrefix + hex.EncodeToString(h.Sum(nil)), nil
}

// scan reads the tree below root, hashing files on all cores. Unreadable files have an
// err; scan itself fails only if root is unreadable.
func scan(root string) ([]entry, error) {
	var list []entry
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil && p == root {
			return err
		}
		if p == root {
			return nil
		}
		if err != nil { // an unreadable folder, which is already in the list
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
	return list, nil
}

// typeMark is the mark of a file type, before the mode is known. Devices and pipes are
// never opened.
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

// read fills in the entry's mark and detail.
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

// The modes of sealed files and folders.
const (
	sealedFile = 0o444
	sealedExec = 0o555
	sealedDir  = 0o555
)

const modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// modeMark is the mark of a sealed file or folder, or the mode of one that is not
// sealed. Windows has no such modes.
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

// listing returns the text of a scanned tree.
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

// seal makes a tree read-only. It refuses links that leave the tree, devices and
// pipes.
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
			return unsafePackage(rel, "is neither a file, a folder nor a link")
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
		return unsafePackage(rel, "is a link that leaves the package")
	}
	return nil
}

func unsafePackage(file, detail string) error {
	return &Error{Code: Unsafe, What: file, File: file, Detail: detail, Hint: "do not use this package, or report it to its authors"}
}

// difference finds the first path at which a tree differs from its listing, and
// describes the difference. want is the listing's text without its header.
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
			return path, changed(line[0], list[i].mark)
		}
		i++
	}
	if i < len(list) {
		return list[i].path, "was added"
	}
	return "", ""
}

// pathOf returns the path in a line of a listing: the last quoted string.
func pathOf(line []byte) (string, bool) {
	rest := string(bytes.TrimSuffix(line, []byte("\n")))
	mark, rest, ok := strings.Cut(rest, " ")
	if !ok {
		return "", false
	}
	switch mark {
	case "f", "x":
		_, rest, ok = strings.Cut(rest, " ")
	case "l":
		target, err := strconv.QuotedPrefix(rest)
		ok = err == nil && len(rest) > len(target)
		if ok {
			rest = rest[len(target)+1:]
		}
	}
	if !ok {
		return "", false
	}
	path, err := strconv.Unquote(rest)
	return path, err == nil
}

func changed(was byte, mark string) string {
	names := map[string]string{"d": "a folder", "f": "a file", "x": "an executable file", "l": "a symbolic link"}
	switch now, known := names[mark]; {
	case mark == string(was) && mark == "l":
		return "points elsewhere"
	case mark == string(was):
		return "has different content"
	case known:
		return "was " + names[string(was)] + " and is now " + now
	}
	return "has the mode " + mark
}
