package client

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ambit-run/ambit/internal/store/home"
)

// Bounds of an agent's folder, so that a wrong path does not copy a disk.
const (
	maxFiles = 20_000
	maxBytes = 512 << 20
)

// Staged is a copy of an agent that is not in its place yet.
type Staged struct {
	// Dir is the folder that holds the copy under the agent's NAME, as agents
	// folders do.
	Dir string
	// Left are the files that were not copied, from the agent's folder on.
	Left []string

	name, place  string
	files, bytes int64
	lost         bool // what was installed could not be put back, and is in Dir
}

// Stage copies an agent aside, beside the place where it will be. The whole
// folder of the manifest is copied, or only the files named, which lie in it.
// Files whose names begin with a dot are left out of a whole folder: they are
// for tools and often hold secrets. Links are not followed: they could lead
// anywhere.
//
// Only the owner may write the copy; to everybody else it is as open as what it
// was made of, whatever the umask. Root's programs run as nobody in particular,
// and read no file that is closed to others. The agents folder itself is closed.
func Stage(agents, name, folder string, whole bool, files []string) (*Staged, error) {
	if err := os.MkdirAll(agents, 0o700); err != nil {
		return nil, err
	}
	s := &Staged{Dir: filepath.Join(agents, ".new-"+rand.Text()), name: name, place: filepath.Join(agents, name)}
	err := os.MkdirAll(filepath.Join(s.Dir, name), 0o700)
	if err == nil {
		if whole {
			err = s.copyAll(folder)
		}
		for _, f := range files {
			if err == nil {
				err = s.copyFile(folder, f)
			}
		}
	}
	if err != nil {
		s.Discard()
		return nil, err
	}
	return s, nil
}

func (s *Staged) copyAll(folder string) error {
	return filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == folder {
			return s.copyFolder(folder, ".", e)
		}
		rel, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		switch {
		case strings.HasPrefix(e.Name(), "."):
			s.Left = append(s.Left, rel)
			if e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case e.IsDir():
			return s.copyFolder(folder, rel, e)
		case e.Type()&fs.ModeSymlink != 0 && inModules(rel):
			// Package managers link their programs; nothing needs them here.
			s.Left = append(s.Left, rel)
			return nil
		case !e.Type().IsRegular():
			return fmt.Errorf("%s is not a file: a link or device is not copied", rel)
		}
		return s.copyFile(folder, rel)
	})
}

func inModules(rel string) bool {
	return strings.Contains(string(filepath.Separator)+rel, string(filepath.Separator)+"node_modules"+string(filepath.Separator))
}

// copyFolder makes a folder that is as open as the one in the agent's folder.
func (s *Staged) copyFolder(folder, rel string, e fs.DirEntry) error {
	info, err := e.Info()
	if err != nil {
		return err
	}
	if err := s.count(folder, 0); err != nil {
		return err
	}
	to := filepath.Join(s.Dir, s.name, rel)
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	return os.Chmod(to, 0o700|openness(info))
}

// copyFile copies one file of the folder, opened so that no link leads out of
// it.
func (s *Staged) copyFile(folder, rel string) error {
	if !filepath.IsLocal(rel) {
		return fmt.Errorf("%s lies outside of the manifest's folder", rel)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	in, err := root.Open(rel)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file", rel)
	}
	if err := s.count(folder, info.Size()); err != nil {
		return err
	}
	to := filepath.Join(s.Dir, s.name, rel)
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.LimitReader(in, maxBytes))
	return errors.Join(err, out.Chmod(0o600|openness(info)), out.Close())
}

// openness is the mode of what is copied, less what lets others write.
func openness(info fs.FileInfo) fs.FileMode { return info.Mode().Perm() &^ 0o022 }

// count holds the copy to its bounds.
func (s *Staged) count(folder string, size int64) error {
	s.files++
	s.bytes += size
	if s.files > maxFiles || s.bytes > maxBytes {
		return fmt.Errorf("the folder %s is too large for an agent: more than %d files or %d MiB", folder, maxFiles, maxBytes>>20)
	}
	return nil
}

// Write adds a file to the copy.
func (s *Staged) Write(rel string, text []byte) error {
	return os.WriteFile(filepath.Join(s.Dir, s.name, rel), text, 0o600)
}

// Commit puts the copy into its place. What was there goes, but not before the copy
// is on the disk: a crash leaves one of them whole.
func (s *Staged) Commit() error {
	defer s.Discard()
	made, old := filepath.Join(s.Dir, s.name), filepath.Join(s.Dir, "old")
	if s.name == "old" {
		old += "-"
	}
	if err := lasting(made); err != nil {
		return err
	}
	err := os.Rename(s.place, old)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err = os.Rename(made, s.place); err == nil {
		if err = syncFolder(filepath.Dir(s.place)); err == nil {
			return nil
		}
		_ = os.Rename(s.place, made)
	}
	// Back to what was there; the first error is the one to tell.
	if back := os.Rename(old, s.place); back != nil && !errors.Is(back, fs.ErrNotExist) {
		s.lost = true
		return fmt.Errorf("%w; what was installed lies in %s", err, old)
	}
	return err
}

// How files and folders get onto the disk. Tests look on.
var (
	syncFile   = (*os.File).Sync
	syncFolder = home.SyncFolder
)

// lasting puts a folder and all that is in it onto the disk: when everything is
// written, which takes far less than one file after the other.
func lasting(folder string) error {
	return filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			return syncFolder(path)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		return errors.Join(syncFile(f), f.Close())
	})
}

// Discard removes what is left of it.
func (s *Staged) Discard() {
	if !s.lost {
		_ = os.RemoveAll(s.Dir)
	}
}

// ValidName says why a NAME cannot be that of an installed agent; nil if it can.
func ValidName(name string) error {
	switch {
	case name == "" || len(name) > 128:
		return errors.New("a name has 1 to 128 characters")
	case strings.HasPrefix(name, ".") || strings.HasPrefix(name, "-") || name == "node_modules":
		return fmt.Errorf("an agent cannot be called %q", name)
	case !filepath.IsLocal(name) || strings.ContainsAny(name, `/\:*?"<>|`):
		return fmt.Errorf("an agent cannot be called %q: its name is that of a folder", name)
	}
	for _, r := range name {
		if r < ' ' || r == 0x7f {
			return errors.New("a name has no control characters in it")
		}
	}
	return nil
}
