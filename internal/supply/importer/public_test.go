package importer

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The files in testdata/public resemble configurations that public projects ship. Each file is imported as a manifest
// without the secrets in the file. For each server that is left out, a note gives the reason.
func TestPublicConfigurations(t *testing.T) {
	files, servers := 0, 0
	err := filepath.WalkDir("testdata/public", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		files++
		name := strings.ReplaceAll(strings.TrimPrefix(filepath.ToSlash(path), "testdata/public/"), "/", "-")
		t.Run(name, func(t *testing.T) {
			servers += importPublic(t, path, filepath.Join("testdata", "golden", "public-"+name+".txt"))
		})
		return nil
	})
	if err != nil || files < 20 {
		t.Fatalf("testdata/public has %d files, want at least 20; %v", files, err)
	}
	t.Logf("%d files: %d servers", files, servers)
}

// importPublic compares the result of an import with a golden file, and returns the number of servers.
func importPublic(t *testing.T, path, golden string) (servers int) {
	dir, err := filepath.Abs("testdata/public")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Import(path, ".")
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Servers []json.RawMessage }
	if err := json.Unmarshal(r.Text, &got); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "%s %s: %s\n", n.Kind, n.What, n.Detail)
	}
	text := strings.ReplaceAll(b.String()+"\n"+string(r.Text), filepath.ToSlash(dir), "DIR")
	if strings.Contains(text, canary) {
		t.Errorf("a secret was copied:\n%s", text)
	}
	if *update {
		if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || text != string(want) {
		t.Errorf("got:\n%s\nwant (%s):\n%s%v", text, golden, want, err)
	}
	return len(got.Servers)
}
