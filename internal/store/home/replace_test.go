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
			t.Fatalf("the file contains %q (error %v), want %q", got, err, text)
		}
		info, err := os.Stat(file)
		if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != mode {
			t.Fatalf("the file has mode %v (error %v), want %v", info.Mode(), err, mode)
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) != 1 {
			t.Fatalf("the directory contains %v (error %v), want one file", left, err)
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
	// A failed write leaves the file unchanged.
	full := errors.New("the disk is full")
	err := ReplaceBy(file, 0o600, func(w io.Writer) error {
		_, err := io.WriteString(w, "three")
		return errors.Join(err, full)
	})
	if !errors.Is(err, full) {
		t.Errorf("got error %v, want the error of the write", err)
	}
	is("two", 0o644)
	if err := Replace(filepath.Join(dir, "none", "x"), 0o600, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("writing to a missing directory: got error %v, want fs.ErrNotExist", err)
	}
	// A directory cannot be replaced by a file.
	if err := os.MkdirAll(filepath.Join(dir, "folder", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Replace(filepath.Join(dir, "folder"), 0o600, []byte("x")); err == nil {
		t.Error("Replace replaced a directory")
	}
}
