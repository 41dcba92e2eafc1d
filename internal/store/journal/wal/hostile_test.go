package wal

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Files lists only regular files with valid names, and sorts file 10 after file 2.
func TestFilesOfAFolder(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"B.0", "A.10", "A.2", "A.x", "A", ".1x", "A.1.2"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "C.0"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "B.0"), filepath.Join(dir, "D.0")); err != nil {
		t.Fatal(err)
	}
	files, err := Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
	}
	if want := []string{"A.2", "A.10", "B.0"}; !slices.Equal(names, want) {
		t.Errorf("got files %v, want %v", names, want)
	}
	if files, err := Files(filepath.Join(dir, "nowhere")); err != nil || files != nil {
		t.Errorf("files of a missing directory: got %v (error %v), want none", files, err)
	}
	if _, err := Files(filepath.Join(dir, "B.0")); err == nil {
		t.Error("Files accepted a file in place of a directory")
	}
}

// Invalid entries and unusable directories are refused, and existing files are not
// overwritten.
func TestRefusedEntries(t *testing.T) {
	dir := t.TempDir()
	b := Open(dir, "OWNER")
	for _, entry := range []string{"", strings.Repeat("x", MaxEntry+1)} {
		if err := b.Write([]byte(entry), 0); err == nil {
			t.Errorf("Write accepted an entry of %d bytes", len(entry))
		}
	}
	if name, size := b.Current(); name != "" || size != 0 {
		t.Errorf("the refused entries created the file %q", name)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}

	taken := filepath.Join(dir, "ANOTHER.0")
	if err := os.WriteFile(taken, []byte("stranger's"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Open(dir, "ANOTHER").Write([]byte("mine"), 0); err == nil {
		t.Error("Write used an existing file")
	}
	if text, err := os.ReadFile(taken); err != nil || string(text) != "stranger's" {
		t.Errorf("the existing file now contains %q (error %v), want its old content", text, err)
	}
	if err := Open(taken, "OWNER").Write([]byte("mine"), 0); err == nil {
		t.Error("Write accepted a file in place of a directory")
	}
}

// Read returns no entries for a position after the end of a truncated file.
func TestReadBehindTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "OWNER.0")
	var p page
	p.add([]byte("one"))
	if err := os.WriteFile(path, p.bytes, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, to := range []int64{ToEnd, 4, 1000} {
		e, _, err := Read(path, 500, to, nil)
		if err != nil || len(e.Bodies) != 0 || e.End != 500 || e.Left != 0 || e.More {
			t.Errorf("reading up to %d: got %+v (error %v), want no entries", to, e, err)
		}
	}
	if _, _, err := Read(filepath.Dir(path), 0, ToEnd, nil); err == nil {
		t.Error("a directory was read as a file")
	}
}
