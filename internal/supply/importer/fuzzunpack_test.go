package importer

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzUnpack calls unpack with any file names in the archive. unpack must write only regular files
// below its folder, and no hidden files.
func FuzzUnpack(f *testing.F) {
	for _, s := range []string{"server/index.js", "../evil", "/etc/passwd", `a\..\b`, ".env", "a/.env", "a/../../b", "manifest.json", "A", "a/", "con:x", "a\x00b"} {
		f.Add(s, "a", uint32(0o644), []byte("text"))
	}
	f.Add("link", "a", uint32(fs.ModeSymlink|0o777), []byte("/etc/passwd"))
	base := f.TempDir()
	f.Fuzz(func(t *testing.T, one, other string, mode uint32, text []byte) {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		for _, name := range []string{one, other} {
			h := &zip.FileHeader{Name: name}
			h.SetMode(fs.FileMode(mode))
			w, err := z.CreateHeader(h)
			if err != nil {
				return
			}
			if _, err := w.Write(text); err != nil {
				return
			}
		}
		if z.Close() != nil {
			return
		}
		dir, err := os.MkdirTemp(base, "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		file := filepath.Join(dir, "x.mcpb")
		if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		into := filepath.Join(dir, "into")
		_ = unpack(file, into)
		err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || path == file {
				return err
			}
			name, inside := strings.CutPrefix(path, into+string(filepath.Separator))
			if !inside || !d.Type().IsRegular() || hidden(filepath.ToSlash(name)) || name == "manifest.json" {
				t.Errorf("the entries %q and %q were unpacked to %s of type %v", one, other, path, d.Type())
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
