// Package changed has the go command read other texts in place of files, so that a
// test can break ambit, or what it stands on, while the tree stays as it is.
package changed

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// Files writes the texts, and returns what go's -overlay takes. The names of the
// files are relative to the test's folder, or absolute; new ones may be among them.
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
