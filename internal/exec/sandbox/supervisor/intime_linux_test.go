package supervisor

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A program can make its socket drop the answers of the peer, so that closing the socket waits for the peer. ambit's
// copy of the socket may be the last copy.
func TestSocketThatLingers(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	to := &unix.SockaddrInet4{Port: l.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
	if err := unix.Connect(socket, to); err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if err := unix.SetsockoptLinger(socket, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 45}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptInt(socket, unix.IPPROTO_IP, unix.IP_MINTTL, 255); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(socket, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		closeInTime(socket)
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(30 * time.Second):
		t.Error("closing the socket still blocks")
		<-closed
	}
}
