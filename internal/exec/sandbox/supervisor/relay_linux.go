//go:build amd64 || arm64

package supervisor

import (
	"context"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// relay pairs the program's sockets with the connections that ambit made for them.
//
// The supervisor connects a program's socket to the relay's listener. The relay uses the address of the program's
// socket to find the dial for the accepted connection. If the program itself connects to the listener, no dial has the
// address of that socket, so the relay closes the connection.
type relay struct {
	listener *net.TCPListener
	address  netip.AddrPort
	work     sync.WaitGroup

	mu sync.Mutex
	// The key of both maps is the address of the program's socket. The map dials contains the dials for sockets that
	// the listener has not accepted yet. The map accepted contains the accepted connections that have no dial yet.
	dials    map[netip.AddrPort]*dialing
	accepted map[netip.AddrPort]*net.TCPConn
}

const (
	// pairTime is how long an accepted connection waits for its dial.
	pairTime = 5 * time.Second
	// maxUnpaired is the maximum number of accepted connections without a dial.
	maxUnpaired = 64
)

func newRelay(f *os.File) (*relay, error) {
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return &relay{
		listener: l.(*net.TCPListener), address: l.Addr().(*net.TCPAddr).AddrPort(),
		dials: map[netip.AddrPort]*dialing{}, accepted: map[netip.AddrPort]*net.TCPConn{},
	}, nil
}

// serve accepts connections until ctx ends. It returns when all connections are closed.
func (r *relay) serve(ctx context.Context) {
	context.AfterFunc(ctx, func() { r.listener.Close() })
	for {
		c, err := r.listener.AcceptTCP()
		if err != nil {
			break
		}
		from := c.RemoteAddr().(*net.TCPAddr).AddrPort()
		r.mu.Lock()
		d := r.dials[from]
		delete(r.dials, from)
		full := len(r.accepted) >= maxUnpaired
		if d == nil && !full {
			r.accepted[from] = c
		}
		r.mu.Unlock()
		switch {
		case d != nil:
			r.work.Go(func() { d.carry(ctx, c) })
		case full:
			c.Close()
		default:
			time.AfterFunc(pairTime, func() { r.forget(from, c) })
		}
	}
	r.mu.Lock()
	for _, c := range r.accepted {
		c.Close()
	}
	for _, d := range r.dials {
		d.abandon()
	}
	r.mu.Unlock()
	r.work.Wait()
}

// forget closes a connection that has no dial.
func (r *relay) forget(from netip.AddrPort, c *net.TCPConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.accepted[from] == c {
		delete(r.accepted, from)
		c.Close()
	}
}

// connect connects a program's socket to the relay and pairs the relay's end of the connection with the dial.
func (r *relay) connect(ctx context.Context, socket int, d *dialing) error {
	// With TCP_FASTOPEN_CONNECT, the kernel would choose the socket's address only when the program sends data, so
	// turn it off.
	unix.SetsockoptInt(socket, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 0)
	var to unix.Sockaddr = &unix.SockaddrInet4{Port: int(r.address.Port()), Addr: r.address.Addr().As4()}
	if domain, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil {
		return err
	} else if domain == unix.AF_INET6 {
		to = &unix.SockaddrInet6{Port: int(r.address.Port()), Addr: r.address.Addr().As16()}
	}
	err := connectInTime(ctx, pairTime, socket, func() error { return unix.Connect(socket, to) })
	if err != nil && err != unix.EINPROGRESS {
		return err
	}
	name, err := unix.Getsockname(socket)
	if err != nil {
		return err
	}
	from, ok := addressOf(name)
	if !ok {
		return unix.EAFNOSUPPORT
	}
	r.mu.Lock()
	c := r.accepted[from]
	delete(r.accepted, from)
	replaced := r.dials[from]
	if c == nil {
		r.dials[from] = d
	}
	r.mu.Unlock()
	if replaced != nil {
		replaced.abandon() // the program closed its socket before the listener accepted the connection
	}
	if c != nil {
		r.work.Go(func() { d.carry(ctx, c) })
	} else {
		time.AfterFunc(pairTime, func() { r.expire(from, d) })
	}
	return nil
}

// expire ends a dial whose socket the listener has not accepted.
func (r *relay) expire(from netip.AddrPort, d *dialing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dials[from] == d {
		delete(r.dials, from)
		d.abandon()
	}
}

// carry connects an accepted connection with the connection that the dial made. If the dial fails, carry resets the
// accepted connection.
func (d *dialing) carry(ctx context.Context, c *net.TCPConn) {
	select {
	case <-d.done:
	case <-ctx.Done():
		d.abandon()
		c.Close()
		return
	}
	if d.err != nil {
		c.SetLinger(0)
		c.Close()
		return
	}
	d.link.Carry(ctx, c)
}

func addressOf(name unix.Sockaddr) (netip.AddrPort, bool) {
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)), true
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port)), true
	}
	return netip.AddrPort{}, false
}
