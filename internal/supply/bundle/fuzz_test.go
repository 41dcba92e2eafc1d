package bundle

import (
	"archive/tar"
	"bytes"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// A gzipped tar is a poor fuzzing input. Minimizing takes time quadratic in the size of the input.
// Changing one byte only breaks the gzip checksum. So FuzzEntries tests the handling of the entries
// without an archive.

func hostile() []entry {
	return []entry{
		{name: "a", body: "x"},
		{name: "../x", body: "x"},
		{name: "l", kind: tar.TypeSymlink, link: "/"},
		{name: "a/../../x"},
	}
}

// FuzzEntries adds entries as if they came from a tar or a zip. Each line of the parameter names is
// the name of an entry. The byte at the same index in kinds is the entry's type.
func FuzzEntries(f *testing.F) {
	f.Add("d/a\n../x\nl\na/../../x", []byte("-x>-"))
	f.Add("a\nA\na/b\n./a\nb/\n.x", []byte("----d-"))
	f.Fuzz(func(t *testing.T, names string, kinds []byte) {
		b := &Bundle{Path: "fuzz"}
		in := newIntake(b)
		for i, name := range strings.Split(names, "\n") {
			mode := fs.FileMode(0o644)
			switch {
			case i >= len(kinds):
			case kinds[i] == 'x':
				mode = 0o755
			case kinds[i] == 'd':
				mode = fs.ModeDir | 0o755
			case kinds[i] == '>':
				mode = fs.ModeSymlink
			case kinds[i] == '?':
				mode = fs.ModeIrregular
			}
			if !in.add(name, mode, func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(name)), nil }) {
				break
			}
		}
		sound(t, b)
	})
}

func FuzzZip(f *testing.F) {
	f.Add(zipOf(f, []entry{{name: "d/a", body: "x", mode: 0o111}}))
	f.Add(zipOf(f, hostile()))
	f.Fuzz(func(t *testing.T, data []byte) {
		b := &Bundle{Path: "fuzz"}
		b.readZip(data)
		sound(t, b)
	})
}

func FuzzOpen(f *testing.F) {
	f.Add(tarOf(f, hostile()))
	f.Add(zipOf(f, hostile()))
	f.Fuzz(func(t *testing.T, data []byte) {
		b := &Bundle{Path: "fuzz"}
		b.readArchive(data)
		sound(t, b)
	})
}

// sound checks that the tree is within its limits and that its paths are plain and sorted. It also
// checks that packing and reading the tree does not change the tree.
func sound(t *testing.T, b *Bundle) {
	if b.Tree.Size() > maxUnpacked || len(b.Tree) > maxFiles || len(b.Problems) > maxProblems+1 {
		t.Fatalf("the bundle exceeds a limit: %d files, %d bytes, %d problems", len(b.Tree), b.Tree.Size(), len(b.Problems))
	}
	for i := range b.Tree {
		if !isPortable(b.Tree[i].Path) || !filepath.IsLocal(filepath.FromSlash(b.Tree[i].Path)) || i > 0 && b.Tree[i-1].Path >= b.Tree[i].Path {
			t.Fatalf("the path %q is not plain or not in order", b.Tree[i].Path)
		}
	}
	if len(b.Tree) == 0 {
		return
	}
	var packed bytes.Buffer
	if err := b.Tree.writeEntries(&packed); err != nil {
		t.Fatal(err)
	}
	again := &Bundle{Path: "again"}
	if !again.readEntries(&packed) || again.Errors() > 0 || again.Tree.Digest() != b.Tree.Digest() {
		t.Fatalf("packing changed the tree: %v", again.Problems)
	}
}
