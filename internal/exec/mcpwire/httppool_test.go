package mcpwire

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// peer is a server whose behavior a test defines, and the pool of connections to that server.
type peer struct {
	*pool
	url   *url.URL
	conns atomic.Int64
}

func newPeer(t *testing.T, serve func(n int64, c net.Conn, r *bufio.Reader)) *peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &url.URL{Scheme: "http", Host: l.Addr().String(), Path: "/mcp"}
	p := &peer{pool: newPool(u), url: u}
	if p.pool == nil {
		if !canPeek {
			t.Skip("this system cannot check idle connections, so net/http is used")
		}
		t.Fatal("there is no pool for " + u.String())
	}
	t.Cleanup(func() { p.close(); l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n := p.conns.Add(1)
			go func() {
				defer c.Close()
				serve(n, c, bufio.NewReader(c))
			}()
		}
	}()
	return p
}

// ask posts a body and returns the status and the body of the answer.
func (p *peer) ask(ctx context.Context, body string) (string, error) {
	resp, err := p.do(p.request(ctx, http.MethodPost), []byte(body))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return fmt.Sprint(resp.StatusCode, " ", string(b)), err
}

func (p *peer) request(ctx context.Context, method string) *http.Request {
	return (&http.Request{Method: method, URL: p.url, Host: p.url.Host, Header: http.Header{"Content-Type": typeJSON}}).WithContext(ctx)
}

// readRequest reads one request and returns its body.
func readRequest(r *bufio.Reader) (string, bool) {
	req, err := http.ReadRequest(r)
	if err != nil {
		return "", false
	}
	b, err := io.ReadAll(req.Body)
	return string(b), err == nil
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func TestPoolReadsAnswers(t *testing.T) {
	long := strings.Repeat("x", 9000)
	for _, tc := range []struct {
		name, answer, want string
		again              bool // whether the connection must be reused
	}{
		{"with a length", okAnswer, "200 ok", true},
		{"without a body", "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", "202 ", true},
		{"with a status that allows no body", "HTTP/1.1 204 No Content\r\n\r\n", "204 ", true},
		{"in chunks, with a trailer", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1;x=y\r\nk\r\n0\r\nDigest: none\r\n\r\n", "200 ok", true},
		{"after informational responses", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + okAnswer, "200 ok", true},
		{"with a long head", "HTTP/1.1 200 OK\r\nX-Long: " + long + "\r\nContent-Length: 2\r\n\r\nok", "200 ok", true},
		{"with line ends without CR", "HTTP/1.1 200 OK\nContent-Length: 2\n\nok", "200 ok", true},
		{"with two Content-Length headers", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", "200 ok", true},
		{"with Connection: close", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: foo, Close\r\n\r\nok", "200 ok", false},
		{"from an HTTP/1.0 server", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "200 ok", false},
		{"followed by more data", okAnswer + "HTTP/1.1 200 OK\r\n", "200 ok", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPeer(t, func(_ int64, c net.Conn, r *bufio.Reader) {
				for {
					if _, ok := readRequest(r); !ok {
						return
					}
					io.WriteString(c, tc.answer)
				}
			})
			for range 3 {
				if got, err := p.ask(t.Context(), "{}"); got != tc.want || err != nil {
					t.Fatalf("ask = %q, %v; want %q", got, err, tc.want)
				}
			}
			if n := p.conns.Load(); (n == 1) != tc.again {
				t.Errorf("the client used %d connections for 3 requests, want reuse: %v", n, tc.again)
			}
		})
	}
}

func TestPoolRefusesAnswers(t *testing.T) {
	for _, tc := range []struct{ name, answer string }{
		{"another protocol", "SSH-2.0-x\r\n\r\n"},
		{"another version", "HTTP/2.0 200 OK\r\n\r\n"},
		{"no status", "HTTP/1.1 OK\r\n\r\n"},
		{"a status of four digits", "HTTP/1.1 2000 OK\r\n\r\n"},
		{"switching protocols", "HTTP/1.1 101 Switching Protocols\r\n\r\n"},
		{"a header without a colon", "HTTP/1.1 200 OK\r\nX\r\n\r\n"},
		{"a space in a name", "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok"},
		{"a folded header", "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n"},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok"},
		{"a negative length", "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok"},
		{"an unknown encoding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok"},
		{"two encodings", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		{"an endless series of heads", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 100)},
		{"a head without end", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxHead) + "\r\n\r\n"},
		{"a head that breaks off", "HTTP/1.1 200 OK\r\nX: y"},
		{"a body that breaks off", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok"},
		{"a chunk that breaks off", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\no"},
		{"chunks without their end", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n"},
		{"nothing", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got atomic.Int64
			p := newPeer(t, func(_ int64, c net.Conn, r *bufio.Reader) {
				if _, ok := readRequest(r); ok {
					got.Add(1)
					io.WriteString(c, tc.answer)
				}
			})
			said, err := p.ask(t.Context(), "{}")
			if err == nil || errors.Is(err, ErrNotSent) {
				t.Errorf("ask = %q, %v; want an error that does not wrap ErrNotSent", said, err)
			}
			if got.Load() != 1 {
				t.Errorf("the server received the request %d times, want once", got.Load())
			}
		})
	}
}

// resting returns an idle connection, or nil, and the number of idle connections.
func (p *pool) resting() (c *webConn, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n = len(p.idle); n > 0 {
		c = p.idle[0]
	}
	return c, n
}

// TestPoolDiscardsTouchedConnections checks idle connections that the server has closed or used to send data.
// The pool must not reuse these connections.
func TestPoolDiscardsTouchedConnections(t *testing.T) {
	for name, touch := range map[string]func(net.Conn){
		"closed":      func(c net.Conn) { c.Close() },
		"data sent":   func(c net.Conn) { io.WriteString(c, okAnswer) },
		"half-closed": func(c net.Conn) { c.(*net.TCPConn).CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			served := make(chan net.Conn, 2)
			var got atomic.Int64
			p := newPeer(t, func(n int64, c net.Conn, r *bufio.Reader) {
				for {
					body, ok := readRequest(r)
					if !ok {
						return
					}
					got.Add(1)
					fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%d%s", len(body)+1, n, body)
					served <- c
				}
			})
			if said, err := p.ask(t.Context(), "a"); said != "200 1a" || err != nil {
				t.Fatal(said, err)
			}
			c, _ := p.resting()
			touch(<-served)
			eventually(t, "the server changes the idle connection", func() bool { return !isQuiet(c.Conn) })
			if said, err := p.ask(t.Context(), "b"); said != "200 2b" || err != nil {
				t.Error(said, err)
			}
			if got.Load() != 2 {
				t.Errorf("the server received %d requests, want 2", got.Load())
			}
		})
	}
}

// TestPoolNeverSendsTwice checks a server that reads a request and does not answer. The request is not sent
// again, because the server may have executed it.
func TestPoolNeverSendsTwice(t *testing.T) {
	var got atomic.Int64
	p := newPeer(t, func(n int64, c net.Conn, r *bufio.Reader) {
		for {
			body, ok := readRequest(r)
			if !ok {
				return
			}
			got.Add(1)
			if body != "first" {
				return
			}
			io.WriteString(c, okAnswer)
		}
	})
	if said, err := p.ask(t.Context(), "first"); err != nil {
		t.Fatal(said, err)
	}
	if said, err := p.ask(t.Context(), "second"); err == nil || errors.Is(err, ErrNotSent) {
		t.Errorf("ask = %q, %v; want an error that does not wrap ErrNotSent", said, err)
	}
	if got.Load() != 2 || p.conns.Load() != 1 {
		t.Errorf("the server received %d requests on %d connections, want 2 requests on 1 connection", got.Load(), p.conns.Load())
	}
}

// TestPoolReadsEarlyRefusal checks a server that refuses a request before it has read the whole request. The pool
// must return the server's response.
func TestPoolReadsEarlyRefusal(t *testing.T) {
	p := newPeer(t, func(_ int64, c net.Conn, r *bufio.Reader) {
		r.Peek(1)
		io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
		c.(*net.TCPConn).CloseWrite()
		io.CopyN(io.Discard, r, 8<<20)
		io.Copy(io.Discard, r)
	})
	if said, err := p.ask(t.Context(), strings.Repeat("x", 16<<20)); said != "413 " || err != nil {
		t.Errorf("ask = %q, %v; want status 413", said, err)
	}
}

// halfWritten is a connection that fails in the middle of the second write and then returns a response.
type halfWritten struct {
	net.Conn
	closed bool
	strings.Reader
}

func (c *halfWritten) Read(p []byte) (int, error)      { return c.Reader.Read(p) }
func (c *halfWritten) SetReadDeadline(time.Time) error { return nil }
func (c *halfWritten) Close() error                    { c.closed = true; return nil }

func (c *halfWritten) Write(p []byte) (int, error) {
	return len(p) / 2, io.ErrClosedPipe
}

// The server would read the next request as the rest of a half-written one.
func TestPoolDropsHalfWrittenConnections(t *testing.T) {
	for answer, ok := range map[string]bool{
		"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n":            true,
		"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno":          true,
		"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n":             false,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": false,
	} {
		p := &pool{}
		conn := &halfWritten{Reader: *strings.NewReader(answer)}
		c := &webConn{Conn: conn, pool: p, read: bufio.NewReader(conn)}
		resp, _, err := c.exchange(&http.Request{}, []byte("message"), func() bool { return true })
		if (err == nil) != ok {
			t.Errorf("%q: %v", answer, err)
		}
		if err == nil {
			if _, err := io.ReadAll(resp.Body); err != nil {
				t.Errorf("%q: %v", answer, err)
			}
			if !conn.closed {
				t.Errorf("%q: the connection is still open", answer)
			}
		}
		if len(p.idle) != 0 {
			t.Errorf("%q: the connection is in the pool", answer)
		}
		p.close()
	}
}

func TestPoolRejectsInvalidHeaders(t *testing.T) {
	p := newPeer(t, func(_ int64, _ net.Conn, _ *bufio.Reader) { t.Error("the pool connected to the server") })
	for name, value := range map[string]string{"X-Token": "a\r\nX-Evil: b", "X Token": "a", "": "a", "X-Nul": "\x00"} {
		req := p.request(t.Context(), http.MethodPost)
		req.Header[name] = []string{value}
		if _, err := p.do(req, nil); !errors.Is(err, ErrNotSent) || value != "a" && strings.Contains(err.Error(), value) {
			t.Errorf("header %q: error = %v, want ErrNotSent without the value", name, err)
		}
	}
}

func TestPoolAbortsCanceledRequests(t *testing.T) {
	p := newPeer(t, func(_ int64, c net.Conn, r *bufio.Reader) {
		readRequest(r)
		io.Copy(io.Discard, r) // wait until the client closes the connection
	})
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() {
		_, err := p.ask(ctx, "{}")
		asked <- err
	}()
	eventually(t, "the request", func() bool { return p.conns.Load() == 1 })
	cancel()
	if err := <-asked; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, n := p.resting(); n != 0 {
		t.Error("the pool kept the connection of a canceled request")
	}
}

func TestPoolClosesIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pool{}
		here, there := net.Pipe()
		p.put(&webConn{Conn: here, pool: p})
		time.Sleep(idleTime + time.Second)
		_, err := there.Read(make([]byte, 1))
		if _, n := p.resting(); err != io.EOF || n != 0 {
			t.Errorf("the pool has %d idle connections after idleTime, want 0; the peer reads %v, want EOF", n, err)
		}
		for range maxIdle + 1 {
			here, _ := net.Pipe()
			p.put(&webConn{Conn: here, pool: p})
		}
		if _, n := p.resting(); n != maxIdle {
			t.Errorf("the pool has %d idle connections, want %d", n, maxIdle)
		}
		p.close()
		here, there = net.Pipe()
		p.put(&webConn{Conn: here, pool: p})
		if _, err := there.Read(make([]byte, 1)); err != io.EOF {
			t.Error("a closed pool kept a connection")
		}
	})
}

// TestUntrustedServerGetsNothing checks that the client verifies the certificate before it sends the request.
func TestUntrustedServerGetsNothing(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the untrusted server received a request") }))
	defer s.Close()
	transport, err := HTTP(s.URL, HTTPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h := transport.(*httpTransport)
	req := (&http.Request{Method: http.MethodPost, URL: h.url, Header: http.Header{}}).WithContext(t.Context())
	_, err = h.roundTrip(req, []byte("{}"))
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); !ok || !errors.Is(sendingFailed(err), ErrNotSent) {
		t.Error(err)
	}
}

// TestPoolUnsupportedURLs checks that newPool returns nil for URLs that only net/http supports.
func TestPoolUnsupportedURLs(t *testing.T) {
	for address, want := range map[string]bool{
		"http://127.0.0.1:1/mcp": canPeek, "https://example.com/mcp": false,
		"http://bücher.example/": false, "http://[fe80::1%25eth0]:80/": false,
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if got := newPool(u) != nil; got != want {
			t.Errorf("newPool(%s) returned a pool: %v, want %v", address, got, want)
		}
	}
}
