//go:build unix

package pack

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestHashInto(t *testing.T) {
	const buffer = 64
	for _, size := range []int{0, 1, buffer - 1, buffer, buffer + 1, 10 * buffer, 10*buffer + 7} {
		content := bytes.Repeat([]byte("x"), size)
		name := filepath.Join(t.TempDir(), "file")
		check(t, os.WriteFile(name, content, 0o600))
		h := sha256.New()
		h.Write([]byte("earlier data"))
		mode, err := hashInto(h, name, make([]byte, buffer))
		check(t, err)
		if want := sha256.Sum256(content); !bytes.Equal(h.Sum(nil), want[:]) || mode != 0o600 {
			t.Errorf("a file of %d bytes: got the sha256 %x and the mode %v, want %x and 0600", size, h.Sum(nil), mode, want)
		}
	}
}

// After a folder was listed, a file in it can be replaced with a symbolic link or a pipe. hashInto must
// not follow the link or block on the pipe.
func TestHashIntoFollowsAndWaitsForNothing(t *testing.T) {
	dir := t.TempDir()
	name := func(n string) string { return filepath.Join(dir, n) }
	check(t, os.WriteFile(name("file"), []byte("content"), 0o444))
	check(t, os.Symlink("file", name("link")))
	check(t, syscall.Mkfifo(name("pipe"), 0o444))
	for _, n := range []string{"link", "none"} {
		if mode, err := hashInto(sha256.New(), name(n), make([]byte, 64)); err == nil {
			t.Errorf("hashInto read %s, with the mode %v; want an error", n, mode)
		}
	}
	mode, err := hashInto(sha256.New(), name("pipe"), make([]byte, 64)) // reading the pipe would wait for a writer
	check(t, err)
	if mark := modeMark(mode); mark == "f" || mark == "x" {
		t.Errorf("the pipe is marked as a file: %v", mode)
	}
}
