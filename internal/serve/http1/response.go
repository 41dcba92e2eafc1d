package http1

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxHeld is how much of an answer is held back, so that small ones leave in one
// piece and with their length.
const maxHeld = 64 << 10

// maxKept is how much room a connection keeps between answers.
const maxKept = 16 << 10

// response is the answer to a request. Whoever writes to it when it is over
// writes to nobody.
type response struct {
	c      *conn
	body   *body
	cancel context.CancelFunc // of the request
	header http.Header

	mu      sync.Mutex
	status  int       // 0 until it is known
	begun   bool      // the head has left
	length  int64     // what the handler has named; -1 if it has not
	written int64     // by the handler
	until   time.Time // when what is sent must have been taken; zero leaves that to the server
	typed   bool      // it has a Content-Type
	chunked bool
	last    bool // no request is taken after this one
	over    bool
	failed  error
}

var (
	_ http.ResponseWriter = (*response)(nil)
	_ http.Flusher        = (*response)(nil)
)

// errOver is what handlers get that write when they have returned.
var errOver = errors.New("http1: the answer is over")

func (w *response) Header() http.Header { return w.header }

func (w *response) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setStatus(status)
}

// setStatus has the first one count, with the fields as they are then. Those
// before it, of 1xx, say nothing that is needed here.
func (w *response) setStatus(status int) {
	if w.over || w.status != 0 || status < 200 {
		return
	}
	w.status = status
	h := w.header
	_, w.typed = h["Content-Type"]
	if h.Get("Content-Encoding") != "" {
		w.typed = true // what is seen is not what it is
	}
	w.last = strings.EqualFold(h.Get("Connection"), "close")
	if text := h["Content-Length"]; len(text) == 1 && hasBody(status) {
		if n, err := strconv.ParseInt(text[0], 10, 64); err == nil && n >= 0 {
			w.length = n
		}
	}
	b := append(w.c.out, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(append(append(b, ' '), http.StatusText(status)...), "\r\n"...)
	names := make([]string, 0, 16)
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if name == "Date" || name == "Transfer-Encoding" || name == "Content-Length" && w.length < 0 {
			continue // these are the connection's
		}
		for _, value := range h[name] {
			b = appendField(b, name, value)
		}
	}
	w.c.out = b
}

func (w *response) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return 0, errOver
	}
	w.setStatus(http.StatusOK)
	switch {
	case w.failed != nil:
		return 0, w.failed
	case !hasBody(w.status):
		return 0, http.ErrBodyNotAllowed
	case w.length >= 0 && int64(len(p)) > w.length-w.written:
		return 0, http.ErrContentLength
	}
	w.written += int64(len(p))
	if !w.typed && !w.begun && len(p) > 0 {
		w.typed = true
		w.c.out = appendField(w.c.out, "Content-Type", http.DetectContentType(p))
	}
	if c := w.c; len(c.held)+len(p) <= maxHeld {
		c.held = append(c.held, p...)
		return len(p), nil
	}
	w.send(false)
	w.pass(p)
	return len(p), w.failed
}

// Flush is for handlers that look for a [http.Flusher].
func (w *response) Flush() { _ = w.FlushError() }

// FlushError is for [http.ResponseController].
func (w *response) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return errOver
	}
	w.setStatus(http.StatusOK)
	w.send(false)
	return w.failed
}

// SetWriteDeadline is for [http.ResponseController]. It holds for what is written
// from then on, and not for the next answer.
func (w *response) SetWriteDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = t
	return nil
}

// SetReadDeadline is for [http.ResponseController]. It is for what is left of
// the body; none means the server's own.
func (w *response) SetReadDeadline(t time.Time) error {
	w.body.by(t)
	return nil
}

// finish sends what is left, and reports whether another request can follow.
func (w *response) finish() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setStatus(http.StatusOK)
	w.send(true)
	w.over = true // before anybody is told that the request has ended
	return w.failed == nil && !w.last && (w.length < 0 || w.written == w.length || !hasBody(w.status))
}

// end lets nobody write any more, and forgets what has not left.
func (w *response) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.c.held, w.c.out = kept(w.c.held), kept(w.c.out)
}

// send lets go of what was held back. The last piece of an answer that has not
// begun is all of it, so its length is known.
func (w *response) send(all bool) {
	if !w.begun {
		w.begun = true
		w.endHead(all)
	}
	c := w.c
	w.frame(c.held)
	c.held = kept(c.held)
	if w.chunked && all {
		c.out = append(c.out, "0\r\n\r\n"...)
	}
	if len(c.out) > 0 {
		w.push(net.Buffers{c.out})
	}
	c.out = kept(c.out)
}

// frame puts a piece of the body behind what leaves.
func (w *response) frame(p []byte) {
	c := w.c
	if !w.chunked {
		c.out = append(c.out, p...)
	} else if len(p) > 0 {
		c.out = append(append(appendSize(c.out, p), p...), "\r\n"...)
	}
}

// pass sends a large piece as it is.
func (w *response) pass(p []byte) {
	if w.chunked {
		w.push(net.Buffers{appendSize(nil, p), p, []byte("\r\n")})
	} else {
		w.push(net.Buffers{p})
	}
}

func appendSize(b, chunk []byte) []byte {
	return append(strconv.AppendInt(b, int64(len(chunk)), 16), "\r\n"...)
}

// push writes to the client. One that cannot be written to is gone.
func (w *response) push(pieces net.Buffers) {
	if w.failed != nil {
		return
	}
	if w.until.IsZero() {
		w.c.writing.in(w.c.s.HTTP.WriteTimeout)
	} else {
		w.c.writing.at(w.until)
	}
	if len(pieces) == 1 {
		_, w.failed = w.c.nc.Write(pieces[0])
	} else {
		_, w.failed = pieces.WriteTo(w.c.nc)
	}
	if w.failed != nil {
		w.cancel()
	}
}

// kept is room for the next time, unless it has grown too large to keep.
func kept(b []byte) []byte {
	if cap(b) > maxKept {
		return nil
	}
	return b[:0]
}

// endHead writes the fields that say how the answer is sent, and ends its head.
func (w *response) endHead(all bool) {
	c := w.c
	b := append(append(c.out, "Date: "...), today()...)
	switch {
	case w.length >= 0 || !hasBody(w.status):
	case all:
		b = append(b, "\r\nContent-Length: "...)
		b = strconv.AppendInt(b, int64(len(c.held)), 10)
	default:
		w.chunked = true
		b = append(b, "\r\nTransfer-Encoding: chunked"...)
	}
	if !w.last && (c.s.closing.Load() || !w.body.here()) {
		w.last = true
		b = append(b, "\r\nConnection: close"...)
	}
	c.out = append(b, "\r\n\r\n"...)
}

// appendField writes one field. Nothing in it can begin another one.
func appendField(b []byte, name, value string) []byte {
	if !isName(name) {
		return b
	}
	b = append(append(b, name...), ": "...)
	from := len(b)
	b = append(b, value...)
	for i, c := range b[from:] {
		if c == '\r' || c == '\n' || c == 0 {
			b[from+i] = ' '
		}
	}
	return append(b, "\r\n"...)
}

// hasBody reports whether answers of a status have a body.
func hasBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// date is a moment as answers write it.
type date struct {
	second int64
	text   string
}

var lastDate atomic.Pointer[date]

// today is the time as answers write it, made once a second.
func today() string {
	now := time.Now()
	if d := lastDate.Load(); d != nil && d.second == now.Unix() {
		return d.text
	}
	d := &date{now.Unix(), now.UTC().Format(http.TimeFormat)}
	lastDate.Store(d)
	return d.text
}
