package egress

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Mode is the kind of traffic that a [Proxy] allows.
type Mode string

// Every mode allows only public addresses.
const (
	// ModeHTTPS allows TLS connections to port 443 of any host. The host must be a name, not an IP address.
	ModeHTTPS Mode = "outbound-https-only"
	// ModeAllowlist allows TLS connections to port 443 of the hosts in Policy.Hosts and their subdomains.
	ModeAllowlist Mode = "allowlist"
	// ModeFull allows any protocol, including plain http, on any port of any host. The host must be a name, not an IP
	// address.
	ModeFull Mode = "full"
)

// Policy describes the traffic that a proxy allows. The zero value allows no traffic.
type Policy struct {
	Mode Mode
	// Hosts are the hosts that ModeAllowlist allows.
	Hosts []string
	// Swaps are the secrets that the program knows only as placeholders. If Authority or Finder is nil, the proxy refuses
	// connections to the hosts that receive these secrets.
	Swaps     []Swap
	Authority *Authority
	Finder    Finder
}

// Decision is the proxy's decision on one connection.
type Decision struct {
	// Host and Port are the texts that the program sent. They may be invalid.
	Host, Port string
	// Refusal is nil if the connection is allowed.
	Refusal *call.Refusal
}

// Proxy is the only network access of one sandbox. It enforces one policy on every connection to its listener.
//
// The proxy accepts CONNECT requests. The host must be a name. The proxy resolves the name and connects to it with a
// [Dialer], so the program cannot choose the address. Except in ModeFull, the program must begin TLS with the same
// host name before any data is forwarded. Otherwise, a tunnel to a server with several host names would give access
// to all of these hosts. The proxy does not see requests inside TLS, and it cannot stop an allowed host from
// forwarding data.
type Proxy struct {
	dialer *Dialer
	policy Policy
	// onDecision may be nil.
	onDecision func(Decision)

	slots chan struct{} // holds one element for each open connection
	bytes atomic.Int64  // total number of bytes sent and received
	mu    sync.Mutex
	conns map[net.Conn]struct{}
	ended bool
}

const (
	proxyConnections = 64
	proxyBytes       = 1 << 30
	proxyIdle        = 2 * time.Minute
	proxyGreeting    = 15 * time.Second
	proxyHeader      = 16 << 10
)

var errShare = errors.New("the sandbox has reached its limit for sent and received bytes")

// NewProxy returns the proxy of one sandbox.
func NewProxy(d *Dialer, p Policy, onDecision func(Decision)) *Proxy {
	return &Proxy{
		dialer: d, policy: p, onDecision: onDecision,
		slots: make(chan struct{}, proxyConnections), conns: map[net.Conn]struct{}{},
	}
}

// Serve accepts connections until the listener is closed. It closes all connections before it returns.
func (p *Proxy) Serve(l net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for {
		conn, err := l.Accept()
		if err != nil {
			break
		}
		select {
		case p.slots <- struct{}{}:
		default: // the sandbox has too many connections
			conn.Close()
			continue
		}
		wg.Go(func() {
			defer func() { <-p.slots }()
			defer p.closeConn(conn)
			if p.register(conn) {
				p.handle(ctx, conn)
			}
		})
	}
	cancel()
	p.mu.Lock()
	p.ended = true
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	wg.Wait()
}

// register adds a connection to p.conns. Serve closes all connections in p.conns before it returns. If Serve has
// already done so, register adds nothing and returns false.
func (p *Proxy) register(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.conns[c] = struct{}{}
	}
	return !p.ended
}

// closeConn closes a connection and unregisters it.
func (p *Proxy) closeConn(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	c.Close()
}

// handle serves one connection. The connection carries one tunnel or one plain request.
func (p *Proxy) handle(ctx context.Context, conn net.Conn) {
	conn.SetDeadline(time.Now().Add(proxyGreeting))
	head := &io.LimitedReader{R: conn, N: proxyHeader}
	buffered := bufio.NewReader(head)
	req, err := http.ReadRequest(buffered)
	if err != nil {
		if head.N < proxyHeader { // the program sent something
			r := call.Refuse(Stage, call.HostNotAllowed, "the request to the proxy cannot be parsed")
			p.report("", "", r)
			sendRefusal(conn, r)
		}
		return
	}
	// The request counts toward the byte limit, because a URL can carry as much data as a body.
	if p.bytes.Add(proxyHeader-head.N-int64(buffered.Buffered())) > proxyBytes {
		r := call.Refuse(Stage, call.HostNotAllowed, "%v", errShare)
		p.report("", "", r)
		sendRefusal(conn, r)
		return
	}
	head.N = proxyBytes // the header has been read, so its smaller limit no longer applies
	if req.Method != http.MethodConnect {
		p.forwardPlain(ctx, conn, req)
		return
	}
	host, port, refusal := p.judge(req.RequestURI)
	var up net.Conn
	swaps := p.policy.swaps(host)
	if refusal == nil && len(swaps) > 0 {
		p.swap(ctx, conn, buffered, host, port, swaps)
		return
	}
	if refusal == nil {
		up, err = p.dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
		refusal = dialRefusal(host, err)
	}
	if refusal != nil {
		p.report(host, port, refusal)
		sendRefusal(conn, refusal)
		return
	}
	defer p.closeConn(up)
	if !p.register(up) {
		return
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	from := io.Reader(buffered)
	if p.policy.Mode != ModeFull {
		hello, err := readHello(from)
		if err == nil {
			err = hello.checkHost(host)
		}
		if err != nil {
			p.report(host, port, call.Refuse(Stage, call.HostNotAllowed,
				"the program opened a tunnel to %s, but did not start TLS with that host: %v", diag.Quote(host), err))
			return
		}
		from = io.MultiReader(strings.NewReader(string(hello.raw)), from)
	}
	p.report(host, port, nil)
	p.join(conn, from, up)
}

// swap serves a tunnel to a host that receives a secret.
func (p *Proxy) swap(ctx context.Context, conn net.Conn, from io.Reader, host, port string, swaps []Swap) {
	if p.policy.Authority == nil || p.policy.Finder == nil || port != "443" {
		r := call.Refuse(Stage, call.HostNotAllowed,
			"%s receives a credential, so it can be reached only through the credential proxy", diag.Quote(host))
		p.report(host, port, r)
		sendRefusal(conn, r)
		return
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	hello, err := readHello(from)
	if err == nil {
		err = hello.checkHost(host)
	}
	if err == nil {
		p.report(host, port, nil)
		err = p.intercept(ctx, conn, io.MultiReader(strings.NewReader(string(hello.raw)), from), host, swaps)
	}
	if err != nil {
		p.report(host, port, call.Refuse(Stage, call.HostNotAllowed,
			"the program opened a tunnel to %s, but did not start TLS with that host: %v", diag.Quote(host), err))
	}
}

// judge checks the target of a CONNECT request against the policy. It returns the canonical host.
func (p *Proxy) judge(target string) (host, port string, refusal *call.Refusal) {
	host, port, err := net.SplitHostPort(target)
	if err != nil || strings.ContainsAny(target, "[]") {
		return target, "", call.Refuse(Stage, call.HostNotAllowed, "%s does not have the form HOST:PORT", diag.Quote(target))
	}
	name, err := Host(host)
	if err != nil {
		refusal, _ = errors.AsType[*call.Refusal](err)
		return host, port, refusal
	}
	switch p.policy.Mode {
	case ModeFull:
		return name, port, nil
	case ModeHTTPS:
	case ModeAllowlist:
		if !agent.Covers(p.policy.Hosts, name) {
			r := call.Refuse(Stage, call.HostNotAllowed, "this program is not allowed to connect to %s", diag.Quote(name))
			r.Hint = "add it to the manifest's hosts, if the program should reach it"
			return name, port, r
		}
	default:
		return name, port, call.Refuse(Stage, call.HostNotAllowed, "this program is not allowed to use the network")
	}
	if port != "443" {
		return name, port, call.Refuse(Stage, call.HostNotAllowed, "only port 443 is allowed, not %s", diag.Quote(port))
	}
	return name, port, nil
}

// dialRefusal converts the error of a connection attempt to a refusal. It returns nil if there is no error.
func dialRefusal(host string, err error) *call.Refusal {
	if err == nil {
		return nil
	}
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		return r
	}
	return call.Refuse(Stage, call.ServerUnavailable, "%s could not be reached", diag.Quote(host))
}

// report passes a decision to onDecision. The refusal is nil if the connection is allowed.
func (p *Proxy) report(host, port string, r *call.Refusal) {
	if p.onDecision != nil {
		p.onDecision(Decision{Host: host, Port: port, Refusal: r})
	}
}

// sendRefusal sends a refusal to the program. The program may write the text to its log.
func sendRefusal(conn net.Conn, r *call.Refusal) {
	code := http.StatusForbidden
	if r.Code == call.ServerUnavailable {
		code = http.StatusBadGateway
	}
	resp := http.Response{
		StatusCode: code, ProtoMajor: 1, ProtoMinor: 1, Close: true, ContentLength: -1,
		Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
		Body:   io.NopCloser(strings.NewReader(r.Error() + "\n")),
	}
	resp.Write(conn)
}

// forwardPlain forwards a request over plain http. Only ModeFull allows such requests.
func (p *Proxy) forwardPlain(ctx context.Context, conn net.Conn, req *http.Request) {
	host, port := req.URL.Hostname(), port(req.URL)
	if p.policy.Mode != ModeFull || req.URL.Scheme != "http" || req.URL.User != nil {
		r := call.Refuse(Stage, call.HostNotAllowed, "the sandbox allows only https connections through CONNECT")
		p.report(host, port, r)
		sendRefusal(conn, r)
		return
	}
	transport := p.dialer.transport()
	transport.DisableKeepAlives = true
	req.RequestURI = ""
	for _, h := range []string{"Proxy-Connection", "Proxy-Authorization", "Connection"} {
		req.Header.Del(h)
	}
	if req.Body != http.NoBody {
		req.Body = &meteredBody{req.Body, p}
	}
	conn.SetDeadline(time.Now().Add(proxyIdle))
	resp, err := transport.RoundTrip(req.WithContext(ctx))
	r := dialRefusal(host, err)
	p.report(host, port, r)
	if r != nil {
		sendRefusal(conn, r)
		return
	}
	defer resp.Body.Close()
	resp.Close = true
	resp.Body = &meteredBody{resp.Body, p}
	resp.Write(conn)
}

// meteredBody counts the bytes of a body toward the byte limit of the sandbox.
type meteredBody struct {
	io.ReadCloser
	proxy *Proxy
}

func (m *meteredBody) Read(b []byte) (int, error) {
	n, err := m.ReadCloser.Read(b)
	if m.proxy.bytes.Add(int64(n)) > proxyBytes {
		return 0, errShare
	}
	return n, err
}

// join copies data in both directions until both peers have stopped sending or a connection fails. It also stops if
// neither peer sends data for the time proxyIdle, or if the sandbox exceeds its byte limit.
func (p *Proxy) join(conn net.Conn, from io.Reader, up net.Conn) {
	conn.SetDeadline(time.Time{})
	var wg sync.WaitGroup
	wg.Go(func() { p.copy(up, from, conn, up) })
	wg.Go(func() { p.copy(conn, up, conn, up) })
	wg.Wait()
}

// copy copies data in one direction. If the sender stops sending but can still receive, copy closes only this
// direction. In all other cases, it closes both connections at the end.
func (p *Proxy) copy(to net.Conn, from io.Reader, a, b net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		now := time.Now()
		a.SetDeadline(now.Add(proxyIdle))
		b.SetDeadline(now.Add(proxyIdle))
		n, err := from.Read(buf)
		if p.bytes.Add(int64(n)) > proxyBytes {
			break
		}
		if n > 0 {
			if _, writeErr := to.Write(buf[:n]); writeErr != nil {
				break
			}
		}
		if errors.Is(err, io.EOF) {
			// Close only this direction, because the other peer may still send data.
			if half, ok := to.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
				return
			}
		}
		if err != nil {
			break
		}
	}
	a.Close()
	b.Close()
}
