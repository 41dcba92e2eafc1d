package pack

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// wheelOf makes an archive for the corpus.
func wheelOf(f *testing.F, members ...member) []byte {
	f.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, m := range members {
		h := &zip.FileHeader{Name: m.name, Method: zip.Deflate}
		h.SetMode(m.mode | 0o600)
		out, err := w.CreateHeader(h)
		if err == nil {
			_, err = out.Write([]byte(m.text))
		}
		if err != nil {
			f.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	return b.Bytes()
}

// FuzzWheel: whatever a wheel holds, unpacking it writes plain files below its
// folder, and no more bytes than it may.
func FuzzWheel(f *testing.F) {
	f.Add(wheelOf(f, member{name: "x/__init__.py", text: "1"}, member{name: "x-1.0.dist-info/entry_points.txt", text: "[console_scripts]\nx = x:main\n"}))
	f.Add(wheelOf(f, member{name: "../evil", text: "1"}))
	f.Add(wheelOf(f, member{name: "/etc/evil", text: "1"}, member{name: `..\evil`, text: "1"}))
	f.Add(wheelOf(f, member{name: "link", text: "/etc/passwd", mode: fs.ModeSymlink | 0o777}))
	f.Add(wheelOf(f, member{name: "x-1.0.data/scripts/../../evil", text: "1"}, member{name: "x-1.0.data/data/../../../evil", text: "1"}))
	f.Add(wheelOf(f, member{name: "a", text: "1"}, member{name: "a/b", text: "1"}, member{name: "a", text: "2"}))
	f.Add(wheelOf(f, member{name: "bomb", text: strings.Repeat("\x00", 1<<20)}))
	f.Add([]byte("PK\x05\x06"))
	const room = 1 << 16
	f.Fuzz(func(t *testing.T, archive []byte) {
		dir := t.TempDir()
		wheel, tree := filepath.Join(dir, "x.whl"), filepath.Join(dir, "tree")
		if err := os.WriteFile(wheel, archive, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(tree, 0o700); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(tree)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		left := int64(room)
		_ = unpack(root, wheel, &left) // half of what is refused may be there, and is thrown away
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 2 {
			t.Errorf("beside the tree there are %v, %v", entries, err)
		}
		total := int64(0)
		err = filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err != nil || !info.Mode().IsRegular() {
				t.Errorf("%s is no plain file: %v", path, err)
				return nil
			}
			total += info.Size()
			return nil
		})
		if err != nil || total > room {
			t.Errorf("%d bytes were written where %d may be: %v", total, room, err)
		}
	})
}

var importable = regexp.MustCompile(`^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$`)

// FuzzEntryPoints: what starts a package is a module and a name in it, whatever
// its metadata says.
func FuzzEntryPoints(f *testing.F) {
	for _, text := range []string{
		"[console_scripts]\nx = x.cli:main\n", "[console_scripts]\nx = x:main [extra]\n", "[gui_scripts]\nx = x:main\n", "x = x:main\n[console_scripts]\n--evil = os:system\n",
		"[console_scripts]\n= :\nx=;import os:y\nx = a:b\x00c\n", "[console_scripts]\nx = x:" + strings.Repeat("a.", 5000) + "b", "\xff\xfe",
	} {
		f.Add([]byte(text))
	}
	tree := f.TempDir()
	info := filepath.Join(tree, "x-1.0.dist-info")
	if err := os.Mkdir(info, 0o700); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		os.Remove(filepath.Join(info, "entry_points.txt")) // to write over a file can wait for the disk
		if err := os.WriteFile(filepath.Join(info, "entry_points.txt"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		points, err := entryPoints(tree, "x")
		if err != nil {
			return
		}
		for name, at := range points {
			if !importable.MatchString(at) || strings.ContainsAny(name, "=\n[]") || name == "" {
				t.Errorf("%q starts %q", name, at)
			}
		}
		if len(points) > 0 && !bytes.Contains(text, []byte("[console_scripts]")) {
			t.Errorf("%v, and it names no programs", points)
		}
	})
}

// FuzzRequirements: each line that pip gets is one name, one version and one
// hash: no option, no address, no second line.
func FuzzRequirements(f *testing.F) {
	digest := "sha256:" + strings.Repeat("ab", 32)
	for _, text := range []string{
		`{"x-1.0-py3-none-any.whl":"` + digest + `"}`, `{"--index-url=http-1-py3-none-any.whl":"` + digest + `"}`, `{"x-1.0\n-r evil-py3-none-any.whl":"` + digest + `"}`,
		`{"x-1.0-py3-none-any.whl":"sha256:x --no-deps"}`, `{"x-1.0-1-py3-none-any.whl":"` + digest + `","X-1.0-py3-none-any.whl":"` + digest + `"}`, `[]`, `null`, `{"":""}`,
	} {
		f.Add([]byte(text))
	}
	line := regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._]*==[A-Za-z0-9.!+_]+ --hash=sha256:[0-9a-f]{64}$`)
	f.Fuzz(func(t *testing.T, list []byte) {
		lines, err := requirements("x", list)
		if err != nil {
			return
		}
		for _, l := range lines {
			if !line.MatchString(l) {
				t.Errorf("pip gets %q", l)
			}
		}
		if !slices.IsSorted(lines) {
			t.Errorf("not in order: %q", lines)
		}
	})
}

// FuzzNpmLock: what npm is told to install is fixed by a hash and comes from the
// registry, and a list that was made is read as what it was.
func FuzzNpmLock(f *testing.F) {
	for _, text := range []string{
		`{"lockfileVersion":3,"packages":{"":{},"node_modules/x":{"version":"1.0.0","resolved":"file:package.tgz","integrity":"sha512-x"},"node_modules/y":{"version":"2.0.0","integrity":"sha512-y"}}}`,
		`{"lockfileVersion":3,"packages":{"node_modules/x":{"version":"1.0.0","integrity":"sha512-x"},"node_modules/y":{"resolved":"https://evil.example/y.tgz","integrity":"sha512-y"}}}`,
		`{"lockfileVersion":3,"packages":{"node_modules/x":{"integrity":"sha512-x"},"node_modules/../../y":{"integrity":"sha512-y"}}}`,
		`{"lockfileVersion":2,"packages":{"node_modules/x":{"inBundle":true,"peerDependenciesMeta":{"a":1},"bin":"x"}}}`,
		`{"lockfileVersion":1}`, `{"lockfileVersion":3,"packages":null}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := npmDependencies("x", text)
		if err != nil {
			return
		}
		lock, err := npmLockfile("x", list)
		if err != nil {
			t.Fatalf("what was made cannot be read: %v\n%s", err, list)
		}
		for key, d := range lock.Packages {
			self := key == "node_modules/x"
			switch {
			case key == "":
			case !strings.HasPrefix(key, "node_modules/") || slices.Contains(strings.Split(key, "/"), ".."):
				t.Errorf("it is put into %q", key)
			case d.Resolved != "" && !self || self && d.Resolved != "file:"+npmArchive:
				t.Errorf("%q comes from %q", key, d.Resolved)
			case !strings.HasPrefix(d.Integrity, "sha512-") && !d.InBundle:
				t.Errorf("%q is fixed by nothing", key)
			}
		}
		delete(lock.Packages, "")
		own := lock.Packages["node_modules/x"]
		own.Resolved = ""
		lock.Packages["node_modules/x"] = own
		again, err := json.Marshal(lock.Packages)
		if err == nil {
			again, err = canonical(again)
		}
		if err != nil || !bytes.Equal(again, list) {
			t.Errorf("it became another list: %v\n%s\n%s", err, list, again)
		}
	})
}
