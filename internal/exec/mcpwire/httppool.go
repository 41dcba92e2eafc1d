package mcpwire

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The pool speaks HTTP/1.1 to one server. [http.Transport] has two goroutines for each connection and hands
// every request and answer between them. Here the calling goroutine writes the request, with one write, and
// reads the answer.
//
// A request is never sent twice. An idle connection is checked before it is reused: if the server has
// closed it or sent data on it, it is discarded. If the write on a reused connection fails with nothing
// written, another connection is used. Any later failure is returned to the caller.

const (
	dialTime      = 30 * time.Second
	handshakeTime = 10 * time.Second
	idleTime      = 90 * time.Second
	maxIdle       = 64
	maxHead       = 1 << 20 // bytes of an answer's head
	oneWrite      = 64 << 10
	refusalWait   = 100 * time.Millisecond // to read the answer of a server that stopped reading the request
)

// errHTTP2 reports that the server speaks only HTTP/2.
var errHTTP2 = errors.New("the server requires HTTP/2")

type pool struct {
	address string // host and port
	tls     *tls.Config

	mu     sync.Mutex
	idle   []*webConn // the longest idle first
	sweep  *time.Timer
	closed bool
}

// newPool returns a pool for a server; nil if [http.Transport] is required: for a proxy, or a host that
// needs encoding on the wire.
func newPool(u *url.URL) *pool {
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u})
	if !canPeek || err != nil || proxy != nil || !printable(u.Host) || strings.ContainsAny(u.Host, " %") {
		return nil
	}
	p, port := &pool{}, "80"
	if u.Scheme == "https" {
		port = "443"
		p.tls = &tls.Config{ServerName: u.Hostname(), NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}
	}
	p.address = net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port))
	return p
}

// webConn is one connection. It serves one request at a time.
type webConn struct {
	net.Conn
	pool  *pool
	raw   *net.TCPConn
	read  *bufio.Reader
	since time.Time // when it became idle
	used  bool      // it has served a request before

	aborted atomic.Bool
}

// abort ends a pending read or write.
func (c *webConn) abort() {
	c.aborted.Store(true)
	_ = c.SetDeadline(time.Unix(1, 0))
}

// do sends a request and returns the answer as soon as its head has arrived.
func (p *pool) do(req *http.Request, body []byte) (*http.Response, error) {
	ctx := req.Context()
	buffer := heads.Get().(*[]byte)
	defer func() {
		if cap(*buffer) <= oneWrite {
			heads.Put(buffer)
		}
	}()
	var err error
	if *buffer, err = appendRequest((*buffer)[:0], req, len(body)); err != nil {
		return nil, notSent(err)
	}
	for {
		c := p.idleConn()
		if c == nil {
			if c, err = p.dial(ctx); err != nil {
				return nil, err
			}
		}
		stop := context.AfterFunc(ctx, c.abort)
		resp, written, err := c.exchange(req, buffer, body, stop)
		if err == nil {
			return resp, nil
		}
		stop()
		c.Close()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case written == 0 && c.used && p.tls == nil:
			continue // the server had closed it and received nothing
		case written == 0 && p.tls == nil:
			return nil, notSent(err)
		}
		return nil, err
	}
}

var heads = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// exchange writes the request and reads the head of the answer.
func (c *webConn) exchange(
	req *http.Request, head *[]byte, body []byte, stop func() bool,
) (_ *http.Response, written int, err error) {
	if len(*head)+len(body) <= oneWrite {
		*head = append(*head, body...)
		body = nil
	}
	written, err = c.Write(*head)
	if err == nil && len(body) > 0 {
		_, err = c.Write(body)
	}
	if err != nil {
		if written == 0 || c.aborted.Load() {
			return nil, written, err
		}
		// The server may have answered before it read the whole request.
		_ = c.SetReadDeadline(time.Now().Add(refusalWait))
		resp, e := c.answer(req, stop)
		if e != nil || resp.StatusCode < 400 {
			return nil, written, err
		}
		resp.Close = true
		resp.Body.(*webBody).reusable = false
		return resp, written, nil
	}
	resp, err := c.answer(req, stop)
	return resp, written, err
}

// dial opens a connection. After an error, nothing was sent.
func (p *pool) dial(ctx context.Context) (*webConn, error) {
	d := net.Dialer{Timeout: dialTime}
	conn, err := d.DialContext(ctx, "tcp", p.address)
	if err != nil {
		return nil, notSent(err)
	}
	raw, ok := conn.(*net.TCPConn)
	if !ok {
		conn.Close()
		return nil, notSent(fmt.Errorf("a %T is no TCP connection", conn))
	}
	c := &webConn{Conn: conn, pool: p, raw: raw}
	if p.tls != nil {
		secure := tls.Client(conn, p.tls)
		ctx, cancel := context.WithTimeout(ctx, handshakeTime)
		defer cancel()
		if err := secure.HandshakeContext(ctx); err != nil {
			conn.Close()
			op, ok := errors.AsType[*net.OpError](err)
			if ok && op.Op == "remote error" && op.Err.Error() == noApplicationProtocol.Error() {
				return nil, errHTTP2
			}
			return nil, notSent(err)
		}
		c.Conn = secure
	}
	c.read = bufio.NewReaderSize(c.Conn, 4<<10)
	return c, nil
}

// noApplicationProtocol is the alert of a server that does not speak HTTP/1.1. Alerts from the peer have
// another type with the same text.
const noApplicationProtocol = tls.AlertError(120)

// idleConn returns a usable idle connection, or nil.
func (p *pool) idleConn() *webConn {
	for {
		p.mu.Lock()
		n := len(p.idle)
		if n == 0 {
			p.mu.Unlock()
			return nil
		}
		c := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		if time.Since(c.since) < idleTime && isQuiet(c.raw) {
			return c
		}
		c.Close()
	}
}

// put keeps a connection for the next request.
func (p *pool) put(c *webConn) {
	c.since, c.used = time.Now(), true
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= maxIdle {
		c.Close()
		return
	}
	p.idle = append(p.idle, c)
	if p.sweep == nil {
		p.sweep = time.AfterFunc(idleTime, p.tidy)
	}
}

// tidy closes connections that were idle for too long.
func (p *pool) tidy() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = slices.DeleteFunc(p.idle, func(c *webConn) bool {
		old := time.Since(c.since) >= idleTime
		if old {
			c.Close()
		}
		return old
	})
	p.sweep = nil
	if len(p.idle) > 0 && !p.closed {
		p.sweep = time.AfterFunc(idleTime-time.Since(p.idle[0].since), p.tidy)
	}
}

// close closes idle connections, now and from now on.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.idle {
		c.Close()
	}
	p.idle = nil
	if p.sweep != nil {
		p.sweep.Stop()
		p.sweep = nil
	}
}
