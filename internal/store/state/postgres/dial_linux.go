package postgres

import (
	"errors"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unheardTime bounds how long sent data may stay unacknowledged.
const unheardTime = 10 * time.Second

// unheard bounds how long the kernel retransmits unacknowledged data. While it
// retransmits, it sends no keep-alive probes.
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
