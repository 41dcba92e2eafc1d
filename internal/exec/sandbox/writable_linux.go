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

// userFor is the user of a run. One that keeps files on this machine is always the
// same, so that what it wrote stays its own; any other is a new one each time.
func (m *machine) userFor(s shape) int {
	if m.users.count > 0 && slices.ContainsFunc(s.mounts, func(mount Mount) bool { return mount.Write }) {
		return m.users.first
	}
	return m.users.pick()
}

// give makes everything in the mounts that are given away the user's own, where
// ambit is root and the user another. It follows no link, whatever is put in its way meanwhile.
func give(s shape, user int) error {
	if user == 0 {
		return nil
	}
	for _, m := range s.mounts {
		if !m.Write || !m.Give {
			continue
		}
		if err := giveFolder(m.Source, user); err != nil {
			return &setupError{"mounts", fmt.Sprintf("the work folder cannot be made writable: %v", err)}
		}
	}
	return nil
}

func giveFolder(dir string, user int) error {
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
			return nil // it has gone meanwhile
		}
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		// A second name may be that of a file elsewhere, whose owner it would change.
		if ok && (int(st.Uid) == user || !info.IsDir() && st.Nlink > 1) {
			return nil
		}
		if err := root.Lchown(path, user, user); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}
