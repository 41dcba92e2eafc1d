package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Mode is the kind of traffic that a [Network] allows.
type Mode string

// In every mode, addresses must be public, except for the hosts in Policy.Private.
const (
	// ModeHTTPS allows TLS to port 443 of any host that has a name.
	ModeHTTPS Mode = "outbound-https-only"
	// ModeAllowlist allows TLS to port 443 of the hosts in Policy.Hosts and their subdomains.
	ModeAllowlist Mode = "allowlist"
	// ModeHosts allows any protocol to the hosts in Policy.Hosts. An entry NAME:PORT allows only this port.
	ModeHosts Mode = "hosts"
	// ModeFull allows any protocol to any port of any host.
	ModeFull Mode = "full"
)

// Policy describes the traffic that a network allows. The zero value allows no traffic.
type Policy struct {
	Mode Mode
	// Hosts are the allowed hosts of ModeAllowlist and ModeHosts.
	Hosts []string
	// Private lists HOST:PORT pairs that are allowed in every mode, even if the address is loopback or private.
	// Metadata services stay blocked.
	Private []string
	// Swaps are the secrets for which the program has placeholders. If Authority or Finder is nil, the network refuses
	// connections to the hosts that receive these secrets.
	Swaps     []Swap
	Authority *Authority
	Finder    Finder
	// LongRunning is for a program that runs for days. Its traffic has no limit, and its idle connections stay open.
	LongRunning bool
}

// Decision is the network's decision on one connection.
type Decision struct {
	// Host and Port are what the program requested. They may be any text.
	Host, Port string
	// Refusal is nil if the network connected the program to the host.
	Refusal *call.Refusal
	// Unreachable is set if the policy allows the connection, but the host did not answer or does not exist.
	Unreachable bool
	// Remedy is the change of the policy that would allow the connection.
	Remedy Remedy
}

// Remedy is a change of a policy.
type Remedy int

const (
	// NoRemedy means that no change of the policy would help. An example is the address of a metadata service.
	NoRemedy Remedy = iota
	// AddHost adds HOST:PORT to Policy.Hosts.
	AddHost
	// AddPrivate adds HOST:PORT to Policy.Private, because the host's address is not public.
	AddPrivate
)

// Network is the only network access of one sandbox. It enforces one policy on every connection.
//
// The network resolves and dials names with a [Dialer]. If a program begins TLS, its first message must name the host
// of the connection. Otherwise, a connection to a server with many names would give access to all of them. The network
// does not see requests inside TLS. It cannot stop an allowed host from forwarding data.
type Network struct {
	dialer *Dialer
	policy Policy
	// onDecision may be nil.
	onDecision func(Decision)

	slots chan struct{} // holds one element for each open connection
	bytes atomic.Int64  // total number of bytes sent and received
	links sync.Map      // the links that carry data; the keys have the type *Link
}

const (
	maxConnections = 256
	maxTraffic     = 1 << 30
	greetingTime   = 15 * time.Second
	// idleTime is how long a connection can stay idle before it is closed. For a long-running program, the limit
	// applies only to half-closed connections.
	idleTime = 2 * time.Minute
)

var errShare = errors.New("the sandbox reached its limit of sent and received bytes")

// NewNetwork returns the network of one sandbox.
func NewNetwork(d *Dialer, p Policy, onDecision func(Decision)) *Network {
	return &Network{dialer: d, policy: p, onDecision: onDecision, slots: make(chan struct{}, maxConnections)}
}

// count adds to the traffic of the sandbox. It reports whether the traffic is within the limit.
func (n *Network) count(bytes int64) bool {
	return n.bytes.Add(bytes) <= maxTraffic || n.policy.LongRunning
}

// Active returns the HOST:PORT of each open connection that has carried data since the given time.
func (n *Network) Active(since time.Time) (hosts []string) {
	n.links.Range(func(link, _ any) bool {
		if l := link.(*Link); l.used.Load() >= since.UnixNano() {
			hosts = append(hosts, net.JoinHostPort(l.host, l.port))
		}
		return true
	})
	return hosts
}

// Loopback returns the private host that a program reaches when it connects to a loopback address. This is localhost
// or the address itself, if Policy.Private lists it with the port. In all other cases, Loopback returns "", and the
// program reaches its own loopback interface.
func (n *Network) Loopback(to netip.AddrPort) (host string) {
	for _, host := range []string{"localhost", to.Addr().String()} {
		if slices.Contains(n.policy.Private, net.JoinHostPort(host, strconv.Itoa(int(to.Port())))) {
			return host
		}
	}
	return ""
}

// Missed records that a program tried to connect to a port of its own loopback interface where nothing listens. The
// program may have meant a server on this machine.
func (n *Network) Missed(port uint16) {
	const host = "localhost"
	n.report(Decision{Host: host, Port: strconv.Itoa(int(port)), Refusal: blocked(host), Remedy: AddPrivate})
}

// Link is a connection of a program to a host. The caller must call either Carry or Close.
type Link struct {
	network    *Network
	host, port string
	up         net.Conn // nil if swaps is not empty
	swaps      []Swap
	used       atomic.Int64 // when the link last carried data, in nanoseconds since 1970
	half       atomic.Bool  // whether the program or the host has stopped sending
}

// Open connects to a port of a host. The host is a name or an IP address. If the [Network] refuses the connection, the
// error is a [*call.Refusal].
func (n *Network) Open(ctx context.Context, host string, port uint16) (*Link, error) {
	l := &Link{network: n, host: host, port: strconv.Itoa(int(port))}
	select {
	case n.slots <- struct{}{}:
	default:
		return nil, l.refuse(call.Refuse(Stage, call.HostNotAllowed,
			"the program already has %d open connections, which is the limit", maxConnections))
	}
	if err := l.open(ctx); err != nil {
		<-n.slots
		r, refused := errors.AsType[*call.Refusal](err)
		d := Decision{Host: l.host, Port: l.port, Refusal: dialRefusal(l.host, err), Unreachable: !refused}
		if refused && !errors.Is(err, errMetadata) {
			d.Remedy = n.policy.remedy(l.host, l.port, r.Code)
		}
		n.report(d)
		if refused {
			return nil, r
		}
		return nil, err
	}
	if !l.namesHost() {
		n.report(Decision{Host: l.host, Port: l.port})
	}
	return l, nil
}

// namesHost reports whether the program must begin with TLS and name the host. In that case, the connection can still
// be refused after it was opened.
func (l *Link) namesHost() bool {
	mode := l.network.policy.Mode
	return mode == ModeHTTPS || mode == ModeAllowlist || len(l.swaps) > 0
}

// remedy returns the change of the policy that would allow a refused connection.
func (p *Policy) remedy(host, port string, code call.Code) Remedy {
	address, err := netip.ParseAddr(host)
	_, noName := Host(host)
	switch {
	case err == nil && notMetadata(address) != nil, err != nil && noName != nil:
		return NoRemedy
	case code == call.AddressBlocked, err == nil && public(address) != nil:
		return AddPrivate
	case code == call.HostNotAllowed && !p.lists(host, port):
		return AddHost
	}
	return NoRemedy
}

// lists reports whether Hosts contains the host, or the pair HOST:PORT.
func (p *Policy) lists(host, port string) bool {
	return slices.Contains(p.Hosts, host) || slices.Contains(p.Hosts, net.JoinHostPort(host, port))
}

// Permits reports whether the policy allows the host by its name. Open also checks the addresses of the host.
func (n *Network) Permits(host string, port uint16) bool {
	number := strconv.Itoa(int(port))
	_, err := n.policy.judge(host, number)
	return err == nil || n.policy.private(host, number)
}

func (p *Policy) private(host, port string) bool {
	return slices.Contains(p.Private, net.JoinHostPort(host, port))
}

func (l *Link) open(ctx context.Context) (err error) {
	p := &l.network.policy
	private := p.private(l.host, l.port)
	if !private {
		if l.host, err = p.judge(l.host, l.port); err != nil {
			return err
		}
	}
	if l.swaps = p.swaps(l.host); len(l.swaps) > 0 {
		if p.Authority == nil || p.Finder == nil || l.port != "443" {
			return call.Refuse(Stage, call.HostNotAllowed,
				"%s is the host of a credential and can be reached only through the credential proxy", diag.Quote(l.host))
		}
		return nil
	}
	l.up, err = l.network.dialer.dial(ctx, l.host, l.port, private)
	return err
}

// judge checks a destination against the policy and returns the canonical host.
func (p *Policy) judge(host, port string) (string, error) {
	name, err := Host(host)
	if address, e := netip.ParseAddr(host); e == nil && (p.Mode == ModeFull || p.Mode == ModeHosts) {
		name, err = address.String(), nil
	}
	if err != nil {
		return host, err
	}
	switch p.Mode {
	case ModeFull, ModeHTTPS:
	case ModeAllowlist, ModeHosts:
		if p.Mode == ModeAllowlist && !agent.Covers(p.Hosts, name) || p.Mode == ModeHosts && !p.lists(name, port) {
			r := call.Refuse(Stage, call.HostNotAllowed, "%s is not one of the hosts that this program is allowed to reach",
				diag.Quote(name))
			r.Hint = "if the program needs the host, add the host to the manifest"
			return name, r
		}
	default:
		return name, call.Refuse(Stage, call.HostNotAllowed, "this program has no network")
	}
	if port != "443" && (p.Mode == ModeHTTPS || p.Mode == ModeAllowlist) {
		return name, call.Refuse(Stage, call.HostNotAllowed, "only port 443 may be reached, not %s", diag.Quote(port))
	}
	return name, nil
}

// refuse reports a refusal and returns it.
func (l *Link) refuse(r *call.Refusal) *call.Refusal {
	l.network.report(Decision{Host: l.host, Port: l.port, Refusal: r})
	return r
}

// report reports a decision.
func (n *Network) report(d Decision) {
	if n.onDecision != nil {
		n.onDecision(d)
	}
}

// Close closes a link on which Carry was not called.
func (l *Link) Close() error {
	<-l.network.slots
	if l.up == nil {
		return nil
	}
	return l.up.Close()
}

// Carry copies data in both directions until the program or the host closes its connection. It also stops if no data is
// sent for idleTime, if the sandbox reaches its byte limit, or if ctx ends. It closes both connections.
func (l *Link) Carry(ctx context.Context, program net.Conn) {
	defer l.Close()
	l.network.links.Store(l, nil)
	defer l.network.links.Delete(l)
	defer program.Close()
	defer context.AfterFunc(ctx, func() {
		program.Close()
		if l.up != nil {
			l.up.Close()
		}
	})()
	if err := l.carry(ctx, program); err != nil {
		l.refuse(call.Refuse(Stage, call.HostNotAllowed,
			"the connection to %s was not used for TLS with that host: %v", diag.Quote(l.host), err))
	}
}

func (l *Link) carry(ctx context.Context, program net.Conn) error {
	var from io.Reader = program
	if l.namesHost() {
		program.SetDeadline(time.Now().Add(greetingTime))
		var err error
		if from, err = readHello(program, l.host); err != nil {
			return err
		}
		l.network.report(Decision{Host: l.host, Port: l.port})
	}
	program.SetDeadline(time.Time{})
	if len(l.swaps) > 0 {
		return l.intercept(ctx, program, from)
	}
	if from == program { // if the first bytes are TLS, check the host that they name
		from = &named{program: program, host: l.host}
	}
	var wg sync.WaitGroup
	var err error
	wg.Go(func() { err = l.copy(l.up, from, program) })
	wg.Go(func() { l.copy(program, l.up, program) })
	wg.Wait()
	if errors.Is(err, errOtherName) {
		return err
	}
	return nil
}

// copy copies data in one direction. At the end of the data, it closes only this direction if possible. After an error,
// it closes both connections.
func (l *Link) copy(to net.Conn, from io.Reader, program net.Conn) error {
	limitIdle := func() {
		end := time.Now().Add(idleTime)
		program.SetDeadline(end)
		l.up.SetDeadline(end)
	}
	var s stream = &buffered{from: from, to: to, buf: buffers.Get().(*[bufferSize]byte)}
	defer func() { s.close() }()
	for {
		if !l.network.policy.LongRunning || l.half.Load() {
			limitIdle()
		}
		read, err := s.read()
		if read > 0 {
			l.used.Store(time.Now().UnixNano())
		}
		if !l.network.count(int64(read)) {
			err = errShare
		} else if read > 0 {
			if e := s.write(read); e != nil {
				err = e
			}
		}
		if errors.Is(err, io.EOF) {
			// Close only this direction, because the other side may still send.
			if half, ok := to.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
				l.half.Store(true)
				limitIdle()
				return nil
			}
		}
		if err != nil {
			program.Close()
			l.up.Close()
			return err
		}
		if _, ok := s.(*buffered); ok && read == bufferSize { // much data flows, so use a faster stream
			if fast := newSpliced(to, connOf(from)); fast != nil {
				s.close()
				s = fast
			}
		}
	}
}

// stream copies data from one connection to another. The method read takes some bytes from the first connection, and
// write sends those bytes to the second.
type stream interface {
	read() (int, error)
	write(size int) error
	close()
}

const bufferSize = 32 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// buffered is a stream that copies through a buffer in memory.
type buffered struct {
	from io.Reader
	to   io.Writer
	buf  *[bufferSize]byte
}

func (b *buffered) read() (int, error) { return b.from.Read(b.buf[:]) }

func (b *buffered) write(size int) error {
	_, err := b.to.Write(b.buf[:size])
	return err
}

func (b *buffered) close() { buffers.Put(b.buf) }

// replay is a reader that first returns bytes that were read before.
type replay struct {
	before *bytes.Buffer
	from   io.Reader
}

func (r *replay) Read(b []byte) (int, error) {
	if r.before.Len() > 0 {
		return r.before.Read(b)
	}
	return r.from.Read(b)
}

// connOf returns the connection that a reader reads from. It returns nil if the reader would return other bytes first,
// or if it still checks the bytes.
func connOf(r io.Reader) net.Conn {
	switch r := r.(type) {
	case net.Conn:
		return r
	case *replay:
		if r.before.Len() == 0 {
			return connOf(r.from)
		}
	case *named:
		if r.checked {
			return connOf(r.rest)
		}
	}
	return nil
}

// named is a reader of the data that a program sends. If the data begins with a ClientHello that names another host,
// Read returns errOtherName. A ClientHello that names no host is accepted.
type named struct {
	program net.Conn
	host    string
	checked bool
	rest    io.Reader // the bytes that Read has used for the check, followed by all later bytes
}

const tlsHandshake = 22

func (r *named) Read(b []byte) (int, error) {
	if r.checked {
		return r.rest.Read(b)
	}
	n, err := r.program.Read(b[:1])
	if n == 0 {
		return n, err
	}
	r.checked = true
	r.rest = r.program
	if b[0] != tlsHandshake {
		return n, err
	}
	whole, err := readHello(&replay{bytes.NewBuffer([]byte{b[0]}), r.program}, r.host)
	if errors.Is(err, errOtherName) {
		return 0, err
	}
	if r.rest = whole; whole == nil {
		return 0, err
	}
	return r.rest.Read(b)
}

// dialRefusal converts the error of a dial to a refusal. It returns nil if there is no error.
func dialRefusal(host string, err error) *call.Refusal {
	if err == nil {
		return nil
	}
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		return r
	}
	if missing, ok := errors.AsType[*net.DNSError](err); ok && missing.IsNotFound {
		return call.Refuse(Stage, call.ServerUnavailable, "%s could not be reached: there is no such host", diag.Quote(host))
	}
	return call.Refuse(Stage, call.ServerUnavailable, "%s could not be reached", diag.Quote(host))
}

var (
	errNotTLS    = errors.New("the first message is not TLS")
	errNoName    = errors.New("the ClientHello names no host")
	errOtherName = errors.New("the ClientHello names another host")
)

// readHello reads a TLS ClientHello and checks that it names the host. It returns a reader of the ClientHello and all
// data after it. If the ClientHello names no host, readHello returns this reader and errNoName. Package crypto/tls
// parses the ClientHello, and readHello then aborts the handshake.
func readHello(from io.Reader, host string) (io.Reader, error) {
	var raw bytes.Buffer
	var name *string
	config := &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		name = &info.ServerName
		return nil, io.EOF
	}}
	err := tls.Server(readOnlyConn{io.TeeReader(from, &raw)}, config).Handshake()
	switch {
	case name == nil:
		return nil, errors.Join(errNotTLS, err)
	case *name == "":
		return &replay{&raw, from}, errNoName
	}
	if canonical, err := Host(*name); err != nil || canonical != host {
		return nil, errOtherName
	}
	return &replay{&raw, from}, nil
}

// readOnlyConn is a [net.Conn] that reads from a reader and discards all writes.
type readOnlyConn struct{ io.Reader }

func (readOnlyConn) Write(b []byte) (int, error)      { return len(b), nil }
func (readOnlyConn) Close() error                     { return nil }
func (readOnlyConn) LocalAddr() net.Addr              { return nil }
func (readOnlyConn) RemoteAddr() net.Addr             { return nil }
func (readOnlyConn) SetDeadline(time.Time) error      { return nil }
func (readOnlyConn) SetReadDeadline(time.Time) error  { return nil }
func (readOnlyConn) SetWriteDeadline(time.Time) error { return nil }
