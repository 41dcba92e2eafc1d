//go:build amd64 || arm64

package supervisor

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// File is a file that has a mount of its own. Many programs write a file by renaming a new file to it. The kernel
// refuses this for a mount, so the supervisor copies the new file.
type File struct {
	// Path is the path of the file on this machine. Device and Inode identify the file.
	Path          string
	Device, Inode uint64
	// Folder is the path, on this machine, of the program's private folder that contains the mount.
	Folder string
}

// replaced carries out a call that renames a file to one of s.Files, if both have the same folder. It returns false if
// the call does something else. The paths come from the program's memory, and a program may change them meanwhile. That
// gains nothing, because ambit opens what it has read, and a program can read its private folder and write its files.
func (s *Supervisor) replaced(ctx context.Context, notify *notifier, c *notification, path, source string) bool {
	path, source = filepath.Clean(path), filepath.Clean(source)
	file, ok := s.Files[path]
	if !ok || source == path || filepath.Dir(source) != filepath.Dir(path) ||
		c.Number == unix.SYS_RENAMEAT2 && c.Args[4] != 0 {
		return false
	}
	s.replacing.Lock()
	defer s.replacing.Unlock()
	if !notify.waiting(c) {
		return true // the thread was killed while the call waited for another one
	}
	if err := file.replace(ctx, filepath.Base(source)); err == nil {
		notify.succeed(c)
	} else if errno, ok := errors.AsType[unix.Errno](err); ok {
		notify.fail(c, errno)
	} else {
		notify.fail(c, unix.EIO)
	}
	return true
}

// maxHoles is how much larger than its stored size a copied file can be.
const maxHoles = 1 << 20

// stoppable reads a file until ctx ends.
type stoppable struct {
	ctx  context.Context
	file *os.File
}

func (s *stoppable) Read(b []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.file.Read(b)
}

// replace copies a file in the private folder into the file, and deletes the copied file.
func (f File) replace(ctx context.Context, name string) error {
	folder, err := os.OpenRoot(f.Folder)
	if err != nil {
		return err
	}
	defer folder.Close()
	from, err := folder.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe must not block
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return unix.EINVAL
	}
	// A file with holes takes little of the private folder's limit, but a copy takes its whole size.
	if stored, ok := info.Sys().(*syscall.Stat_t); !ok || info.Size() > 2*512*stored.Blocks+maxHoles {
		return unix.EFBIG
	}
	to, err := os.OpenFile(f.Path, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer to.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(to.Fd()), &st); err != nil || st.Dev != f.Device || st.Ino != f.Inode {
		return unix.ESTALE // another file has this path now
	}
	size, err := io.Copy(to, &stoppable{ctx, from})
	if err == nil {
		err = to.Truncate(size)
	}
	if err == nil {
		err = to.Sync()
	}
	if err != nil {
		return err
	}
	return folder.Remove(name)
}
