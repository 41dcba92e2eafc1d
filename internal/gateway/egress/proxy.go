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

// Mode is what a [Proxy] lets through.
type Mode string

// The modes. None of them leads to an address that is not public.
const (
	// ModeHTTPS is TLS to port 443 of any host with a name.
	ModeHTTPS Mode = "outbound-https-only"
	// ModeAllowlist is that, to some hosts and names below them.
	ModeAllowlist Mode = "allowlist"
	// ModeFull is any port of any host with a name, and plain http.
	ModeFull Mode = "full"
)

// Policy says what a proxy lets through. The zero value is nothing.
type Policy struct {
	Mode Mode
	// Hosts are those of ModeAllowlist.
	Hosts []string
	// Swaps are the secrets that the program names without having them.
	// Authority and Finder must be there with them: nothing goes to the hosts of
	// a swap without.
	Swaps     []Swap
	Authority *Authority
	Finder    Finder
}

// Decision is the proxy's word on one connection.
type Decision struct {
	// Host and Port are as asked for; they may be anything.
	Host, Port string
	// Refusal is nil for what was let through.
	Refusal *call.Refusal
}

// Proxy is the way out of one sandbox. It has one policy, and whoever comes by
// its listener is held to it: who is asking is never a question.
//
// It takes CONNECT. The host is a name, which is resolved here and dialled by a
// [Dialer], so that the program never says where a name leads. Before anything
// passes, the program's side must begin TLS and name the same host: a tunnel to
// a host that serves many names would else lead to all of them. What a server
// does with requests inside TLS cannot be seen; nor can a host that is allowed
// be kept from handing on what it is sent.
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

var errShare = errors.New("the sandbox has sent and received its share")

// NewProxy makes the proxy of one sandbox.
func NewProxy(d *Dialer, p Policy, onDecision func(Decision)) *Proxy {
	return &Proxy{dialer: d, policy: p, onDecision: onDecision, slots: make(chan struct{}, proxyConnections), conns: map[net.Conn]struct{}{}}
}

// Serve takes connections until the listener is closed. When it returns, all
// of them have ended.
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
		default: // as many as one sandbox may have
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

// keep remembers a connection, so that it can be ended; not if all have been.
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
		if head.N < proxyHeader { // something came
			r := call.Refuse(Stage, call.HostNotAllowed, "the request for a way out cannot be read")
			p.say("", "", r)
			answer(conn, r)
		}
		return
	}
	// What is asked counts too: a URL carries out as much as a body.
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
			p.say(host, port, call.Refuse(Stage, call.HostNotAllowed, "the tunnel to %s was not used for TLS with that host: %v", diag.Quote(host), err))
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
		r := call.Refuse(Stage, call.HostNotAllowed, "%s is the host of a credential, and can be reached only where that is watched", diag.Quote(host))
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

// judge reads where a CONNECT wants to go and holds it to the policy.
func (p *Proxy) judge(target string) (host, port string, refusal *call.Refusal) {
	host, port, err := net.SplitHostPort(target)
	if err != nil || strings.ContainsAny(target, "[]") {
		return target, "", call.Refuse(Stage, call.HostNotAllowed, "%s is not the name of a host and a port", diag.Quote(target))
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

// dialled is why a host could not be reached; nil if it was.
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

// answer refuses a request. The text is for whoever reads the program's log.
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

// plain hands on a request over plain http, where everything is allowed.
func (p *Proxy) plain(ctx context.Context, conn net.Conn, req *http.Request) {
	host, port := req.URL.Hostname(), port(req.URL)
	if p.policy.Mode != ModeFull || req.URL.Scheme != "http" || req.URL.User != nil {
		r := call.Refuse(Stage, call.HostNotAllowed, "only https leaves the sandbox, by CONNECT")
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

// metered counts what a program sends, or is sent.
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

// join copies both ways until one side ends, stays silent for long, or the
// sandbox has sent and received its share.
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
			// Half closed: the other direction may still have something to say.
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
