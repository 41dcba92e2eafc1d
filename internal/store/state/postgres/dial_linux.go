package postgres

import (
	"errors"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unheardTime is how long what was sent may go without a receipt.
const unheardTime = 10 * time.Second

// unheard bounds how long the kernel sends something again that nobody receives;
// while it does, it does not ask whether the other end is there.
func unheard(network, _ string, c syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var err error
	control := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unheardTime.Milliseconds()))
	})
	return errors.Join(control, err)
}
