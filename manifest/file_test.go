package manifest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/manifest/doc"
)

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	for _, size := range []int{0, 1, 4096, 1 << 20, doc.MaxBytes, doc.MaxBytes + 1, doc.MaxBytes + 100} {
		path := filepath.Join(dir, "file")
		want := bytes.Repeat([]byte("x"), size)
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := readFile(path)
		// readFile reads at most one byte more than the limit.
		if want = want[:min(size, doc.MaxBytes+1)]; err != nil || !bytes.Equal(got, want) {
			t.Errorf("a file of %d bytes: got %d bytes (error %v), want %d bytes", size, len(got), err, len(want))
		}
	}
	if _, err := readFile(dir); err == nil || !strings.Contains(err.Error(), "is a folder") {
		t.Errorf("reading a folder: got error %v, want \"is a folder\"", err)
	}
	if _, err := readFile(filepath.Join(dir, "absent")); !os.IsNotExist(err) {
		t.Errorf("reading a missing file: got error %v, want fs.ErrNotExist", err)
	}
}
