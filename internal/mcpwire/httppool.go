package mcpwire

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
)

const (
	dialTimeout      = 30 * time.Second
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 90 * time.Second
	maxIdle          = 64
	maxHead          = 1 << 20 // bytes of a response head
	maxInterim       = 10      // 1xx responses before the final one
)

// pool keeps HTTP/1.1 connections to one server. The goroutine that calls writes
// the request with one write and reads the response; [http.Transport] hands both
// between goroutines, which costs a quarter of a call's CPU.
//
// The pool never sends a request twice. Before it uses an idle connection, it
// looks whether the server has closed it or has sent unexpected bytes. If a
// write to such a connection fails with nothing written, the pool uses another
// connection; any later failure is the caller's.
type pool struct {
	address string // host and port

	mu     sync.Mutex
	idle   []*webConn // the longest idle first
	sweep  *time.Timer
	closed bool
}

// newPool returns a pool for a server, or nil if the server needs
// [http.Transport]: for TLS, a proxy, or a host name that is not ASCII.
func newPool(u *url.URL) *pool {
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u})
	if !canPeek || u.Scheme != "http" || err != nil || proxy != nil || !printable(u.Host) {
		return nil
	}
	port := u.Port()
	if port == "" {
		port = "80"
	}
	return &pool{address: net.JoinHostPort(u.Hostname(), port)}
}

// webConn is one connection. It belongs to one request at a time.
type webConn struct {
	net.Conn
	pool  *pool
	read  *bufio.Reader
	limit int64     // bytes that may still be read
	wrote bool      // some bytes of the current request
	used  bool      // for an earlier request
	since time.Time // when it became idle
}

func (c *webConn) Read(p []byte) (int, error) {
	if c.limit <= 0 {
		return 0, fmt.Errorf("%w: its head has more than %d bytes", errNotHTTP, maxHead)
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.limit)])
	c.limit -= int64(n)
	return n, err
}

func (c *webConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.wrote = c.wrote || n > 0
	return n, err
}

// abort ends the read or write under way.
func (c *webConn) abort() { _ = c.SetDeadline(time.Unix(1, 0)) }

// do sends a request and returns the response once its head is there.
func (p *pool) do(req *http.Request, body []byte) (*http.Response, error) {
	ctx := req.Context()
	for {
		c, err := p.get(ctx)
		if err != nil {
			return nil, notSent(err)
		}
		stop := context.AfterFunc(ctx, c.abort)
		resp, err := c.exchange(req, body, stop)
		if err == nil {
			return resp, nil
		}
		stop()
		c.Close()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !c.wrote && c.used:
			continue // the server had closed the connection and got nothing
		case !c.wrote:
			return nil, notSent(err)
		}
		return nil, err
	}
}

var requestWriters = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, readSize) }}

var errNotHTTP = errors.New("the server did not answer in HTTP/1")

// exchange writes the request and reads the head of the response.
func (c *webConn) exchange(req *http.Request, body []byte, stop func() bool) (*http.Response, error) {
	w := requestWriters.Get().(*bufio.Writer)
	defer requestWriters.Put(w)
	w.Reset(c)
	setBody(req, body)
	if err := errors.Join(req.Write(w), w.Flush()); err != nil {
		return nil, err
	}
	c.limit = maxHead
	for range maxInterim {
		if _, err := c.read.Peek(1); err != nil {
			return nil, err
		}
		resp, err := http.ReadResponse(c.read, req)
		switch {
		case err != nil:
			return nil, err
		case resp.ProtoMajor != 1 || resp.StatusCode == http.StatusSwitchingProtocols:
			return nil, errNotHTTP
		case resp.StatusCode >= 200:
			c.limit = math.MaxInt64
			b := &webBody{body: resp.Body, conn: c, stop: stop, reusable: !resp.Close}
			if resp.Body == http.NoBody {
				b.finish(io.EOF)
			} else {
				resp.Body = b
			}
			return resp, nil
		}
	}
	return nil, errNotHTTP
}

// webBody is the body of a response. It returns its connection to the pool when
// it was read to the end, and closes it when it is closed before.
type webBody struct {
	body     io.Reader
	conn     *webConn // nil after the end
	stop     func() bool
	reusable bool
	err      error
}

func (b *webBody) Read(p []byte) (int, error) {
	if b.conn == nil {
		return 0, b.err
	}
	n, err := b.body.Read(p)
	if err != nil {
		b.finish(err)
	}
	return n, err
}

func (b *webBody) Close() error {
	if b.conn != nil {
		b.finish(http.ErrBodyReadAfterClose)
	}
	return nil
}

func (b *webBody) finish(err error) {
	c := b.conn
	b.conn, b.err = nil, err
	// If stop returns false, abort runs and ends a later use of the connection.
	if b.stop() && err == io.EOF && b.reusable && c.read.Buffered() == 0 {
		c.pool.put(c)
		return
	}
	c.Close()
}

// get returns an idle connection that the server has not touched, or a new one.
func (p *pool) get(ctx context.Context) (*webConn, error) {
	for {
		p.mu.Lock()
		last := len(p.idle) - 1
		if last < 0 {
			p.mu.Unlock()
			return p.dial(ctx)
		}
		c := p.idle[last]
		p.idle[last] = nil
		p.idle = p.idle[:last]
		p.mu.Unlock()
		if time.Since(c.since) < idleTimeout && untouched(c.Conn) {
			c.wrote = false
			return c, nil
		}
		c.Close()
	}
}

func (p *pool) dial(ctx context.Context) (*webConn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "tcp", p.address)
	if err != nil {
		return nil, err
	}
	c := &webConn{Conn: conn, pool: p}
	c.read = bufio.NewReaderSize(c, 4<<10)
	return c, nil
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
		p.sweep = time.AfterFunc(idleTimeout, p.closeOld)
	}
}

// closeOld closes connections that have been idle for idleTimeout.
func (p *pool) closeOld() {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := 0
	for old < len(p.idle) && time.Since(p.idle[old].since) >= idleTimeout {
		p.idle[old].Close()
		old++
	}
	p.idle = append(p.idle[:0], p.idle[old:]...)
	p.sweep = nil
	if len(p.idle) > 0 {
		p.sweep = time.AfterFunc(idleTimeout-time.Since(p.idle[0].since), p.closeOld)
	}
}

// close closes idle connections, and those that become idle later.
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
	}
}

// checkHeader refuses header fields that would change the request around them.
// The error does not contain a value: it may be a secret.
func checkHeader(h http.Header) error {
	for name, values := range h {
		if !httpguts.ValidHeaderFieldName(name) {
			return errors.New("invalid header field name")
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return fmt.Errorf("invalid value of header field %s", name)
			}
		}
	}
	return nil
}

// setBody gives a request its body, without GetBody: net/http then cannot send it
// again. Over HTTP/2 it would believe a server that claims to have refused a
// request.
func setBody(req *http.Request, body []byte) {
	if body != nil {
		req.ContentLength = int64(len(body))
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
}
