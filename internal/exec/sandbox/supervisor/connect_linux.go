//go:build amd64 || arm64

package supervisor

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/gateway/egress"
)

const (
	// dialTime is the time limit for connecting a blocking socket.
	dialTime = 60 * time.Second
	// promptTime is how long a connect call of a non-blocking socket waits for ambit's dial. Most failures occur
	// within this time, so the call returns the right errno. After this time, ambit connects the socket to the relay,
	// and a later failure of the dial resets the connection.
	promptTime = 60 * time.Millisecond
	dnsPort    = 53

	// sizeofFamily is the size of an address's first field, and maxAddress is the size of the kernel's struct
	// sockaddr_storage.
	sizeofFamily, maxAddress = 2, 128
)

// connect answers a connect call. The kernel must not carry out the program's own call, because the program could
// replace the address or the descriptor after ambit has checked them. Instead, ambit connects its own copy of the
// socket.
func (s *Supervisor) connect(ctx context.Context, notify *notifier, c *notification) {
	if err := s.connectCopy(ctx, notify, c); err != nil {
		notify.fail(c, errnoOf(err, unix.ECONNREFUSED))
		return
	}
	notify.succeed(c)
}

// connectCopy connects a copy of the program's socket. An IP socket stays in the network namespace in which it was
// created. UDP and loopback connections therefore stay in the sandbox, and ambit can make them without a check. There
// is one exception: if the owner allowed a loopback port of this machine, ambit connects the program to that port.
func (s *Supervisor) connectCopy(ctx context.Context, notify *notifier, c *notification) error {
	socket, err := c.socket(int(int32(c.Args[0])))
	if err != nil {
		return err
	}
	defer closeInTime(socket)
	address, err := c.address()
	if err != nil {
		return err
	}
	domain, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return err
	}
	if domain == unix.AF_UNIX {
		return s.connectUnix(ctx, notify, c, socket, address)
	}
	if !notify.waiting(c) {
		return unix.ESRCH
	}
	if s.relay == nil {
		return unix.ENETUNREACH
	}
	direct := func() error {
		return connectInTime(ctx, dialTime, socket, func() error { return sysConnect(socket, address) })
	}
	to, ok := parseAddress(address)
	if !ok || to.Addr().IsUnspecified() || !isTCP(socket) {
		return direct()
	}
	host := to.Addr().String()
	switch {
	case to.Addr().IsLoopback() && to.Port() == dnsPort:
		return direct()
	case to.Addr().IsLoopback():
		if host = s.Network.Loopback(to); host == "" {
			if !c.listens(to.Port()) {
				s.Network.Missed(to.Port())
			}
			return direct()
		}
	case invented(to.Addr()):
		if host = s.names.name(to.Addr()); host == "" {
			return unix.EHOSTUNREACH
		}
	}
	return s.open(ctx, socket, host, to.Port())
}

// open dials the host and connects the program's socket to the new connection.
func (s *Supervisor) open(ctx context.Context, socket int, host string, port uint16) error {
	if _, err := unix.Getpeername(socket); err == nil {
		return unix.EISCONN
	}
	flags, err := unix.FcntlInt(uintptr(socket), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	d := s.dial(ctx, host, port)
	wait := dialTime
	// A dial to a refused host fails at once, so only a dial to a permitted host needs the short limit promptTime.
	if flags&unix.O_NONBLOCK != 0 && s.Network.Permits(host, port) {
		wait = promptTime
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-d.done:
	case <-timer.C:
		if wait == dialTime {
			d.abandon()
			return unix.ETIMEDOUT
		}
	}
	if err := d.failed(); err != nil {
		return err
	}
	if err := s.relay.connect(ctx, socket, d); err != nil {
		d.abandon()
		return err
	}
	return nil
}

// dialing is a connection that is being made. The fields link and err are valid after the channel done is closed.
type dialing struct {
	done   chan struct{}
	link   *egress.Link
	err    error
	cancel context.CancelFunc
}

func (s *Supervisor) dial(ctx context.Context, host string, port uint16) *dialing {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	d := &dialing{done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(d.done)
		defer cancel()
		d.link, d.err = s.Network.Open(ctx, host, port)
	}()
	return d
}

// failed returns the error of a finished dial. It returns nil if the dial is still running or has succeeded.
func (d *dialing) failed() error {
	select {
	case <-d.done:
		return d.err
	default:
		return nil
	}
}

// abandon ends a dial whose result is not used.
func (d *dialing) abandon() {
	d.cancel()
	go func() {
		if <-d.done; d.link != nil {
			d.link.Close()
		}
	}()
}

func sysConnect(socket int, address []byte) error {
	at := uintptr(unsafe.Pointer(&address[0]))
	if _, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(socket), at, uintptr(len(address))); errno != 0 {
		return errno
	}
	return nil
}

// address returns the address of a connect call as the program wrote it.
func (c *notification) address() ([]byte, error) {
	size := int(int32(c.Args[2]))
	if size < sizeofFamily || size > maxAddress {
		return nil, unix.EINVAL
	}
	address := c.peek(c.Args[1], size)
	if len(address) < size {
		return nil, unix.EFAULT
	}
	return address, nil
}

// socket returns a copy of a descriptor of the calling process.
func (c *notification) socket(fd int) (int, error) {
	pidfd, err := unix.PidfdOpen(int(c.Thread), unix.PIDFD_THREAD)
	if err == unix.EINVAL {
		// Before Linux 6.9, pidfd_open can fail for a thread that is not the main thread of its process.
		var process int
		if process, err = c.process(); err == nil {
			pidfd, err = unix.PidfdOpen(process, 0)
		}
	}
	if err != nil {
		return -1, err
	}
	defer unix.Close(pidfd)
	return unix.PidfdGetfd(pidfd, fd, 0)
}

// maxTable is the maximum number of bytes that ambit reads from a socket table. A program can make its tables
// arbitrarily long.
const maxTable = 1 << 20

// listens reports whether a socket in the network namespace of the calling thread accepts connections at a port. If
// the sockets cannot be listed, listens returns true.
func (c *notification) listens(port uint16) bool {
	for _, table := range []string{"tcp", "tcp6"} {
		file, err := os.Open(c.proc("net/" + table))
		if err != nil {
			return true
		}
		defer file.Close()
		part := &io.LimitedReader{R: file, N: maxTable}
		lines := bufio.NewScanner(part)
		for lines.Scan() {
			const listening = "0A"
			f := strings.Fields(lines.Text())
			if len(f) > 3 && f[3] == listening && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				return true
			}
		}
		if lines.Err() != nil || part.N == 0 {
			return true
		}
	}
	return false
}

// process returns the process of the calling thread.
func (c *notification) process() (int, error) {
	status, err := os.ReadFile(c.proc("status"))
	if err != nil {
		return 0, unix.ESRCH
	}
	_, rest, _ := strings.Cut(string(status), "\nTgid:")
	line, _, _ := strings.Cut(rest, "\n")
	return strconv.Atoi(strings.TrimSpace(line))
}

func isTCP(socket int) bool {
	kind, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_STREAM {
		return false
	}
	protocol, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	return err == nil && protocol == unix.IPPROTO_TCP
}

// parseAddress parses a struct sockaddr_in or sockaddr_in6. It reports false for other
// families and for addresses that are too short.
func parseAddress(b []byte) (netip.AddrPort, bool) {
	if len(b) < unix.SizeofSockaddrInet4 {
		return netip.AddrPort{}, false
	}
	port := binary.BigEndian.Uint16(b[2:])
	switch binary.NativeEndian.Uint16(b) {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port), true
	case unix.AF_INET6:
		if len(b) >= unix.SizeofSockaddrInet6 {
			return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])).Unmap(), port), true
		}
	}
	return netip.AddrPort{}, false
}

// errnoOf returns the errno for an error. If no errno fits, the result is the argument other.
func errnoOf(err error, other unix.Errno) unix.Errno {
	if errno, ok := errors.AsType[unix.Errno](err); ok && errno != 0 {
		return errno
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return unix.EHOSTUNREACH // the program has already resolved the name, so a resolver error would be unexpected
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return unix.ETIMEDOUT
	}
	return other
}
