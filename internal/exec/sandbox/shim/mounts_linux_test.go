//go:build amd64 || arm64

package shim

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// If a folder was replaced after ambit checked it, the shim notices this before the program starts.
func TestCheckMounts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		t.Fatal(err)
	}
	expected := []Mounted{{To: dir, Device: st.Dev, Inode: st.Ino}}
	if err := checkMounts(expected); err != nil {
		t.Fatal(err)
	}
	kept := dir + "-kept" // keep the old folder, so that the new folder cannot get the same inode
	if err := os.Rename(dir, kept); err != nil {
		t.Fatal(err)
	}
	if checkMounts(expected) == nil {
		t.Error("a missing folder was accepted")
	}
	if err := os.Symlink(kept, dir); err != nil {
		t.Fatal(err)
	}
	if checkMounts(expected) == nil {
		t.Error("a link to the folder was accepted")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if checkMounts(expected) == nil {
		t.Error("another folder was accepted")
	}
}
