package mcpwire

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
)

// A pool contains HTTP/1.1 connections to one server. [http.Transport] runs two goroutines for each connection: one
// writes the requests, and one reads the responses. With a pool, the calling goroutine sends the request in one write
// and reads the response itself.
//
// A request is never sent twice. Before an idle connection is reused, the pool checks it, and discards it if the
// server has closed it or sent data on it. If not even the first byte can be written to a reused connection, the pool
// uses another connection. Any later failure is returned to the caller.

const (
	dialTime      = 30 * time.Second       // the time limit for connecting
	handshakeTime = 10 * time.Second       // the time limit for a TLS handshake
	idleTime      = 90 * time.Second       // how long an idle connection is kept
	maxIdle       = 64                     // the maximum number of idle connections
	maxHead       = 1 << 20                // the maximum size of a status line with its headers
	refusalWait   = 100 * time.Millisecond // how long to wait for a response if only part of the request was sent
)

// pool contains the idle connections to one server.
type pool struct {
	address string // host and port

	mu     sync.Mutex
	idle   []*webConn // sorted by the time when each connection became idle, oldest first
	sweep  *time.Timer
	closed bool
}

// newPool returns a pool for the server of a URL. It returns nil if [http.Transport] must be used instead: for TLS, a
// proxy, a host name that must be encoded, or a system that cannot check idle connections.
func newPool(u *url.URL) *pool {
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u})
	if !canPeek || u.Scheme != "http" || err != nil || proxy != nil ||
		!isPrintable(u.Host) || strings.ContainsAny(u.Host, " %") {
		return nil
	}
	return &pool{address: net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80"))}
}

// webConn is a connection in a pool. It serves one request at a time.
type webConn struct {
	net.Conn
	pool  *pool
	read  *bufio.Reader
	since time.Time // the time when the connection became idle
	used  bool      // set if the connection has already served a request

	aborted atomic.Bool // abort was called
}

// abort makes all pending and later reads and writes fail.
func (c *webConn) abort() {
	c.aborted.Store(true)
	_ = c.SetDeadline(time.Unix(1, 0))
}

// do sends a request and returns the response as soon as the response headers have arrived.
func (p *pool) do(req *http.Request, body []byte) (*http.Response, error) {
	ctx := req.Context()
	message, err := encodeRequest(req, body)
	if err != nil {
		return nil, notSent(err)
	}
	for {
		c := p.idleConn()
		if c == nil {
			d := net.Dialer{Timeout: dialTime}
			conn, err := d.DialContext(ctx, "tcp", p.address)
			if err != nil {
				return nil, notSent(err)
			}
			c = &webConn{Conn: conn, pool: p, read: bufio.NewReaderSize(conn, 4<<10)}
		}
		stop := context.AfterFunc(ctx, c.abort)
		resp, written, err := c.exchange(req, message, stop)
		if err == nil {
			return resp, nil
		}
		stop()
		c.Close()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case written > 0:
			return nil, err
		case !c.used:
			return nil, notSent(err)
		}
		// The server closed the idle connection and received nothing. Try another connection.
	}
}

// exchange writes a request and reads the status line and headers of the response. The second result is the number of
// request bytes that were written.
func (c *webConn) exchange(
	req *http.Request, message []byte, stop func() bool,
) (_ *http.Response, written int, err error) {
	written, err = c.Write(message)
	if err == nil {
		resp, err := c.readResponse(req, stop, true)
		return resp, written, err
	}
	if written == 0 || c.aborted.Load() {
		return nil, written, err
	}
	// The server may have sent an error response without reading the whole request.
	_ = c.SetReadDeadline(time.Now().Add(refusalWait))
	resp, e := c.readResponse(req, stop, false)
	if e != nil || resp.StatusCode < 400 {
		return nil, written, err
	}
	return resp, written, nil
}

// idleConn removes a usable idle connection from the pool and returns it. It returns nil if there is none.
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
		if time.Since(c.since) < idleTime && isQuiet(c.Conn) {
			return c
		}
		c.Close()
	}
}

// put returns a connection to the pool.
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
		p.sweep = time.AfterFunc(idleTime, p.closeExpired)
	}
}

// closeExpired closes connections that have been idle for at least idleTime.
func (p *pool) closeExpired() {
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
		p.sweep = time.AfterFunc(idleTime-time.Since(p.idle[0].since), p.closeExpired)
	}
}

// close closes all idle connections. Connections that are returned to the pool later are closed too.
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

// encodeRequest encodes a request together with its body, so that both can be sent in one write.
func encodeRequest(req *http.Request, body []byte) ([]byte, error) {
	b := make([]byte, 0, 1<<10+len(body))
	b = append(b, req.Method+" "+req.URL.RequestURI()+" HTTP/1.1\r\nHost: "+req.URL.Host+"\r\n"...)
	if _, own := req.Header["User-Agent"]; !own {
		b = append(b, "User-Agent: ambit\r\n"...)
	}
	for name, values := range req.Header {
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer", "Connection":
			continue // the pool sets these headers
		}
		if !httpguts.ValidHeaderFieldName(name) {
			return nil, errors.New("a header name is not valid")
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				// The value may be a secret, so do not quote it.
				return nil, fmt.Errorf("the value of the header %s is not valid", name)
			}
			b = append(append(append(append(b, name...), ": "...), v...), "\r\n"...)
		}
	}
	if len(body) > 0 || req.Method == http.MethodPost {
		b = append(b, "Content-Length: "...)
		b = append(strconv.AppendInt(b, int64(len(body)), 10), "\r\n"...)
	}
	return append(append(b, "\r\n"...), body...), nil
}

var errHead = errors.New("the server's response is not valid HTTP")

// readResponse reads the status line and the headers of a response, and skips informational responses (1xx). If
// reusable is false, the connection is closed after the response.
func (c *webConn) readResponse(req *http.Request, stop func() bool, reusable bool) (*http.Response, error) {
	for range 10 {
		resp, err := readHead(c.read)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode >= 200 {
			resp.Request = req
			return resp, c.frame(resp, stop, reusable)
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			break
		}
	}
	return nil, errHead
}

// readHead reads and parses a status line and the headers after it.
func readHead(r *bufio.Reader) (*http.Response, error) {
	head, err := headText(r)
	if err != nil {
		return nil, err
	}
	line, rest, _ := strings.Cut(head, "\n")
	proto, status, _ := strings.Cut(strings.TrimSuffix(line, "\r"), " ")
	resp := &http.Response{Status: status, Proto: proto, ProtoMajor: 1, Header: make(http.Header, 8)}
	code, _, _ := strings.Cut(status, " ")
	resp.StatusCode, err = strconv.Atoi(code)
	if err != nil || len(code) != 3 || resp.StatusCode < 100 || proto != "HTTP/1.1" && proto != "HTTP/1.0" {
		return nil, errHead
	}
	resp.ProtoMinor = int(proto[len(proto)-1] - '0')
	for line := range strings.SplitSeq(rest, "\n") {
		if line = strings.TrimSuffix(line, "\r"); line == "" {
			break
		}
		name, value, ok := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, errHead
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		resp.Header[name] = append(resp.Header[name], value)
	}
	return resp, nil
}

// headText reads a status line and headers, up to and including the empty line at the end.
func headText(r *bufio.Reader) (string, error) {
	head := make([]byte, 0, 512)
	for {
		line, err := r.ReadSlice('\n')
		head = append(head, line...)
		switch {
		case len(head) > maxHead:
			return "", fmt.Errorf("%w: the headers have more than %d bytes", errHead, maxHead)
		case err == io.EOF && len(head) > 0:
			return "", io.ErrUnexpectedEOF
		case err != nil && err != bufio.ErrBufferFull:
			return "", err
		case bytes.HasSuffix(head, []byte("\n\r\n")) || bytes.HasSuffix(head, []byte("\n\n")):
			return string(head), nil
		}
	}
}

// frame determines where the body of a response ends, and sets resp.Body.
func (c *webConn) frame(resp *http.Response, stop func() bool, reusable bool) error {
	b := &webBody{conn: c, stop: stop, body: c.read, reusable: reusable && resp.ProtoMinor == 1}
	if httpguts.HeaderValuesContainsToken(resp.Header["Connection"], "close") {
		b.reusable = false
	}
	resp.Body, resp.ContentLength, b.left = b, -1, -1
	encodings, lengths := resp.Header["Transfer-Encoding"], resp.Header["Content-Length"]
	switch {
	case resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified:
		resp.ContentLength = 0
	case len(encodings) > 0:
		if len(encodings) > 1 || !strings.EqualFold(encodings[0], "chunked") || resp.ProtoMinor == 0 {
			return fmt.Errorf("%w: Transfer-Encoding is not chunked", errHead)
		}
		b.body, b.chunked = httputil.NewChunkedReader(c.read), true
	case len(lengths) > 0:
		n, err := strconv.ParseUint(lengths[0], 10, 63)
		if err != nil || len(slices.Compact(lengths)) > 1 {
			return fmt.Errorf("%w: Content-Length is not a single number", errHead)
		}
		resp.ContentLength, b.left, b.body = int64(n), int64(n), io.LimitReader(c.read, int64(n))
	default:
		b.reusable = false // the body ends when the server closes the connection
	}
	if resp.ContentLength == 0 {
		b.finish(io.EOF)
		resp.Body = http.NoBody
	}
	return nil
}

// webBody is the body of a response. When the whole body has been read, the connection returns to the pool. If the body
// is closed earlier, the connection is closed too.
type webBody struct {
	conn     *webConn // nil after the body was completely read or closed
	stop     func() bool
	body     io.Reader
	chunked  bool
	left     int64 // the number of unread bytes; negative if the length is unknown
	reusable bool
	err      error
}

func (b *webBody) Read(p []byte) (int, error) {
	if b.conn == nil {
		return 0, b.err
	}
	n, err := b.body.Read(p)
	b.left -= int64(n)
	switch {
	case b.left == 0:
		err = io.EOF
	case err == nil:
		return n, nil
	case err == io.EOF && b.chunked:
		err = b.trailer()
	case err == io.EOF && b.left > 0:
		err = io.ErrUnexpectedEOF
	}
	b.finish(err)
	return n, b.err
}

// maxTrailers is the maximum number of lines after the last chunk.
const maxTrailers = 100

// trailer reads the optional trailer after the last chunk, up to an empty line.
func (b *webBody) trailer() error {
	for range maxTrailers {
		line, err := b.conn.read.ReadSlice('\n')
		switch {
		case err == io.EOF:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		case len(bytes.TrimRight(line, "\r\n")) == 0:
			return io.EOF
		}
	}
	return errHead
}

// finish ends the body. Later reads return err, or errAborted if abort caused err. If err is io.EOF and the
// connection is reusable, finish returns the connection to the pool. Otherwise, finish closes the connection.
func (b *webBody) finish(err error) {
	c := b.conn
	b.conn, b.err = nil, err
	// If stop returns false, abort was called and the connection is unusable.
	unharmed := b.stop()
	if errors.Is(err, os.ErrDeadlineExceeded) && c.aborted.Load() {
		b.err = errAborted
	}
	if err == io.EOF && unharmed && b.reusable && c.read.Buffered() == 0 {
		c.pool.put(c)
		return
	}
	c.Close()
}

var errAborted = errors.New("the request was aborted")

func (b *webBody) Close() error {
	if b.conn != nil {
		b.finish(http.ErrBodyReadAfterClose)
	}
	return nil
}
