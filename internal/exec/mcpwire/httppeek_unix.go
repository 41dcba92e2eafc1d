//go:build unix

package mcpwire

import (
	"net"

	"golang.org/x/sys/unix"
)

// canPeek reports that a connection can be checked without reading from it.
const canPeek = true

// isQuiet reports whether a connection is open and has no unread data.
func isQuiet(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	still := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		still = err == unix.EAGAIN || err == unix.EWOULDBLOCK
		return true
	})
	return err == nil && still
}
