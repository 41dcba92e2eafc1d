package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state/migrations"
)

// FuzzFiles checks that restoring an archive creates files only inside the home.
func FuzzFiles(f *testing.F) {
	is, err := json.Marshal(About{Format: format, Schema: len(migrations.List())})
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range []string{"home/policy.cedar", "home/../../evil", "home/agents/a/findagent.json", "/etc/passwd", `home/keys\..\x`, "home/state.db", "store/calls/0"} {
		f.Add(name, "text", string(is))
	}
	f.Add("home/policy.cedar", "text", "{}")
	// Reuse the writer, because creating it would take most of the time.
	z, err := gzip.NewWriterLevel(io.Discard, gzip.NoCompression)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name, text, what string) {
		var b bytes.Buffer
		z.Reset(&b)
		a := tar.NewWriter(z)
		for _, e := range []struct{ name, text string }{{about, what}, {name, text}} {
			if a.WriteHeader(&tar.Header{Name: e.name, Size: int64(len(e.text)), Mode: 0o777}) != nil {
				return
			}
			if _, err := io.WriteString(a, e.text); err != nil {
				return
			}
		}
		if a.Close() != nil || z.Close() != nil {
			return
		}
		dir := t.TempDir()
		h := home.At(filepath.Join(dir, "home"))
		_, _ = putFiles(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }, h)
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			if !strings.HasPrefix(path, h.Dir()+string(filepath.Separator)) {
				t.Errorf("restoring wrote %s, which is outside the home", path)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// FuzzRow checks that parse accepts only rows whose values match the columns of the table.
func FuzzRow(f *testing.F) {
	tables := migrations.Tables(migrations.List())
	f.Add(uint8(0), `["a",1,"YQ=="]`)
	f.Add(uint8(1), `[null]`)
	f.Add(uint8(2), `[1e400,"%%%",{}]`)
	f.Add(uint8(3), `{`)
	f.Fuzz(func(t *testing.T, n uint8, line string) {
		table := tables[int(n)%len(tables)]
		args, err := parse(table, []byte(line))
		if err != nil {
			return
		}
		if len(args) != len(table.Columns) {
			t.Errorf("parse returned %d values for %d columns", len(args), len(table.Columns))
		}
		for i, a := range args {
			switch a.(type) {
			case int64, string, []byte:
			case nil:
				if !table.Columns[i].Null {
					t.Errorf("parse accepted NULL for the column %s", table.Columns[i].Name)
				}
			default:
				t.Errorf("parse returned the column %s as a %T", table.Columns[i].Name, a)
			}
		}
	})
}
