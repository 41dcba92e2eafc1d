//go:build amd64 || arm64

package supervisor

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// connectUnix connects a Unix socket. ambit opens the file at the path, checks it, and connects to exactly that file.
func (s *Supervisor) connectUnix(notify *notifier, c *notification, socket int, address []byte) error {
	if binary.NativeEndian.Uint16(address) != unix.AF_UNIX || len(address) == sizeofFamily {
		return unix.EINVAL
	}
	if name := address[sizeofFamily:]; name[0] != 0 { // not an abstract name
		path, _, _ := bytes.Cut(name, []byte{0})
		file, err := s.openPrivate(c, string(path))
		if err != nil {
			return err
		}
		defer unix.Close(file)
		address = append(address[:sizeofFamily:sizeofFamily], "/proc/self/fd/"+strconv.Itoa(file)+"\x00"...)
	}
	if !notify.waiting(c) {
		return unix.ESRCH
	}
	// The call blocks while the queue of the other socket is full, and a shutdown does not end it.
	before, err := unix.GetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_SNDTIMEO)
	if err != nil {
		return err
	}
	limit := unix.NsecToTimeval(pairTime.Nanoseconds())
	if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		return err
	}
	defer unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_SNDTIMEO, before)
	return connect(socket, address)
}

// openPrivate opens the file at a path of the program without reading it. The file must be in a folder of s.Private and
// not in a mount below that folder.
func (s *Supervisor) openPrivate(c *notification, path string) (int, error) {
	root, err := unix.Open(c.proc("root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(root)
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	file, err := unix.Openat2(root, c.absolute("cwd", path), how)
	if err != nil {
		return -1, err
	}
	in := func(folder string) bool {
		fd, err := unix.Openat2(root, folder, how)
		if err != nil {
			return false
		}
		defer unix.Close(fd)
		of, err := mountOf(fd)
		at, err2 := mountOf(file)
		return err == nil && err2 == nil && of == at
	}
	if !slices.ContainsFunc(s.Private, in) {
		unix.Close(file)
		return -1, unix.EACCES
	}
	return file, nil
}

// mountOf returns the number of the mount that contains an open file.
func mountOf(fd int) (uint64, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st)
	if err == nil && st.Mask&unix.STATX_MNT_ID == 0 {
		err = unix.ENOSYS
	}
	return st.Mnt_id, err
}
