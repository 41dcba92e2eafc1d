package home

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "list.json")
	is := func(text string, mode fs.FileMode) {
		t.Helper()
		got, err := os.ReadFile(file)
		if err != nil || string(got) != text {
			t.Fatalf("it holds %q, %v", got, err)
		}
		info, err := os.Stat(file)
		if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != mode {
			t.Fatalf("its mode is %v, %v", info.Mode(), err)
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) != 1 {
			t.Fatalf("something is left: %v, %v", left, err)
		}
	}
	if err := Replace(file, 0o600, []byte("one")); err != nil {
		t.Fatal(err)
	}
	is("one", 0o600)
	if err := Replace(file, 0o644, []byte("two")); err != nil {
		t.Fatal(err)
	}
	is("two", 0o644)
	// What fails half-way leaves the file as it was.
	full := errors.New("the disk is full")
	err := ReplaceBy(file, 0o600, func(w io.Writer) error {
		_, err := io.WriteString(w, "three")
		return errors.Join(err, full)
	})
	if !errors.Is(err, full) {
		t.Errorf("it ended with %v", err)
	}
	is("two", 0o644)
	if err := Replace(filepath.Join(dir, "none", "x"), 0o600, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
	// A folder cannot be replaced by a file.
	if err := os.MkdirAll(filepath.Join(dir, "folder", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Replace(filepath.Join(dir, "folder"), 0o600, []byte("x")); err == nil {
		t.Error("a folder was replaced")
	}
}
