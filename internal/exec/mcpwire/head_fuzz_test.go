package mcpwire

import (
	"bufio"
	"bytes"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"
)

// FuzzHead checks that readHead and net/http never read the same head differently.
func FuzzHead(f *testing.F) {
	for _, head := range []string{
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
		"HTTP/1.0 404 Not Found\nA: b\n\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
		"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n", "HTTP/1.1 099 OK\r\n\r\n", "HTTP/1.1 200\r\n\r\n", "HTTP/2 200\r\n\r\n", "HTTP/1.1 200 OK\r\nX: \x00\r\n\r\n",
	} {
		f.Add([]byte(head))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		r := bufio.NewReader(bytes.NewReader(sent))
		resp, err := readHead(r)
		if err != nil {
			return
		}
		for name, values := range resp.Header {
			if !httpguts.ValidHeaderFieldName(name) || strings.ContainsAny(strings.Join(values, ""), "\r\n\x00") {
				t.Errorf("the header %q has an invalid name or value: %q", name, values)
			}
		}
		theirs, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(sent)), nil)
		if err != nil {
			return // readHead may accept more than net/http, because the method frame checks the lengths strictly
		}
		theirs.Body.Close()
		if theirs.StatusCode != resp.StatusCode {
			t.Errorf("readHead returns status %d, and net/http returns %d", resp.StatusCode, theirs.StatusCode)
		}
		for _, name := range []string{"Content-Type", "Mcp-Session-Id", "Location"} {
			if resp.Header.Get(name) != theirs.Header.Get(name) {
				t.Errorf("readHead returns %s %q, and net/http returns %q", name, resp.Header.Get(name), theirs.Header.Get(name))
			}
		}
	})
}
