package http1

import (
	"bytes"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

const (
	// maxHead is the largest plain head.
	maxHead = 16 << 10
	// maxFields is the largest number of header fields in a plain head.
	maxFields = 64
	// maxLength is the largest plain body.
	maxLength = 1 << 20
)

// head is the head of a plain request.
type head struct {
	method, path, host string

	length int64
	header http.Header
	values []string // the backing array of the header's values
}

var methods = []string{http.MethodPost, http.MethodGet, http.MethodDelete}

var (
	version = []byte(" HTTP/1.1\r\n")
	// emptyLine is the end of the last line and an empty line.
	emptyLine = []byte("\r\n\r\n")
)

// read parses a head up to its empty line and reports whether it is plain: a POST, GET or DELETE in
// HTTP/1.1, a path without escapes or elements to clean up, one host, one length for a POST and
// none otherwise, lines that end in CRLF, and no field that changes how the request is read or the
// connection is used.
func (h *head) read(b []byte) bool {
	end := bytes.Index(b, version)
	if end < 0 {
		return false
	}
	text := string(b) // backs everything that is kept
	method, path, ok := strings.Cut(text[:end], " ")
	if !ok || !slices.Contains(methods, method) || !plainPath(path) {
		return false
	}
	h.method, h.path = method, path
	h.header, h.values = make(http.Header, 8), make([]string, 0, 8)
	h.length = -1
	fields := 0
	for rest := text[end+len(version):]; rest != "\r\n"; fields++ {
		line, more, ok := strings.Cut(rest, "\r\n")
		if !ok || fields == maxFields || !h.field(line) {
			return false
		}
		rest = more
	}
	if method != http.MethodPost && h.length < 0 {
		h.length = 0
	} else if method != http.MethodPost {
		return false // a body where none belongs
	}
	return h.host != "" && h.length >= 0
}

// begins reports whether the first bytes may begin a plain request.
func begins(b []byte) bool {
	for _, method := range methods {
		if n := min(len(b), len(method)); string(b[:n]) == method[:n] {
			return true
		}
	}
	return false
}

// field parses one line and reports whether it is plain.
func (h *head) field(line string) bool {
	colon := strings.IndexByte(line, ':')
	if colon <= 0 {
		return false
	}
	name, value := line[:colon], strings.Trim(line[colon+1:], " \t")
	if !isName(name) {
		return false
	}
	for i := range len(value) {
		if c := value[i]; (c < ' ' && c != '\t') || c > '~' {
			return false
		}
	}
	name = textproto.CanonicalMIMEHeaderKey(name)
	switch name {
	case "Host":
		if h.host != "" || !plainHost(value) {
			return false
		}
		h.host = value
		return true // net/http keeps it out of the header, too
	case "Content-Length":
		if h.length >= 0 || !h.setLength(value) {
			return false
		}
	case "Connection":
		if !strings.EqualFold(value, "keep-alive") {
			return false
		}
	case "Transfer-Encoding", "Expect", "Upgrade", "Trailer", "Te", "Proxy-Connection", "Keep-Alive", "Http2-Settings",
		"Pragma": // net/http derives another field from it
		return false
	}
	h.add(name, value)
	return true
}

// add adds a value in the shared backing array.
func (h *head) add(name, value string) {
	if had := h.header[name]; had != nil {
		h.header[name] = append(had, value) // full, so it is copied
		return
	}
	h.values = append(h.values, value)
	n := len(h.values)
	h.header[name] = h.values[n-1 : n : n]
}

func (h *head) setLength(value string) bool {
	if value == "" || len(value) > 7 {
		return false
	}
	h.length = 0
	for i := range len(value) {
		if value[i] < '0' || value[i] > '9' {
			return false
		}
		h.length = h.length*10 + int64(value[i]-'0')
	}
	return h.length <= maxLength
}

// plainPath reports whether a path has no escapes, no query and nothing to clean up.
func plainPath(p string) bool {
	if !strings.HasPrefix(p, "/") {
		return false
	}
	for i := range len(p) {
		switch c := p[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		case (c == '/' || c == '.') && (i == 0 || p[i-1] != '/'):
		default:
			return false
		}
	}
	return true
}

func plainHost(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == ':', c == '[', c == ']':
		default:
			return false
		}
	}
	return s != ""
}

func isName(s string) bool {
	for i := range len(s) {
		if !inName[s[i]] {
			return false
		}
	}
	return s != ""
}

// inName are the bytes of field names.
var inName = func() (in [256]bool) {
	for c := range 256 {
		b := byte(c)
		in[c] = 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0
	}
	return in
}()
