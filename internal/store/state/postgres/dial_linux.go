package postgres

import (
	"errors"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// userTimeout is how long sent data can remain unacknowledged before the connection is closed.
const userTimeout = 10 * time.Second

// setUserTimeout makes the kernel close a connection if sent data is not acknowledged within userTimeout. Keep-alive
// probes are not enough, because the kernel does not send them while it retransmits data.
func setUserTimeout(network, _ string, c syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var err error
	control := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
	})
	return errors.Join(control, err)
}
