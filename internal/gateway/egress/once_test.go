package egress

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// change sends a request for a tool whose side effect is [agent.Write].
func change(t *testing.T, c *Client, method string) error {
	t.Helper()
	req := &http.Request{Method: method, URL: &url.URL{Scheme: "https", Host: "example.com"}, Header: http.Header{"Idempotency-Key": {"k"}}}
	resp, err := c.Send(req.WithContext(t.Context()), agent.Write)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// speakHTTP1 makes a client use HTTP/1.1 only.
func speakHTTP1(c *Client) {
	for _, transport := range []*http.Transport{c.reused, c.single} {
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetHTTP1(true)
	}
}

// TestChangesAreSentOnce: a request of a tool that writes is never resent, whatever its method. By
// default, net/http resends a request in two cases. In the first case, the server closes a reused
// connection when the request arrives. In the second case, an HTTP/2 server refuses the request.
func TestChangesAreSentOnce(t *testing.T) {
	for _, method := range []string{"POST", "GET", "HEAD", "DELETE"} {
		t.Run("HTTP/1.1 "+method, func(t *testing.T) {
			var requests atomic.Int32
			_, sw := server(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if requests.Add(1) > 1 {
					panic(http.ErrAbortHandler)
				}
			}))
			c := New(sw)
			speakHTTP1(c)
			if err := change(t, c, method); err != nil {
				t.Error(err)
			}
			wantCode(t, change(t, c, method), call.ServerUnavailable, call.EffectUnknown)
			if n := requests.Load(); n != 2 {
				t.Errorf("the server got %d requests, want 2", n)
			}
		})
		for name, refuse := range map[string]func(*http2.Framer, uint32) error{
			"REFUSED_STREAM": func(f *http2.Framer, id uint32) error { return f.WriteRSTStream(id, http2.ErrCodeRefusedStream) },
			"GOAWAY":         func(f *http2.Framer, _ uint32) error { return f.WriteGoAway(0, http2.ErrCodeNo, nil) },
		} {
			t.Run(name+" "+method, func(t *testing.T) {
				sw, requests := refusing(t, refuse)
				wantCode(t, change(t, New(sw), method), call.ServerUnavailable, call.EffectUnknown)
				if n := requests.Load(); n != 1 {
					t.Errorf("the server got %d requests, want 1", n)
				}
			})
		}
	}
}

// refusing starts an HTTP/2 server that refuses every request in a way that lets a client retry it, although a real
// server might have carried the request out. From the third request on, the server closes the connection. refusing
// returns the switches for that server and the number of requests.
func refusing(t *testing.T, refuse func(*http2.Framer, uint32) error) (Switches, *atomic.Int32) {
	t.Helper()
	s, sw := server(t, nil)
	config := s.TLS.Clone()
	config.NextProtos = []string{"h2"}
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	for name := range sw.names {
		sw.names[name] = l.Addr().(*net.TCPAddr).AddrPort()
	}
	requests := new(atomic.Int32)
	serve := func(conn net.Conn) {
		defer conn.Close()
		if _, err := io.CopyN(io.Discard, conn, int64(len(http2.ClientPreface))); err != nil {
			return
		}
		f := http2.NewFramer(conn, conn)
		err := f.WriteSettings()
		for err == nil {
			var frame http2.Frame
			if frame, err = f.ReadFrame(); err != nil {
				return
			}
			if h, ok := frame.(*http2.HeadersFrame); ok {
				if requests.Add(1) > 2 {
					return
				}
				err = refuse(f, h.StreamID)
			}
		}
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return sw, requests
}

// observedConn is a connection that calls the function closed when it is closed.
type observedConn struct {
	net.Conn
	closed func()
}

func (c observedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// The connection of a request that changes something is closed after the answer, with any
// version of HTTP.
func TestChangeEndsItsConnection(t *testing.T) {
	for protocol, speak := range map[string]func(*Client){"HTTP/1.1": speakHTTP1, "HTTP/2.0": func(*Client) {}} {
		t.Run(protocol, func(t *testing.T) {
			spoken := make(chan string, 1)
			_, sw := server(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { spoken <- r.Proto }))
			d, closed := NewDialer(sw), make(chan struct{})
			open, observe := d.open, sync.OnceFunc(func() { close(closed) })
			d.open = func(ctx context.Context, to netip.AddrPort, judge control) (net.Conn, error) {
				conn, err := open(ctx, to, judge)
				return observedConn{conn, observe}, err
			}
			c := NewClient(d)
			speak(c)
			if err := change(t, c, "POST"); err != nil {
				t.Fatal(err)
			}
			if got := <-spoken; got != protocol {
				t.Errorf("got protocol %s, want %s", got, protocol)
			}
			select {
			case <-closed:
			case <-time.After(time.Minute):
				t.Error("the connection was not closed")
			}
		})
	}
}
