//go:build unix

package manifest

import (
	"errors"
	"os"
	"syscall"

	"github.com/ambit-run/ambit/internal/manifest/doc"
)

// readFile reads a manifest with four system calls. People validate thousands
// of small files at once, and what an os.File costs beside them, which can be
// waited for and closes itself, is a good part of the whole.
func readFile(path string) ([]byte, error) {
	var fd int
	err := again(func() (err error) {
		fd, err = syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	var info syscall.Stat_t
	err = again(func() error { return syscall.Fstat(fd, &info) })
	if err != nil || info.Mode&syscall.S_IFMT != syscall.S_IFREG || info.Size == 0 || info.Size > doc.MaxBytes {
		f := os.NewFile(uintptr(fd), path) // whatever it is, it knows
		defer f.Close()
		return readAll(f)
	}
	defer syscall.Close(fd)
	src := make([]byte, info.Size)
	read := 0
	for read < len(src) {
		n := 0
		err := again(func() (err error) {
			n, err = syscall.Read(fd, src[read:])
			return err
		})
		if err != nil {
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			break // it has become shorter
		}
		read += n
	}
	return src[:read], nil
}

// again repeats a system call that a signal interrupted.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
