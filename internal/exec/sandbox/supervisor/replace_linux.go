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

// File is a file that has its own mount. To save a file, many programs write a new file and rename it to the old name.
// The kernel does not allow a program to rename a file over a mount, so the supervisor copies the new file into the
// mounted file instead.
type File struct {
	// Path is the path of the file on this machine. Device and Inode identify the file.
	Path          string
	Device, Inode uint64
	// Folder is the path, on this machine, of the program's private folder that contains the mount.
	Folder string
}

// replaced carries out a call that renames a file to one of s.Files, if both are in the same folder. For any other
// call, it returns false. The paths come from the program's memory, and the program may change them at the same time.
// This is harmless, because ambit opens the paths that it has read, and the program is allowed to read its private
// folder and to write its files.
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
		return true // the thread was killed while its call waited for the mutex
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

// maxHoles is the maximum difference between the length of a file to copy and its size on disk.
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

// replace copies the named file in f.Folder to f.Path, and deletes the named file.
func (f File) replace(ctx context.Context, name string) error {
	folder, err := os.OpenRoot(f.Folder)
	if err != nil {
		return err
	}
	defer folder.Close()
	from, err := folder.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // do not block if the path is a pipe
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return unix.EINVAL
	}
	// A file with holes occupies little space, but its copy would occupy its whole length and could exceed the
	// folder's limit.
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
		return unix.ESTALE // another file has replaced the file at the path in the meantime
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
