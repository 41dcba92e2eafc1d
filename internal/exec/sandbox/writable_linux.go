//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

// userFor returns the user of a run: always the same one for runs with writable folders,
// so that it owns its earlier files, and a random one for all others.
func (m *machine) userFor(s shape) int {
	if m.users.count > 0 && slices.ContainsFunc(s.mounts, func(mount Mount) bool { return mount.Write }) {
		return m.users.first
	}
	return m.users.pick()
}

// chownMounts makes the user the owner of everything in mounts with Give, if ambit is
// root. It follows no link, also if files are replaced meanwhile.
func chownMounts(s shape, user int) error {
	if user == 0 {
		return nil
	}
	for _, m := range s.mounts {
		if !m.Write || !m.Give {
			continue
		}
		if err := chownTree(m.Source, user); err != nil {
			return &setupError{"mounts", fmt.Sprintf("the owner of the writable folder cannot be changed: %v", err)}
		}
	}
	return nil
}

func chownTree(dir string, user int) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := root.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted in the meantime
		}
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		// Another hard link of the file may be outside the folder.
		if ok && (int(st.Uid) == user || !info.IsDir() && st.Nlink > 1) {
			return nil
		}
		if err := root.Lchown(path, user, user); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}
