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

// wheelOf returns a wheel with the given files, as a seed for fuzzing.
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

// FuzzWheel unpacks any wheel. This must write only regular files below the tree, and no more bytes
// than allowed.
func FuzzWheel(f *testing.F) {
	f.Add(wheelOf(f, member{name: "x/__init__.py", text: "1"}, member{name: "x-1.0.dist-info/entry_points.txt", text: "[console_scripts]\nx = x:main\n"}))
	f.Add(wheelOf(f, member{name: "../evil", text: "1"}))
	f.Add(wheelOf(f, member{name: "/etc/evil", text: "1"}, member{name: `..\evil`, text: "1"}))
	f.Add(wheelOf(f, member{name: "link", text: "/etc/passwd", mode: fs.ModeSymlink | 0o777}))
	f.Add(wheelOf(f, member{name: "x-1.0.data/scripts/../../evil", text: "1"}, member{name: "x-1.0.data/data/../../../evil", text: "1"}))
	f.Add(wheelOf(f, member{name: "a", text: "1"}, member{name: "a/b", text: "1"}, member{name: "a", text: "2"}))
	f.Add(wheelOf(f, member{name: "bomb", text: strings.Repeat("\x00", 1<<20)}))
	f.Add([]byte("PK\x05\x06"))
	const limit = 1 << 16
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
		left := int64(limit)
		_ = unpack(root, wheel, &left) // if unpack fails, it can leave some of the files behind
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 2 {
			t.Errorf("the folder contains %v, want only the wheel and the tree; %v", entries, err)
		}
		total := int64(0)
		err = filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err != nil || !info.Mode().IsRegular() {
				t.Errorf("%s is not a regular file: %v", path, err)
				return nil
			}
			total += info.Size()
			return nil
		})
		if err != nil || total > limit {
			t.Errorf("unpack wrote %d bytes, want at most %d: %v", total, limit, err)
		}
	})
}

var importable = regexp.MustCompile(`^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$`)

// FuzzEntryPoints checks that, for any metadata, every entry point is a module and a name in the
// module.
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
		os.Remove(filepath.Join(info, "entry_points.txt")) // overwriting the file instead could wait for the disk
		if err := os.WriteFile(filepath.Join(info, "entry_points.txt"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		points, err := entryPoints(tree, "x")
		if err != nil {
			return
		}
		for name, at := range points {
			if !importable.MatchString(at) || strings.ContainsAny(name, "=\n[]") || name == "" {
				t.Errorf("the program %q has the invalid entry point %q", name, at)
			}
		}
		if len(points) > 0 && !bytes.Contains(text, []byte("[console_scripts]")) {
			t.Errorf("got the programs %v, although the metadata has no section [console_scripts]", points)
		}
	})
}

// FuzzRequirements checks that each line of a requirements file contains one name, one version and one
// hash, and nothing else.
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
				t.Errorf("the requirements file has the invalid line %q", l)
			}
		}
		if !slices.IsSorted(lines) {
			t.Errorf("the lines are not sorted: %q", lines)
		}
	})
}

// FuzzNpmLock checks that every dependency in npm's lock file has a hash and comes from the registry.
// It also checks that writing and reading a list of dependencies does not change the list.
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
			t.Fatalf("npmLockfile refuses the result of npmDependencies: %v\n%s", err, list)
		}
		for key, d := range lock.Packages {
			self := key == "node_modules/x"
			switch {
			case key == "":
			case !strings.HasPrefix(key, "node_modules/") || slices.Contains(strings.Split(key, "/"), ".."):
				t.Errorf("a dependency would be installed at %q", key)
			case d.Resolved != "" && !self || self && d.Resolved != "file:"+npmArchive:
				t.Errorf("the dependency %q comes from %q", key, d.Resolved)
			case !strings.HasPrefix(d.Integrity, "sha512-") && !d.InBundle:
				t.Errorf("the dependency %q has no hash", key)
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
			t.Errorf("the list changed: %v\ngot  %s\nwant %s", err, again, list)
		}
	})
}
