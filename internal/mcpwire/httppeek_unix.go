//go:build unix

package mcpwire

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// canPeek reports that untouched works on this system.
const canPeek = true

// untouched reports whether a connection is open and nothing has arrived on it,
// without reading from it.
func untouched(c net.Conn) bool {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	nothing := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		nothing = err == unix.EAGAIN || err == unix.EWOULDBLOCK
		return true
	})
	return err == nil && nothing
}
