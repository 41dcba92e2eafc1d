//go:build amd64 || arm64

package supervisor

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// unixTime bounds a connect of a Unix socket.
const unixTime = 5 * time.Second

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
	limit := unix.NsecToTimeval(unixTime.Nanoseconds())
	if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		return err
	}
	defer unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_SNDTIMEO, before)
	return sysConnect(socket, address)
}

// openPrivate opens the file at a path of the program without reading it. The file must be in a folder of s.Private and
// not in a mount below that folder.
func (s *Supervisor) openPrivate(c *notification, path string) (int, error) {
	file, err := s.openInside(c.absolute("cwd", path), 0)
	if err != nil {
		return -1, err
	}
	mount, err := mountOf(file)
	private := func(folder string) bool {
		fd, err := s.openInside(folder, 0)
		if err != nil {
			return false
		}
		defer unix.Close(fd)
		m, err := mountOf(fd)
		return err == nil && m == mount
	}
	if err == nil && !slices.ContainsFunc(s.Private, private) {
		err = unix.EACCES
	}
	if err != nil {
		unix.Close(file)
		return -1, err
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
