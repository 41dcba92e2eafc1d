package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// From Unicode's table, what looks like letters and digits and does not come apart
// into them by itself is kept; the rest is not.
func TestConfusables(t *testing.T) {
	source := strings.Join([]string{
		"# a comment",
		"",
		"0430 ;	0061 ;	MA	# а → a, of another alphabet",
		"2C9F ;	006F ;	MA	# ⲟ → o",
		"0499 ;	0064 0301 ;	MA	# an accent is left out",
		"01C0 ;	006C ;	MA	# ǀ → l",
		"0406 ;	0049 ;	MA	# І → I, which looks like l",
		"FF41 ;	0061 ;	MA	# ａ comes apart into a",
		"0061 ;	0430 ;	MA	# from ASCII",
		"05D0 ;	2135 ;	MA	# to no letter",
		"0041 0042 ;	0061 ;	MA	# of two",
		"not a line",
	}, "\n")
	t.Setenv("CONFUSABLES", zipped(t, source))
	got, err := confusables()
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(string(got), "\n")
	if want := "1c0 l\n2c9f o\n406 l\n430 a\n499 d\n"; rows != want {
		t.Errorf("the table is %q, not %q", rows, want)
	}

	for name, file := range map[string]string{
		"no file":     filepath.Join(t.TempDir(), "none"),
		"not packed":  plain(t, source),
		"no numbers":  zipped(t, "0430 ;	letter ;	MA\n"),
		"other bytes": zipped(t, "0430 ;	0061 \xff ;	MA\n"),
	} {
		t.Setenv("CONFUSABLES", file)
		if got, err := confusables(); err == nil {
			t.Errorf("%s: the table is %q", name, got)
		}
	}
}

// All tables that have a source here are written, as they are in the tree, and
// unpack to the same; others stay.
func TestWritten(t *testing.T) {
	tree, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("CONFUSABLES", "")
	t.Chdir(t.TempDir())
	if err := run(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("where there is no folder: %v", err)
	}
	for file := range tables {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(); err != nil {
		t.Fatal(err)
	}
	for file := range tables {
		if strings.Contains(file, "confusables") {
			if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is written of nothing: %v", file, err)
			}
			continue
		}
		if !bytes.Equal(unzipped(t, file), unzipped(t, filepath.Join(tree, file))) {
			t.Errorf("%s is another than in the tree", file)
		}
	}
	t.Setenv("CONFUSABLES", "none")
	if err := run(); err == nil || !strings.Contains(err.Error(), "view/confusables.txt.gz: ") {
		t.Errorf("of a source that is not there: %v", err)
	}
}

func plain(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func zipped(t *testing.T, text string) string {
	t.Helper()
	b, err := pack([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return plain(t, string(b))
}

func unzipped(t *testing.T, file string) []byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(z); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
