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

// A fuzzer first makes every find as small as it can be, in time that grows with
// the square of its size, and one changed byte in a gzip is a wrong checksum. So
// a whole tar is a poor thing to begin with: what is decided about its entries has
// a target of its own.

func hostile() []entry {
	return []entry{
		{name: "a", body: "x"},
		{name: "../x", body: "x"},
		{name: "l", kind: tar.TypeSymlink, link: "/"},
		{name: "a/../../x"},
	}
}

// FuzzEntries is what a tar or a zip may name: a line for each entry, and a byte
// for what it is.
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
			if !in.entry(name, mode, func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(name)), nil }) {
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

// sound checks for a tree within its bounds, with names that are plain and in order,
// that packing does not change.
func sound(t *testing.T, b *Bundle) {
	if b.Tree.Size() > maxUnpacked || len(b.Tree) > maxFiles || len(b.Problems) > maxProblems+1 {
		t.Fatalf("%d files of %d bytes, %d problems", len(b.Tree), b.Tree.Size(), len(b.Problems))
	}
	for i := range b.Tree {
		if !plain(b.Tree[i].Path) || !filepath.IsLocal(filepath.FromSlash(b.Tree[i].Path)) || i > 0 && b.Tree[i-1].Path >= b.Tree[i].Path {
			t.Fatalf("%q", b.Tree[i].Path)
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
		t.Fatalf("packing changed it: %v", again.Problems)
	}
}
