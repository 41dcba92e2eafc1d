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

// These limits stop Stage from copying a whole disk because of a mistyped path.
const (
	maxFiles = 20_000
	maxBytes = 512 << 20
)

// Staged is a copy of an agent in a temporary folder. Commit installs the copy.
type Staged struct {
	// Dir is the temporary folder. The copy is in a subfolder with the agent's name.
	Dir string
	// Left lists the files that Stage did not copy. The paths are relative to the agent's folder.
	Left []string

	name, place  string // the name of the agent, and the path at which Commit installs it
	files, bytes int64
	lost         bool // set if the previous version is in Dir and could not be restored
	first        bool // set if there was no agents folder
}

// Stage copies the given files from an agent's folder to a temporary folder inside the agents folder. If whole is true,
// Stage also copies the rest of the agent's folder, except names that begin with a dot. Such files are settings of
// other tools and often contain secrets. Stage never follows a link out of the folder, because the link could lead to
// any file.
//
// Only the owner can write to the copy. A copied file keeps the read permissions of the original, regardless of the
// umask. If ambit runs as root, the sandbox runs the agent's programs as an unprivileged user, who needs these
// permissions. Outside the sandbox, other users cannot reach the copy, because only the owner can access the agents
// folder.
func Stage(agents, name, folder string, whole bool, files []string) (*Staged, error) {
	from, err := os.OpenRoot(folder) // OpenRoot does not follow links out of the folder
	if err != nil {
		return nil, err
	}
	defer from.Close()
	_, missing := os.Stat(agents)
	if err := os.MkdirAll(agents, 0o700); err != nil {
		return nil, err
	}
	s := &Staged{
		first: errors.Is(missing, fs.ErrNotExist),
		Dir:   filepath.Join(agents, ".new-"+rand.Text()), name: name, place: filepath.Join(agents, name),
	}
	err = os.MkdirAll(filepath.Join(s.Dir, name), 0o700)
	if whole && err == nil {
		err = s.copyAll(from)
	}
	for _, f := range files {
		if err == nil {
			err = s.copyFile(from, f)
		}
	}
	if err != nil {
		s.Discard()
		return nil, err
	}
	return s, nil
}

func (s *Staged) copyAll(from *os.Root) error {
	return fs.WalkDir(from.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		rel := filepath.FromSlash(path)
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(e.Name(), ".") && rel != ".":
			s.Left = append(s.Left, rel)
			if e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case e.IsDir():
			return s.copyFolder(from, rel, e)
		case e.Type()&fs.ModeSymlink != 0 && inModules(rel):
			// Package managers create links to executables. The agent does not need these links.
			s.Left = append(s.Left, rel)
			return nil
		case !e.Type().IsRegular():
			return fmt.Errorf("%s is not a regular file; ambit does not copy links or devices", rel)
		}
		return s.copyFile(from, rel)
	})
}

func inModules(rel string) bool {
	return strings.Contains("/"+filepath.ToSlash(rel), "/node_modules/")
}

// copyFolder creates a folder with the permissions of the original.
func (s *Staged) copyFolder(from *os.Root, rel string, e fs.DirEntry) error {
	info, err := e.Info()
	if err != nil {
		return err
	}
	if err := s.count(from, 0); err != nil {
		return err
	}
	to := filepath.Join(s.Dir, s.name, rel)
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	return os.Chmod(to, 0o700|permissionsOf(info))
}

// copyFile copies a file with the permissions of the original.
func (s *Staged) copyFile(from *os.Root, rel string) error {
	if !filepath.IsLocal(rel) {
		return fmt.Errorf("%s is outside the manifest's folder", rel)
	}
	in, err := from.Open(rel)
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
	if err := s.count(from, info.Size()); err != nil {
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
	return errors.Join(err, out.Chmod(0o600|permissionsOf(info)), out.Close())
}

// permissionsOf returns the permissions of a file, but without write access for group and others.
func permissionsOf(info fs.FileInfo) fs.FileMode { return info.Mode().Perm() &^ 0o022 }

// count adds a file of the given size to the totals. It fails if the copy exceeds maxFiles or maxBytes.
func (s *Staged) count(from *os.Root, size int64) error {
	s.files++
	s.bytes += size
	if s.files > maxFiles || s.bytes > maxBytes {
		return fmt.Errorf("the folder %s is too large for an agent, because it contains more than %d files or %d MiB",
			from.Name(), maxFiles, maxBytes>>20)
	}
	return nil
}

// Write adds a file to the copy.
func (s *Staged) Write(rel string, text []byte) error {
	return os.WriteFile(filepath.Join(s.Dir, s.name, rel), text, 0o600)
}

// Commit moves the copy to the agent's folder and removes the previous version. It syncs the copy to disk first, so
// that at least one of the two versions is complete after a crash. If Commit fails, it restores the previous version.
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
	// Restore the previous version, but return the original error.
	if back := os.Rename(old, s.place); back != nil && !errors.Is(back, fs.ErrNotExist) {
		s.lost = true
		return fmt.Errorf("%w; the previous version of the agent is in %s", err, old)
	}
	return err
}

// Tests replace these functions.
var (
	syncFile   = (*os.File).Sync
	syncFolder = home.SyncFolder
)

// syncAll syncs a folder and its content to disk. One pass at the end is much faster than a sync after each file.
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

// Discard removes the temporary folder, unless this folder contains the only copy of the previous version. If Stage
// created the agents folder and this folder is empty, Discard removes it too.
func (s *Staged) Discard() {
	if s.lost {
		return
	}
	_ = os.RemoveAll(s.Dir)
	if s.first {
		_ = os.Remove(filepath.Dir(s.Dir))
	}
}

// ValidName returns an error if the name is not allowed for an installed agent.
func ValidName(name string) error {
	switch {
	case name == "" || len(name) > 128:
		return errors.New("the name of an agent must have 1 to 128 bytes")
	case strings.HasPrefix(name, ".") || strings.HasPrefix(name, "-") || name == "node_modules":
		return fmt.Errorf("an agent cannot be named %q, because the name is reserved or begins with a dot or hyphen", name)
	case !filepath.IsLocal(name) || strings.ContainsAny(name, `/\:*?"<>|`):
		return fmt.Errorf("an agent cannot be named %q, because this is not a valid folder name", name)
	}
	for _, r := range name {
		if r < ' ' || r == 0x7f {
			return errors.New("the name of an agent must not contain control characters")
		}
	}
	return nil
}
