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
func TestHashIntoRefusesLinksAndPipes(t *testing.T) {
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
		t.Errorf("the entry of the pipe is marked as a file: %v", mode)
	}
}

// In the digest of a project, a link to a file is hashed like the file. For any other link, only the path of its target
// is hashed.
func TestProjectLinks(t *testing.T) {
	dir := t.TempDir()
	check(t, os.MkdirAll(filepath.Join(dir, "a"), 0o755))
	for _, name := range []string{"package.json", "a/main.py"} {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o644))
	}
	at := dir
	digest := func(target string) string {
		t.Helper()
		link := filepath.Join(dir, "link")
		if target == "" {
			check(t, os.WriteFile(link, []byte("x"), 0o644))
		} else {
			check(t, os.Symlink(target, link))
		}
		var p Package
		check(t, p.hashProject(Ref{Kind: File, Name: "a/main.py", Runtime: "python3"}, filepath.Join(at, "agent.json")))
		check(t, os.Remove(link))
		return p.Tree
	}
	if digest(filepath.Join("a", "main.py")) != digest("") {
		t.Error("a link to a file of the project does not count as the file")
	}
	seen := map[string]bool{digest(""): true}
	for _, target := range []string{"a", "..", "nowhere", os.Args[0]} {
		got := digest(target)
		if seen[got] {
			t.Errorf("the link to %s has the same digest as a link to another target", target)
		}
		seen[got] = true
	}
	was := digest("")
	at = filepath.Join(t.TempDir(), "folder")
	check(t, os.Symlink(dir, at))
	if got := digest(""); got != was {
		t.Error("a project in a linked folder has another digest")
	}
}
