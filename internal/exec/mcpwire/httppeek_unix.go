//go:build unix

package mcpwire

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// canPeek is true because isQuiet can check a connection without reading from it.
const canPeek = true

// isQuiet reports whether a connection is open and has no unread data.
func isQuiet(c net.Conn) bool {
	tcp, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		quiet = err == unix.EAGAIN || err == unix.EWOULDBLOCK
		return true
	})
	return err == nil && quiet
}
