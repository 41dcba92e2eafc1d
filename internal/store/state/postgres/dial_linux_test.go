package postgres

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// The kernel detects a dead peer in time, whether data was sent or not.
func TestDial(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	conn, err := dialer.DialContext(t.Context(), "tcp", server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name          string
		level, option int
		want          int
	}{
		{"keep-alive probes", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{"seconds until the first probe", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 5},
		{"seconds between probes", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 2},
		{"number of probes", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
		{"milliseconds without acknowledgement", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 10_000},
	} {
		got, failed := 0, error(nil)
		if err := raw.Control(func(fd uintptr) { got, failed = unix.GetsockoptInt(int(fd), c.level, c.option) }); err != nil {
			t.Fatal(err)
		}
		if failed != nil || got != c.want {
			t.Errorf("%s: got %d, want %d, error %v", c.name, got, c.want, failed)
		}
	}
}
