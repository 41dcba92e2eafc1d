package http1

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxHeld is how much of a response is held back, so that small ones are sent in one piece with
// their length.
const maxHeld = 64 << 10

// maxKept is the largest buffer that a connection keeps between responses.
const maxKept = 16 << 10

// response is the response to a request. Writes after the end are discarded.
type response struct {
	c      *conn
	body   *body
	cancel context.CancelFunc // cancels the request
	header http.Header

	mu      sync.Mutex
	status  int       // 0 until it is known
	begun   bool      // the head has been sent
	length  int64     // set by the handler; -1 if it is not
	written int64     // by the handler
	until   time.Time // write deadline of the handler; zero means the server's
	typed   bool      // it has a Content-Type
	chunked bool
	last    bool // the connection closes after this response
	over    bool
	failed  error
}

var (
	_ http.ResponseWriter = (*response)(nil)
	_ http.Flusher        = (*response)(nil)
)

// errOver is returned to handlers that write after they have returned.
var errOver = errors.New("http1: write after the end of the response")

func (w *response) Header() http.Header { return w.header }

func (w *response) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setStatus(status)
}

// setStatus fixes the status and the header fields at the first call. It ignores informational
// statuses (1xx).
func (w *response) setStatus(status int) {
	if w.over || w.status != 0 || status < 200 {
		return
	}
	w.status = status
	h := w.header
	_, w.typed = h["Content-Type"]
	if h.Get("Content-Encoding") != "" {
		w.typed = true // the encoded bytes do not show the type
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
	names := slices.AppendSeq(make([]string, 0, 16), maps.Keys(h))
	slices.Sort(names)
	for _, name := range names {
		if name == "Date" || name == "Transfer-Encoding" || name == "Content-Length" && w.length < 0 {
			continue // set by the connection
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

// Flush implements [http.Flusher].
func (w *response) Flush() { _ = w.FlushError() }

// FlushError implements an interface of [http.ResponseController].
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

// SetWriteDeadline implements an interface of [http.ResponseController]. It applies to later writes
// of this response only.
func (w *response) SetWriteDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = t
	return nil
}

// SetReadDeadline implements an interface of [http.ResponseController]. It applies to the rest of
// the body; zero means the server's own.
func (w *response) SetReadDeadline(t time.Time) error {
	w.body.by(t)
	return nil
}

// finish sends the rest, and reports whether another request can follow.
func (w *response) finish() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setStatus(http.StatusOK)
	w.send(true)
	w.over = true // before the client can see the end of the response
	return w.failed == nil && !w.last && (w.length < 0 || w.written == w.length || !hasBody(w.status))
}

// end rejects later writes and discards unsent bytes.
func (w *response) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.c.held, w.c.out = kept(w.c.held), kept(w.c.out)
}

// send sends the held bytes. The last piece of a response that has not begun is all of it, so its
// length is known.
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

// frame appends a piece of the body to the output.
func (w *response) frame(p []byte) {
	c := w.c
	if !w.chunked {
		c.out = append(c.out, p...)
	} else if len(p) > 0 {
		c.out = append(append(appendSize(c.out, p), p...), "\r\n"...)
	}
}

// pass sends a large piece without copying.
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

// push writes to the client. After an error the request is cancelled.
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

// kept returns a buffer for reuse, unless it has grown too large.
func kept(b []byte) []byte {
	if cap(b) > maxKept {
		return nil
	}
	return b[:0]
}

// endHead appends the fields that describe the transfer, and ends the head.
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

// appendField appends one field. The value cannot begin another field.
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

// hasBody reports whether responses with this status have a body.
func hasBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// date is a formatted second.
type date struct {
	second int64
	text   string
}

var lastDate atomic.Pointer[date]

// today is the current time in the format of HTTP, formatted once a second.
func today() string {
	now := time.Now()
	if d := lastDate.Load(); d != nil && d.second == now.Unix() {
		return d.text
	}
	d := &date{now.Unix(), now.UTC().Format(http.TimeFormat)}
	lastDate.Store(d)
	return d.text
}
