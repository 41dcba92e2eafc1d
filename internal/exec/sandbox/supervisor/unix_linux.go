//go:build amd64 || arm64

package supervisor

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
)

// unixTime is the time limit for connecting a Unix socket.
const unixTime = 5 * time.Second

// connectUnix connects a Unix socket. ambit opens the file at the path, checks the file, and connects to exactly that
// file.
func (s *Supervisor) connectUnix(
	ctx context.Context, notify *notifier, c *notification, socket int, address []byte,
) error {
	if binary.NativeEndian.Uint16(address) != unix.AF_UNIX || len(address) == sizeofFamily {
		return unix.EINVAL
	}
	if name := address[sizeofFamily:]; name[0] != 0 { // a path, not an abstract name
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
	return inTime(ctx, unixTime, func() error { return sysConnect(socket, address) }, func() {
		// The call waits while the queue of the other socket is full. After an interruption, the kernel begins the
		// call again with the socket's time limit. The program can change this limit, so shorten it before every
		// interruption.
		unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Usec: 1})
	})
}

// openPrivate opens the file at a path of the program without reading it. The file must be in one of the mounts in
// s.Private.
func (s *Supervisor) openPrivate(c *notification, path string) (int, error) {
	file, err := s.openInside(c.absolute("cwd", path), 0)
	if err != nil {
		return -1, err
	}
	mount, err := shim.MountOf(file)
	if err == nil && !slices.Contains(s.Private, mount) {
		err = unix.EACCES
	}
	if err != nil {
		unix.Close(file)
		return -1, err
	}
	return file, nil
}
