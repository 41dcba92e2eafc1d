//go:build unix

package mcpwire

import (
	"net"

	"golang.org/x/sys/unix"
)

// canPeek says that a connection can be looked at without reading from it.
const canPeek = true

// quiet reports whether a connection is open and nothing has arrived on it.
func quiet(c *net.TCPConn) bool {
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
