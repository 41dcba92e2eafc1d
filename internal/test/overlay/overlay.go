// Package overlay replaces the content of source files for the go command. A test can use it to break ambit or its
// dependencies without changing the working tree.
package overlay

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// Files writes a file for the -overlay flag of the go command and returns its path. The map contains the new content of
// each source file. The keys are paths, either absolute or relative to the test's directory. A source file that does
// not exist is added.
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
