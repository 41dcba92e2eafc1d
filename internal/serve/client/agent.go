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

// Limits of an agent's folder, so that a wrong path does not copy a whole disk.
const (
	maxFiles = 20_000
	maxBytes = 512 << 20
)

// Staged is a copy of an agent that is not yet in its place.
type Staged struct {
	// Dir is the folder that contains the copy under the agent's NAME, like an agents folder.
	Dir string
	// Left are the files that were not copied, relative to the agent's folder.
	Left []string

	name, place  string
	files, bytes int64
	lost         bool // the previous version could not be restored and is in Dir
}

// Stage copies an agent next to its future place: the whole folder of the manifest, or only the
// named files in it. Of a whole folder, files that begin with a dot are left out: they are for
// tools and often contain secrets. Links are not followed, because they could lead anywhere.
//
// Only the owner may write the copy. Other users may read it if they may read the original,
// whatever the umask: programs of root run as an unprivileged user and must read these files. The
// agents folder itself is closed.
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
			// Package managers link their programs, which are not needed here.
			s.Left = append(s.Left, rel)
			return nil
		case !e.Type().IsRegular():
			return fmt.Errorf("%s is not a regular file: links and devices are not copied", rel)
		}
		return s.copyFile(folder, rel)
	})
}

func inModules(rel string) bool {
	return strings.Contains(string(filepath.Separator)+rel, string(filepath.Separator)+"node_modules"+string(filepath.Separator))
}

// copyFolder creates a folder with the permissions of the original.
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

// copyFile copies one file of the folder. No link can lead out of the folder.
func (s *Staged) copyFile(folder, rel string) error {
	if !filepath.IsLocal(rel) {
		return fmt.Errorf("%s is outside the manifest's folder", rel)
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
		return fmt.Errorf("%s is not a regular file", rel)
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

// openness returns the permissions of the original, without write access for others.
func openness(info fs.FileInfo) fs.FileMode { return info.Mode().Perm() &^ 0o022 }

// count enforces the limits.
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

// Commit moves the copy into its place and removes the previous version. The copy is synced to disk
// first, so that a crash leaves one of them complete.
func (s *Staged) Commit() error {
	defer s.Discard()
	made, old := filepath.Join(s.Dir, s.name), filepath.Join(s.Dir, "old")
	if s.name == "old" {
		old += "-"
	}
	if err := syncAll(made); err != nil {
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
	// Restore the previous version; the first error is the one to report.
	if back := os.Rename(old, s.place); back != nil && !errors.Is(back, fs.ErrNotExist) {
		s.lost = true
		return fmt.Errorf("%w; the previous version is in %s", err, old)
	}
	return err
}

// Variables for tests.
var (
	syncFile   = (*os.File).Sync
	syncFolder = home.SyncFolder
)

// syncAll syncs a folder and its content to disk after everything is written, which is much faster
// than file by file.
func syncAll(folder string) error {
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

// Discard removes the copy.
func (s *Staged) Discard() {
	if !s.lost {
		_ = os.RemoveAll(s.Dir)
	}
}

// ValidName returns why an installed agent cannot have this NAME, or nil.
func ValidName(name string) error {
	switch {
	case name == "" || len(name) > 128:
		return errors.New("a name must have 1 to 128 characters")
	case strings.HasPrefix(name, ".") || strings.HasPrefix(name, "-") || name == "node_modules":
		return fmt.Errorf("an agent cannot be named %q", name)
	case !filepath.IsLocal(name) || strings.ContainsAny(name, `/\:*?"<>|`):
		return fmt.Errorf("an agent cannot be named %q: the name is used for a folder", name)
	}
	for _, r := range name {
		if r < ' ' || r == 0x7f {
			return errors.New("a name must not contain control characters")
		}
	}
	return nil
}
