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

// The modes. All of them refuse addresses that are not public.
const (
	// ModeHTTPS is TLS to port 443 of any host with a name.
	ModeHTTPS Mode = "outbound-https-only"
	// ModeAllowlist is TLS to port 443 of some hosts and their subdomains.
	ModeAllowlist Mode = "allowlist"
	// ModeFull is any port of any host with a name, and plain http.
	ModeFull Mode = "full"
)

// Policy is the traffic that a proxy allows. The zero value allows nothing.
type Policy struct {
	Mode Mode
	// Hosts are the allowed hosts of ModeAllowlist.
	Hosts []string
	// Swaps are the secrets that the program has placeholders for. They require Authority
	// and Finder: without these the proxy refuses the hosts of a swap.
	Swaps     []Swap
	Authority *Authority
	Finder    Finder
}

// Decision is the proxy's decision on one connection.
type Decision struct {
	// Host and Port are as requested; they may be any text.
	Host, Port string
	// Refusal is nil for an allowed connection.
	Refusal *call.Refusal
}

// Proxy is the only network access of one sandbox. It enforces one policy on every
// connection to its listener.
//
// It accepts CONNECT. The host is a name, which the proxy resolves and dials with a
// [Dialer], so that the program cannot choose the address. Before any data passes, the
// program must begin TLS and name the same host: otherwise a tunnel to a host that serves
// many names would reach all of them. The proxy does not see requests inside TLS, and
// cannot stop an allowed host from forwarding data.
type Proxy struct {
	dialer *Dialer
	policy Policy
	// onDecision may be nil.
	onDecision func(Decision)

	slots chan struct{}
	bytes atomic.Int64
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

var errShare = errors.New("the sandbox reached its limit of sent and received bytes")

// NewProxy returns the proxy of one sandbox.
func NewProxy(d *Dialer, p Policy, onDecision func(Decision)) *Proxy {
	return &Proxy{dialer: d, policy: p, onDecision: onDecision, slots: make(chan struct{}, proxyConnections), conns: map[net.Conn]struct{}{}}
}

// Serve accepts connections until the listener is closed. When it returns, all
// connections are closed.
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
		default: // too many connections of one sandbox
			conn.Close()
			continue
		}
		wg.Go(func() {
			defer func() { <-p.slots }()
			defer p.drop(conn)
			if p.keep(conn) {
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

// keep registers a connection, so that Close can close it. It fails after Close.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.conns[c] = struct{}{}
	}
	return !p.ended
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	c.Close()
}

// handle serves one connection: one tunnel, or one plain request.
func (p *Proxy) handle(ctx context.Context, conn net.Conn) {
	conn.SetDeadline(time.Now().Add(proxyGreeting))
	head := &io.LimitedReader{R: conn, N: proxyHeader}
	buffered := bufio.NewReader(head)
	req, err := http.ReadRequest(buffered)
	if err != nil {
		if head.N < proxyHeader { // the program sent something
			r := call.Refuse(Stage, call.HostNotAllowed, "the request to the proxy cannot be parsed")
			p.say("", "", r)
			answer(conn, r)
		}
		return
	}
	// The request counts towards the limit: a URL can carry as much data as a body.
	if p.bytes.Add(proxyHeader-head.N-int64(buffered.Buffered())) > proxyBytes {
		r := call.Refuse(Stage, call.HostNotAllowed, "%v", errShare)
		p.say("", "", r)
		answer(conn, r)
		return
	}
	head.N = proxyBytes // the header has been read
	if req.Method != http.MethodConnect {
		p.plain(ctx, conn, req)
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
		refusal = dialled(host, err)
	}
	if refusal != nil {
		p.say(host, port, refusal)
		answer(conn, refusal)
		return
	}
	defer p.drop(up)
	if !p.keep(up) {
		return
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	from := io.Reader(buffered)
	if p.policy.Mode != ModeFull {
		hello, err := readHello(from)
		if err == nil {
			err = hello.names(host)
		}
		if err != nil {
			p.say(host, port, call.Refuse(Stage, call.HostNotAllowed,
				"the tunnel to %s was not used for TLS with that host: %v", diag.Quote(host), err))
			return
		}
		from = io.MultiReader(strings.NewReader(string(hello.raw)), from)
	}
	p.say(host, port, nil)
	p.join(conn, from, up)
}

// swap serves a tunnel to the host of a secret.
func (p *Proxy) swap(ctx context.Context, conn net.Conn, from io.Reader, host, port string, swaps []Swap) {
	if p.policy.Authority == nil || p.policy.Finder == nil || port != "443" {
		r := call.Refuse(Stage, call.HostNotAllowed, "%s is the host of a credential and can be reached only through the credential proxy", diag.Quote(host))
		p.say(host, port, r)
		answer(conn, r)
		return
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	hello, err := readHello(from)
	if err == nil {
		err = hello.names(host)
	}
	if err == nil {
		p.say(host, port, nil)
		err = p.intercept(ctx, conn, io.MultiReader(strings.NewReader(string(hello.raw)), from), host, swaps)
	}
	if err != nil {
		p.say(host, port, call.Refuse(Stage, call.HostNotAllowed, "the tunnel to %s was not used for TLS with that host: %v", diag.Quote(host), err))
	}
}

// judge checks the target of a CONNECT against the policy.
func (p *Proxy) judge(target string) (host, port string, refusal *call.Refusal) {
	host, port, err := net.SplitHostPort(target)
	if err != nil || strings.ContainsAny(target, "[]") {
		return target, "", call.Refuse(Stage, call.HostNotAllowed, "%s is not a host name and a port", diag.Quote(target))
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
			r := call.Refuse(Stage, call.HostNotAllowed, "%s is not one of the hosts that this program may reach", diag.Quote(name))
			r.Hint = "add it to the manifest's hosts, if the program should reach it"
			return name, port, r
		}
	default:
		return name, port, call.Refuse(Stage, call.HostNotAllowed, "this program has no network")
	}
	if port != "443" {
		return name, port, call.Refuse(Stage, call.HostNotAllowed, "only port 443 may be reached, not %s", diag.Quote(port))
	}
	return name, port, nil
}

// dialled returns the refusal for a failed dial; nil if it succeeded.
func dialled(host string, err error) *call.Refusal {
	if err == nil {
		return nil
	}
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		return r
	}
	return call.Refuse(Stage, call.ServerUnavailable, "%s could not be reached", diag.Quote(host))
}

func (p *Proxy) say(host, port string, r *call.Refusal) {
	if p.onDecision != nil {
		p.onDecision(Decision{Host: host, Port: port, Refusal: r})
	}
}

// answer refuses a request. The text appears in the program's log.
func answer(conn net.Conn, r *call.Refusal) {
	code := http.StatusForbidden
	if r.Code == call.ServerUnavailable {
		code = http.StatusBadGateway
	}
	resp := http.Response{
		StatusCode: code, ProtoMajor: 1, ProtoMinor: 1, Close: true, ContentLength: -1,
		Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, Body: io.NopCloser(strings.NewReader(r.Error() + "\n")),
	}
	resp.Write(conn)
}

// plain forwards a request over plain http, in ModeFull.
func (p *Proxy) plain(ctx context.Context, conn net.Conn, req *http.Request) {
	host, port := req.URL.Hostname(), port(req.URL)
	if p.policy.Mode != ModeFull || req.URL.Scheme != "http" || req.URL.User != nil {
		r := call.Refuse(Stage, call.HostNotAllowed, "the sandbox allows only https, by CONNECT")
		p.say(host, port, r)
		answer(conn, r)
		return
	}
	transport := p.dialer.transport()
	transport.DisableKeepAlives = true
	req.RequestURI = ""
	for _, h := range []string{"Proxy-Connection", "Proxy-Authorization", "Connection"} {
		req.Header.Del(h)
	}
	if req.Body != http.NoBody {
		req.Body = &metered{req.Body, p}
	}
	conn.SetDeadline(time.Now().Add(proxyIdle))
	resp, err := transport.RoundTrip(req.WithContext(ctx))
	r := dialled(host, err)
	p.say(host, port, r)
	if r != nil {
		answer(conn, r)
		return
	}
	defer resp.Body.Close()
	resp.Close = true
	resp.Body = &metered{resp.Body, p}
	resp.Write(conn)
}

// metered counts the bytes that a program sends or receives.
type metered struct {
	io.ReadCloser
	proxy *Proxy
}

func (m *metered) Read(b []byte) (int, error) {
	n, err := m.ReadCloser.Read(b)
	if m.proxy.bytes.Add(int64(n)) > proxyBytes {
		return 0, errShare
	}
	return n, err
}

// join copies in both directions until one side closes, a timeout passes, or the sandbox
// reaches its limit of bytes.
func (p *Proxy) join(conn net.Conn, from io.Reader, up net.Conn) {
	conn.SetDeadline(time.Time{})
	var wg sync.WaitGroup
	wg.Go(func() { p.copy(up, from, conn, up) })
	wg.Go(func() { p.copy(conn, up, conn, up) })
	wg.Wait()
}

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
			// Half closed: the other direction may still send.
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
