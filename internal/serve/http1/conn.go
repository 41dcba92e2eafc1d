package http1

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

const (
	firstBuffer = 4 << 10
	// lingerTime is how long a closing connection is still read, so that a client that is sending
	// can read the response.
	lingerTime = 500 * time.Millisecond
	lingerSize = 256 << 10
)

// aLongTimeAgo is a deadline that ends a read.
var aLongTimeAgo = time.Unix(1, 0)

// States of a connection.
const (
	waiting int32 = iota // for a request
	working
	ended
)

// conn is a connection with plain requests.
type conn struct {
	s      *Server
	nc     net.Conn
	remote string
	ctx    context.Context // parent of the requests' contexts

	buf  []byte // buf[r:w] has been read, but not used
	r, w int
	now  *exchange
	// held and out are buffers of responses: held back, and ready to send.
	held, out []byte

	reading, writing deadline

	state atomic.Int32
	// turn is odd while a request is being answered.
	turn atomic.Uint64

	mu       sync.Mutex
	cancel   context.CancelFunc // cancels the request
	watching chan struct{}      // closed when the watching read has ended
	ahead    []byte             // read by the watcher
}

func newConn(s *Server, nc net.Conn) *conn {
	ctx := context.WithValue(context.Background(), http.ServerContextKey, s.HTTP)
	ctx = context.WithValue(ctx, http.LocalAddrContextKey, nc.LocalAddr())
	c := &conn{s: s, nc: nc, remote: nc.RemoteAddr().String(), ctx: ctx, buf: make([]byte, firstBuffer)}
	c.reading.set, c.writing.set = nc.SetReadDeadline, nc.SetWriteDeadline
	return c
}

// serve answers plain requests until one is not plain, or the connection ends.
func (c *conn) serve() {
	left, first := false, true
	defer func() {
		if !left { // also if a handler panics
			c.end()
		}
	}()
	for {
		n, plain := c.next(first)
		if n == 0 {
			return
		}
		var h head
		if !plain || !h.read(c.buf[c.r:c.r+n]) {
			left = true
			c.leave()
			return
		}
		c.r += n
		if !c.answer(&h) {
			return
		}
		first = false
	}
}

func (c *conn) end() {
	c.state.Store(ended)
	c.s.forget(c)
	_ = c.nc.Close()
}

// leave passes the connection to net/http, with the bytes that were read.
func (c *conn) leave() {
	c.s.forget(c)
	c.reading.clear()
	c.writing.clear()
	c.s.give(withAhead(c.nc, c.buf[c.r:c.w]))
}

// next waits for a head and returns its size; 0 if the connection has ended. It does not wait for
// more of a head that is not plain.
func (c *conn) next(first bool) (n int, plain bool) {
	if c.r == c.w {
		c.r, c.w = 0, 0
		c.state.CompareAndSwap(working, waiting)
		if c.s.closing.Load() {
			return 0, false
		}
		wait := cmp.Or(c.s.HTTP.IdleTimeout, c.s.HTTP.ReadTimeout)
		if first {
			wait = c.s.headTime()
		}
		c.reading.in(wait)
		if c.fill() != nil || !c.state.CompareAndSwap(waiting, working) {
			return 0, false
		}
	}
	for from, slow := c.r, false; ; {
		if end := bytes.Index(c.buf[from:c.w], emptyLine); end >= 0 {
			return from + end + len(emptyLine) - c.r, true
		}
		got := c.buf[c.r:c.w]
		if len(got) >= maxHead || !begins(got) || bareNewline(got) {
			return len(got), false
		}
		if !slow {
			slow = true
			c.reading.in(c.s.headTime())
		}
		from = max(c.r, c.w-len(emptyLine)+1)
		before := c.r
		if c.fill() != nil {
			return 0, false
		}
		from -= before - c.r
	}
}

// bareNewline reports whether a line ends without a carriage return.
func bareNewline(b []byte) bool {
	for i, c := range b {
		if c == '\n' && (i == 0 || b[i-1] != '\r') {
			return true
		}
	}
	return false
}

// fill reads more bytes after the buffered ones.
func (c *conn) fill() error {
	c.grow()
	n, err := c.nc.Read(c.buf[c.w:])
	c.w += n
	if n > 0 {
		return nil
	}
	return err
}

// grow makes space after the buffered bytes.
func (c *conn) grow() {
	if c.w < len(c.buf) {
		return
	}
	grown := c.buf
	if c.r == 0 {
		grown = make([]byte, 2*len(c.buf))
	}
	c.w = copy(grown, c.buf[c.r:c.w])
	c.r, c.buf = 0, grown
}

// exchange is a request and its response. They are not reused, so that a handler that keeps one
// cannot reach the next.
type exchange struct {
	url  url.URL
	body body
	out  response
}

// answer answers a request and reports whether another may follow.
func (c *conn) answer(h *head) (more bool) {
	ctx, cancel := context.WithCancel(c.ctx)
	x := &exchange{url: url.URL{Path: h.path}, body: body{c: c, left: h.length}}
	x.body.unread.Store(h.length > 0)
	x.out = response{c: c, body: &x.body, cancel: cancel, header: make(http.Header, 8), length: -1}
	c.mu.Lock()
	c.now, c.cancel = x, cancel
	c.mu.Unlock()
	c.turn.Add(1)
	if !c.s.looking.Load() && c.s.looking.CompareAndSwap(false, true) {
		go c.s.look()
	}
	// Deferred, because a handler may panic.
	defer func() {
		if p := recover(); p != nil {
			more = false
			if p != http.ErrAbortHandler {
				c.s.logf("panic while serving %s: %v\n%s", c.remote, p, debug.Stack())
			}
		}
		cancel()
		x.out.end()
		whole := x.body.end()
		c.unwatch()
		if !whole {
			c.linger()
			more = false
		}
	}()
	c.s.HTTP.Handler.ServeHTTP(&x.out, c.request(ctx, h, x))
	return x.out.finish()
}

func (c *conn) request(ctx context.Context, h *head, x *exchange) *http.Request {
	r := http.Request{
		Method: h.method, URL: &x.url, RequestURI: h.path, Host: h.host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h.header, Body: &x.body, ContentLength: h.length, RemoteAddr: c.remote,
	}
	if r.ContentLength == 0 {
		r.Body = http.NoBody
	}
	return r.WithContext(ctx)
}

// linger closes the connection of a client that has not sent its whole request.
func (c *conn) linger() {
	if half, ok := c.nc.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_ = c.nc.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, c.nc, lingerSize)
	}
}

// watch reads ahead while a request is being answered, to notice a disconnected client.
func (c *conn) watch(turn uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turn.Load() != turn || c.watching != nil || c.now.body.unread.Load() {
		return
	}
	done := make(chan struct{})
	c.watching = done
	c.reading.clear()
	cancel := c.cancel
	go func() {
		defer close(done)
		b := make([]byte, 1)
		n, err := c.nc.Read(b)
		c.ahead = b[:n] // the next request, sent before this response
		if n == 0 && !errors.Is(err, os.ErrDeadlineExceeded) {
			cancel()
		}
	}()
}

// unwatch ends the turn and waits for the watching read.
func (c *conn) unwatch() {
	c.mu.Lock()
	c.turn.Add(1)
	watched := c.watching
	c.watching = nil
	c.mu.Unlock()
	if watched == nil {
		return
	}
	c.reading.at(aLongTimeAgo)
	<-watched
	if len(c.ahead) > 0 {
		c.grow()
		c.w += copy(c.buf[c.w:], c.ahead)
		c.ahead = nil
	}
}

// endIdle closes the connection if it has no request.
func (c *conn) endIdle() {
	if c.state.CompareAndSwap(waiting, ended) {
		_ = c.nc.Close()
	}
}

// abort closes the connection and cancels its request.
func (c *conn) abort() {
	c.state.Store(ended)
	c.mu.Lock()
	cancel := c.cancel
	c.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	_ = c.nc.Close()
}

type body struct {
	c      *conn
	unread atomic.Bool // some of it may not have arrived

	mu    sync.Mutex
	left  int64
	until time.Time // deadline set by the handler for the whole body; zero means the server's
	own   time.Time // the server's deadline, set at the first wait
	over  bool
}

func (b *body) Read(p []byte) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.over:
		return 0, http.ErrBodyReadAfterClose
	case b.left == 0:
		return 0, io.EOF
	case int64(len(p)) > b.left:
		p = p[:b.left]
	}
	c := b.c
	if c.r < c.w {
		n = copy(p, c.buf[c.r:c.w])
		c.r += n
	} else {
		b.setDeadline()
		if n, err = c.nc.Read(p); err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
	}
	if b.left -= int64(n); b.left == 0 {
		b.unread.Store(false)
		if err == nil {
			err = io.EOF
		}
	}
	return n, err
}

// setDeadline bounds the wait for the whole body, not for each piece.
func (b *body) setDeadline() {
	c := b.c
	if wait := c.s.HTTP.ReadTimeout; b.own.IsZero() && wait > 0 {
		b.own = time.Now().Add(wait)
	}
	switch {
	case !b.until.IsZero():
		c.reading.at(b.until)
	case !b.own.IsZero():
		c.reading.at(b.own)
	default:
		c.reading.clear()
	}
}

// Close does nothing: the connection ends the body.
func (b *body) Close() error { return nil }

// by sets the deadline for the whole body.
func (b *body) by(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = t
}

// here reports whether the whole body has arrived.
func (b *body) here() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over || b.left <= int64(b.c.w-b.c.r)
}

// end skips the unread rest of the body, and reports whether all of it had arrived. Later reads
// fail.
func (b *body) end() (whole bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	if whole = b.left <= int64(b.c.w-b.c.r); whole {
		b.c.r += int(b.left)
	}
	return whole
}

// deadline is a read or write deadline. It moves only if necessary, because moving it costs more
// than a header.
type deadline struct {
	set  func(time.Time) error
	when time.Time
}

// in sets the deadline to wait from now. It may be a sixteenth of wait too early.
func (d *deadline) in(wait time.Duration) {
	if wait <= 0 {
		d.clear()
		return
	}
	d.at(time.Now().Add(wait))
}

func (d *deadline) at(t time.Time) {
	if early := t.Sub(d.when); early >= 0 && early <= time.Until(t)/16 {
		return
	}
	d.when = t
	_ = d.set(t)
}

func (d *deadline) clear() {
	if !d.when.IsZero() {
		d.when = time.Time{}
		_ = d.set(d.when)
	}
}

// withAhead returns a connection that begins with bytes that were already read.
func withAhead(nc net.Conn, ahead []byte) net.Conn {
	if len(ahead) == 0 {
		return nc
	}
	return &begun{nc, ahead}
}

type begun struct {
	net.Conn
	ahead []byte
}

func (b *begun) Read(p []byte) (int, error) {
	if len(b.ahead) > 0 {
		n := copy(p, b.ahead)
		b.ahead = b.ahead[n:]
		return n, nil
	}
	return b.Conn.Read(p)
}

// CloseWrite lets net/http close its side while the client still reads.
func (b *begun) CloseWrite() error {
	if half, ok := b.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
