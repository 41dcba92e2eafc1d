//go:build unix

package pack

import (
	"hash"
	"io/fs"
	"syscall"
)

// hashInto hashes a file and returns its mode. It calls the kernel without [os.File]:
// a package has thousands of small files, and registering each with the poller costs
// as much as reading it. A path that has become a link or a pipe is neither followed
// nor waited for.
func hashInto(h hash.Hash, name string, buf []byte) (fs.FileMode, error) {
	fd, err := retry(func() (int, error) {
		return syscall.Open(name, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	})
	if err != nil {
		return 0, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer syscall.Close(fd)
	var info syscall.Stat_t
	if err := syscall.Fstat(fd, &info); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	mode := fileMode(uint32(info.Mode))
	if !mode.IsRegular() {
		return mode, nil
	}
	h.Reset()
	for rest := info.Size; ; {
		n, err := retry(func() (int, error) { return syscall.Read(fd, buf) })
		if err != nil {
			return 0, &fs.PathError{Op: "read", Path: name, Err: err}
		}
		h.Write(buf[:n])
		// All declared bytes are read: skip the read that would return 0.
		if rest -= int64(n); n == 0 || rest == 0 {
			return mode, nil
		}
	}
}

// retry repeats a call that a signal interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != syscall.EINTR {
			return n, err
		}
	}
}

// fileMode converts a mode to package fs, as far as listings distinguish modes.
func fileMode(m uint32) fs.FileMode {
	mode := fs.FileMode(m) & fs.ModePerm
	if m&syscall.S_ISUID != 0 {
		mode |= fs.ModeSetuid
	}
	if m&syscall.S_ISGID != 0 {
		mode |= fs.ModeSetgid
	}
	if m&syscall.S_ISVTX != 0 {
		mode |= fs.ModeSticky
	}
	if m&syscall.S_IFMT != syscall.S_IFREG {
		mode |= fs.ModeIrregular
	}
	return mode
}
