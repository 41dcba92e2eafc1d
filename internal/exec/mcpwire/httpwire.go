package mcpwire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// appendRequest writes the head of a request.
func appendRequest(b []byte, req *http.Request, length int) ([]byte, error) {
	b = append(append(b, req.Method...), ' ')
	b = append(b, req.URL.RequestURI()...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(append(b, req.URL.Host...), "\r\n"...)
	if _, own := req.Header["User-Agent"]; !own {
		b = append(b, "User-Agent: ambit\r\n"...)
	}
	for name, values := range req.Header {
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer", "Connection":
			continue // set by this package
		}
		if !httpguts.ValidHeaderFieldName(name) {
			return b, errors.New("a header name is not valid")
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return b, fmt.Errorf("the value of the header %s is not valid", name) // it may be a secret
			}
			b = append(append(append(append(b, name...), ": "...), v...), "\r\n"...)
		}
	}
	if length > 0 || req.Method == http.MethodPost {
		b = append(b, "Content-Length: "...)
		b = append(strconv.AppendInt(b, int64(length), 10), "\r\n"...)
	}
	return append(b, "\r\n"...), nil
}

var errHead = errors.New("the server's answer is not HTTP")

// answer reads the head of the final answer and skips informational ones.
func (c *webConn) answer(req *http.Request, stop func() bool) (*http.Response, error) {
	for range 10 {
		resp, err := readHead(c.read)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode >= 200 {
			resp.Request = req
			return resp, c.frame(resp, stop)
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			return nil, errHead
		}
	}
	return nil, errHead
}

// readHead reads a status line and its headers.
func readHead(r *bufio.Reader) (*http.Response, error) {
	head, err := headBytes(r)
	if err != nil {
		return nil, err
	}
	line, rest, _ := strings.Cut(head, "\n")
	proto, status, _ := strings.Cut(strings.TrimSuffix(line, "\r"), " ")
	resp := &http.Response{Status: status, Proto: proto, ProtoMajor: 1, Header: make(http.Header, 8)}
	code, _, _ := strings.Cut(status, " ")
	resp.StatusCode, err = strconv.Atoi(code)
	if err != nil || len(code) != 3 || resp.StatusCode < 100 {
		return nil, errHead
	}
	switch proto {
	case "HTTP/1.1":
		resp.ProtoMinor = 1
	case "HTTP/1.0":
	default:
		return nil, errHead
	}
	// One array for all single values.
	values := make([]string, 0, strings.Count(rest, "\n"))
	for rest != "" {
		line, rest, _ = strings.Cut(rest, "\n")
		if line = strings.TrimSuffix(line, "\r"); line == "" {
			break
		}
		name, value, ok := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, errHead
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		if had := resp.Header[name]; had != nil {
			resp.Header[name] = append(had, value)
			continue
		}
		values = append(values, value)
		resp.Header[name] = values[len(values)-1 : len(values) : len(values)]
	}
	return resp, nil
}

// headBytes reads up to and including the first empty line.
func headBytes(r *bufio.Reader) (string, error) {
	if _, err := r.Peek(1); err != nil {
		return "", err
	}
	var long []byte
	for {
		buffered, _ := r.Peek(r.Buffered())
		if i := headEnd(buffered); i > 0 && long == nil {
			head := string(buffered[:i])
			_, _ = r.Discard(i)
			return head, nil
		}
		// The head did not arrive in one piece: read line by line.
		line, err := r.ReadSlice('\n')
		long = append(long, line...)
		switch {
		case len(long) > maxHead:
			return "", fmt.Errorf("%w: the headers have more than %d bytes", errHead, maxHead)
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF:
			return "", io.ErrUnexpectedEOF
		case err != nil:
			return "", err
		}
		if bytes.HasSuffix(long, []byte("\n\r\n")) || bytes.HasSuffix(long, []byte("\n\n")) {
			return string(long), nil
		}
	}
}

// headEnd returns the end of the first empty line, or 0.
func headEnd(b []byte) int {
	for from := 0; ; {
		i := bytes.IndexByte(b[from:], '\n')
		if i < 0 {
			return 0
		}
		from += i + 1
		switch rest := b[from:]; {
		case len(rest) > 0 && rest[0] == '\n':
			return from + 1
		case len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n':
			return from + 2
		}
	}
}

// frame determines where the body of an answer ends.
func (c *webConn) frame(resp *http.Response, stop func() bool) error {
	b := &webBody{conn: c, stop: stop, reusable: resp.ProtoMinor == 1}
	for _, v := range resp.Header["Connection"] {
		for word := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(word), "close") {
				b.reusable = false
			}
		}
	}
	resp.ContentLength = -1
	encodings, lengths := resp.Header["Transfer-Encoding"], resp.Header["Content-Length"]
	switch {
	case resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified:
		resp.ContentLength = 0
	case len(encodings) > 0:
		if len(encodings) > 1 || !strings.EqualFold(encodings[0], "chunked") || resp.ProtoMinor == 0 {
			return fmt.Errorf("%w: unknown transfer encoding", errHead)
		}
		b.chunks = httputil.NewChunkedReader(c.read)
	case len(lengths) > 0:
		n, err := strconv.ParseUint(lengths[0], 10, 63)
		if err != nil {
			return fmt.Errorf("%w: the content length is not a number", errHead)
		}
		if slices.ContainsFunc(lengths, func(other string) bool { return other != lengths[0] }) {
			return fmt.Errorf("%w: two content lengths", errHead)
		}
		resp.ContentLength, b.left = int64(n), int64(n)
	default:
		b.toEnd, b.reusable = true, false
	}
	if resp.ContentLength == 0 {
		b.finish(io.EOF)
		resp.Body = http.NoBody
		return nil
	}
	resp.Body = b
	return nil
}

// webBody is the body of an answer. At its end it returns the connection to the pool; closed earlier, it
// closes the connection.
type webBody struct {
	conn     *webConn // nil after the end
	stop     func() bool
	chunks   io.Reader
	left     int64
	toEnd    bool // the body ends with the connection
	reusable bool
	err      error
}

func (b *webBody) Read(p []byte) (n int, err error) {
	if b.conn == nil {
		return 0, b.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	switch {
	case b.chunks != nil:
		if n, err = b.chunks.Read(p); err == io.EOF {
			err = b.trailer()
		}
	case b.toEnd:
		n, err = b.conn.read.Read(p)
	default:
		n, err = b.conn.read.Read(p[:min(int64(len(p)), b.left)])
		switch b.left -= int64(n); {
		case b.left == 0:
			err = io.EOF
		case err == io.EOF:
			err = io.ErrUnexpectedEOF
		}
	}
	if err != nil {
		b.finish(err)
		err = b.err
	}
	return n, err
}

// trailer reads the optional trailer after the last chunk, up to an empty line.
func (b *webBody) trailer() error {
	for size := 0; ; {
		line, err := b.conn.read.ReadSlice('\n')
		switch size += len(line); {
		case err == io.EOF:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		case len(line) <= 2 && (line[0] == '\n' || line[0] == '\r'):
			return io.EOF
		case size > maxHead:
			return errHead
		}
	}
}

// finish releases the connection.
func (b *webBody) finish(err error) {
	c := b.conn
	b.conn, b.err = nil, err
	// After abort the connection cannot be reused.
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
