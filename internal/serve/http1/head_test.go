package http1

import (
	"bufio"
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

const plainHead = "POST /mcp/x HTTP/1.1\r\nHost: 127.0.0.1:80\r\nContent-Type: application/json\r\nAccept: application/json\r\nAccept: text/event-stream\r\nContent-Length: 3\r\n\r\n"

// A plain head, then one deviation at a time.
func TestPlain(t *testing.T) {
	with := func(fields string) string {
		return strings.Replace(plainHead, "Content-Length: 3\r\n", "Content-Length: 3\r\n"+fields, 1)
	}
	swap := func(old, with string) string { return strings.Replace(plainHead, old, with, 1) }
	for _, c := range []struct {
		name, head string
		plain      bool
	}{
		{"a request as clients send it", plainHead, true},
		{"names in small letters", strings.ToLower(plainHead[20:]), false},
		{"a name in small letters", swap("Content-Length", "content-length"), true},
		{"no space before a value", swap("Host: ", "Host:"), true},
		{"an empty value", with("X-Empty:\r\n"), true},
		{"no body", swap("Content-Length: 3", "Content-Length: 0"), true},
		{"keep-alive", with("Connection: Keep-Alive\r\n"), true},
		{"the root", swap("/mcp/x", "/"), true},
		{"a GET without a body", "GET /mcp/x HTTP/1.1\r\nHost: a\r\n\r\n", true},
		{"a DELETE without a body", "DELETE /mcp/x HTTP/1.1\r\nHost: a\r\n\r\n", true},
		{"a DELETE with a body", "DELETE /mcp/x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", false},
		{"a HEAD", "HEAD /mcp/x HTTP/1.1\r\nHost: a\r\n\r\n", false},

		{"a GET with a body", swap("POST", "GET"), false},
		{"another method", swap("POST", "PUT"), false},
		{"a method in small letters", swap("POST", "post"), false},
		{"an older version", swap("HTTP/1.1", "HTTP/1.0"), false},
		{"a newer version", swap("HTTP/1.1", "HTTP/1.2"), false},
		{"two spaces", swap("POST ", "POST  "), false},
		{"a space at the end of the first line", swap("HTTP/1.1\r", "HTTP/1.1 \r"), false},
		{"a space in the path", swap("/mcp/x", "/mcp/ x"), false},
		{"a whole URL", swap("/mcp/x", "http://127.0.0.1/mcp/x"), false},
		{"a query", swap("/mcp/x", "/mcp/x?a=b"), false},
		{"an escape", swap("/mcp/x", "/mcp/%78"), false},
		{"a fragment", swap("/mcp/x", "/mcp/x#y"), false},
		{"dots", swap("/mcp/x", "/mcp/../x"), false},
		{"a dot at the start of a name", swap("/mcp/x", "/mcp/.x"), false},
		{"two slashes", swap("/mcp/x", "/mcp//x"), false},
		{"a bare newline after a field", swap("json\r\n", "json\n"), false},
		{"a bare carriage return in a value", swap("json\r\n", "js\ron\r\n"), false},
		{"a continued line", with("X-A: b\r\n c\r\n"), false},
		{"a space before the colon", swap("Host:", "Host :"), false},
		{"no colon", with("X-A\r\n"), false},
		{"no name", with(": a\r\n"), false},
		{"an odd name", with("X(A): b\r\n"), false},
		{"a zero byte", with("X-A: \x00\r\n"), false},
		{"a byte that is not ASCII", with("X-A: \xc3\xa4\r\n"), false},
		{"no host", swap("Host: 127.0.0.1:80\r\n", ""), false},
		{"an empty host", swap("127.0.0.1:80", ""), false},
		{"two hosts", with("Host: b\r\n"), false},
		{"an odd host", swap("127.0.0.1:80", "a@b"), false},
		{"no length", swap("Content-Length: 3\r\n", ""), false},
		{"two lengths", with("Content-Length: 3\r\n"), false},
		{"a list of lengths", swap(": 3", ": 3, 3"), false},
		{"a signed length", swap(": 3", ": +3"), false},
		{"a length in another base", swap(": 3", ": 0x3"), false},
		{"an empty length", swap(": 3", ": "), false},
		{"a large length", swap(": 3", ": 1048577"), false},
		{"a huge length", swap(": 3", ": 99999999999999999999"), false},
		{"chunks", with("Transfer-Encoding: chunked\r\n"), false},
		{"chunks in other letters", with("transfer-ENCODING: chunked\r\n"), false},
		{"something expected", with("Expect: 100-continue\r\n"), false},
		{"another protocol", with("Upgrade: h2c\r\n"), false},
		{"the last request", with("Connection: close\r\n"), false},
		{"fields of this connection only", with("Connection: keep-alive, X-A\r\n"), false},
		{"trailers", with("Trailer: X-A\r\n"), false},
		{"an older way to say no-cache", with("Pragma: no-cache\r\n"), false},
		{"too many fields", with(strings.Repeat("X-A: b\r\n", maxFields)), false},
	} {
		var h head
		if h.read([]byte(c.head)) != c.plain {
			t.Errorf("%s: plain is %v", c.name, !c.plain)
		}
	}
}

// A plain head means to net/http what it means here.
func FuzzHead(f *testing.F) {
	f.Add([]byte(plainHead))
	for _, odd := range []string{
		"Connection: keep-alive\r\n", "Cookie: a=b; c=d\r\nCookie: e\r\n", "X-A: \t b \t\r\n", "x-a: b\r\nX-A: c\r\n", "Transfer-Encoding: chunked\r\n",
		"Content-Length: 5\r\n", "Host: other\r\n", " folded\r\n", "A:b\r\nA :c\r\n", "Content_Length: 7\r\n", "Mcp-Session-Id: abc\r\n", "X: a\rb\r\n", "X: a\nY: b\r\n", "Pragma: no-cache\r\n",
	} {
		f.Add([]byte(strings.Replace(plainHead, "Content-Length: 3\r\n", "Content-Length: 3\r\n"+odd, 1)))
	}
	f.Add([]byte("GET /mcp/x HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n"))
	f.Add([]byte("DELETE /mcp/x HTTP/1.1\r\nHost: a\r\nMcp-Session-Id: b\r\n\r\n"))
	f.Add([]byte("POST / HTTP/1.1\r\nHost:a\r\nContent-Length:0\r\n\r\n"))
	f.Add([]byte("POST /a.b/c- HTTP/1.1\r\nHost: [::1]:8\r\nContent-Length: 0003\r\nAuthorization: Bearer x\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		end := bytes.Index(b, emptyLine)
		if end < 0 {
			return
		}
		b = b[:end+len(emptyLine)]
		var h head
		if !h.read(b) {
			return
		}
		body := strings.Repeat("b", int(h.length))
		rest := bufio.NewReader(strings.NewReader(string(b) + body + "next"))
		r, err := http.ReadRequest(rest)
		if err != nil {
			t.Fatalf("net/http: %v", err)
		}
		if r.Method != h.method || r.URL.String() != h.path || r.URL.Path != h.path || r.RequestURI != h.path || r.Host != h.host || r.ContentLength != h.length ||
			r.TransferEncoding != nil || r.Close || r.Proto != "HTTP/1.1" || r.Trailer != nil {
			t.Fatalf("net/http reads %s %s of %s, %d bytes (%v, %v); here it is %s of %s, %d", r.Method, r.URL, r.Host, r.ContentLength, r.TransferEncoding, r.Close, h.path, h.host, h.length)
		}
		if !maps.EqualFunc(r.Header, h.header, slices.Equal[[]string]) {
			t.Fatalf("net/http reads %v, here it is %v", r.Header, h.header)
		}
		var got bytes.Buffer
		if n, err := got.ReadFrom(r.Body); err != nil || n != h.length {
			t.Fatalf("its body has %d bytes, %v", n, err)
		}
		if next, _ := rest.ReadString(0); next != "next" {
			t.Fatalf("what follows is %q", next)
		}
	})
}

// A head costs a handful of allocations, whatever its fields.
func BenchmarkHead(b *testing.B) {
	text := []byte(strings.Replace(plainHead, "Content-Length: 3\r\n", "Content-Length: 3\r\nAuthorization: Bearer "+strings.Repeat("k", 40)+"\r\nMcp-Session-Id: "+strings.Repeat("s", 200)+"\r\n", 1))
	b.Run("here", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var h head
			if !h.read(text) {
				b.Fatal("not plain")
			}
		}
	})
	b.Run("net_http", func(b *testing.B) {
		b.ReportAllocs()
		r := bufio.NewReader(nil)
		for b.Loop() {
			r.Reset(bytes.NewReader(text))
			if _, err := http.ReadRequest(r); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Nothing that a handler puts into a field can begin another one.
func FuzzField(f *testing.F) {
	f.Add("X-A", "b")
	f.Add("X-A", "b\r\nX-B: c")
	f.Add("X-A\r\nX-B", "c")
	f.Add("X-A: b", "")
	f.Add("Date", "yesterday")
	f.Add("X-A", "\x00\n\r\n\r\nHTTP/1.1 200 OK")
	f.Fuzz(func(t *testing.T, name, value string) {
		b := appendField(nil, name, value)
		if len(b) == 0 {
			return // left out
		}
		line, ended := bytes.CutSuffix(b, []byte("\r\n"))
		if !ended || bytes.ContainsAny(line, "\r\n\x00") || !bytes.HasPrefix(line, []byte(name+": ")) || !isName(name) {
			t.Fatalf("%q and %q become %q", name, value, b)
		}
	})
}
