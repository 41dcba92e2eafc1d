package toolserver

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
)

// folders resolves paths in a manifest: ~ means home, and relative paths start at work.
type folders struct{ home, work string }

func ownFolders() (f folders, err error) {
	if f.home, err = os.UserHomeDir(); err == nil {
		f.work, err = os.Getwd()
	}
	f.home, f.work = realPath(f.home), realPath(f.work)
	return f, err
}

// Absolute returns the access list with absolute paths. In a path, ~ and $env:HOME are the home folder of ambit's user.
// Relative paths start at ambit's working folder.
func Absolute(access agent.Access) (agent.Access, error) {
	f, err := ownFolders()
	if err != nil {
		return nil, err
	}
	access = slices.Clone(access)
	for i := range access {
		if r := &access[i]; r.Kind == agent.CanRead || r.Kind == agent.CanWrite {
			if r.What = f.expand(r.What); !filepath.IsAbs(r.What) {
				r.What = filepath.Join(f.work, r.What)
			}
			r.What = filepath.Clean(r.What)
		}
	}
	return access, nil
}

// TooWide reports whether a folder contains more than the code of one program: the home folder, a folder that contains
// the home folder, or a folder for temporary files.
func TooWide(folder string) bool {
	path, err := filepath.Abs(folder)
	if err != nil {
		return true
	}
	home, err := os.UserHomeDir()
	path = realPath(path)
	return err != nil || sandbox.Inside(realPath(home), path) || path == realPath(os.TempDir()) || path == "/tmp"
}

// expand returns the absolute path of a text such as ~/notes or ./data. If the text is not a path, it returns the
// text unchanged.
func (f folders) expand(text string) string {
	switch first, rest, _ := strings.Cut(text, "/"); first {
	case "~", "$env:HOME":
		return filepath.Join(f.home, rest)
	case ".", "..":
		return filepath.Join(f.work, text)
	}
	return text
}

// argument expands the path in an argument of a server, or in a flag such as --dir=~/notes. The server cannot expand
// the path itself, because it has a different home and may have a different working folder.
func (f folders) argument(text string) string {
	if flag, value, ok := strings.Cut(text, "="); ok && strings.HasPrefix(text, "-") {
		return flag + "=" + f.expand(value)
	}
	return f.expand(text)
}
