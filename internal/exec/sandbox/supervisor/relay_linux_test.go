//go:build amd64 || arm64

package supervisor

import (
	"context"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A program can make its socket drop every answer. Connecting the socket then fails when the time limit is over, and
// does not block ambit.
func TestConnectionThatGetsNoAnswer(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	drop := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}
	if err := unix.SetsockoptSockFprog(socket, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: 1, Filter: &drop}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	to := &unix.SockaddrInet4{Port: l.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
	done := make(chan error, 1)
	connect := func() error { return unix.Connect(socket, to) }
	go func() { done <- connectInTime(ctx, time.Minute, socket, connect) }()
	select {
	case err := <-done:
		if err != unix.ETIMEDOUT {
			t.Errorf("got %v, want %v", err, unix.ETIMEDOUT)
		}
	case <-time.After(30 * time.Second): // the kernel's own timeout is more than two minutes
		t.Error("the connection still blocks")
		unix.Shutdown(socket, unix.SHUT_RDWR)
		<-done
	}
}
