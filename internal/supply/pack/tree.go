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

// entry is one line.
type entry struct {
	path string // with slashes, from the root
	mark string // d, f, x, l, or something else that no listing holds
	// detail is the hash of a file, the target of a link.
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

// digestOf is the sha256 of b, as manifests write it.
func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return digestPrefix + hex.EncodeToString(sum[:])
}

const digestPrefix = "sha256:"

// hashFile is the digest of a regular file.
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

// scan reads the tree below root, hashing files on all cores. A file that is
// there but cannot be read has an err; scan itself fails only if root does.
func scan(root string) ([]entry, error) {
	var list []entry
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil && p == root {
			return err
		}
		if p == root {
			return nil
		}
		if err != nil { // a folder that cannot be read: it was listed already
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

// typeMark is the letter of a type of file, before its mode is known. What is
// neither file, folder nor link is never opened.
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

// read fills in what a line says about a file, folder or link.
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

// The modes of what is sealed.
const (
	sealedFile = 0o444
	sealedExec = 0o555
	sealedDir  = 0o555
)

const modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// modeMark is the letter of a sealed file or folder, and its mode for one that
// is not. Windows has no modes to speak of.
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

// listing makes the text of a scanned tree.
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

// seal makes a tree read-only, and refuses what the store does not take: links
// that leave it, and whatever is neither file, folder nor link.
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
		return unsafePackage(rel, "is a link to nothing")
	}
	if within, err := filepath.Rel(root, end); err != nil || !filepath.IsLocal(within) {
		return unsafePackage(rel, "is a link that leaves the package")
	}
	return nil
}

func unsafePackage(file, detail string) error {
	return &Error{Code: Unsafe, What: file, File: file, Detail: detail, Hint: "do not use this package, or tell its authors"}
}

// difference finds the first path at which a tree is not what its listing says,
// and says how. want is the listing's text without its header.
func difference(want []byte, list []entry) (file, how string) {
	i := 0
	for line := range bytes.Lines(want) {
		path, ok := pathOf(line)
		if !ok {
			return "listing", "has a line that is of no form"
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

// pathOf reads the path of a listing's line: what is quoted last.
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
		return "has other content"
	case known:
		return "was " + names[string(was)] + " and is now " + now
	}
	return "has the mode " + mark
}
