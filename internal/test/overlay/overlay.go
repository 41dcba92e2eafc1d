// Package overlay makes the go command read replacement texts for source files, so that a
// test can break ambit or its dependencies while the working tree stays unchanged.
package overlay

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// Files writes the texts and returns the file to pass to go's -overlay flag. File names are absolute or
// relative to the test's folder, and may name files that do not exist.
func Files(t testing.TB, texts map[string]string) (overlay string) {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	for name, text := range texts {
		absolute, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, strconv.Itoa(len(replace))+".go")
		replace[absolute] = to
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	doc, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, doc, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}
