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

// change sends a request of a tool that writes.
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

// speakHTTP1 keeps a client from speaking anything newer.
func speakHTTP1(c *Client) {
	for _, transport := range []*http.Transport{c.reading, c.changing} {
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetHTTP1(true)
	}
}

// TestChangesAreSentOnce: net/http sends a request again if the server closes a reused
// connection as the request arrives, or if an HTTP/2 server refuses the request. A host
// may act on any method.
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
				t.Errorf("two requests were sent %d times", n)
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
					t.Errorf("one request was sent %d times", n)
				}
			})
		}
	}
}

// refusing connects to an HTTP/2 server that refuses requests that it may have carried
// out. It hangs up on the third connection.
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

// telling reports when it is closed.
type telling struct {
	net.Conn
	closed func()
}

func (c telling) Close() error {
	c.closed()
	return c.Conn.Close()
}

// The connection of a change ends with its answer, whatever is spoken there.
func TestChangeEndsItsConnection(t *testing.T) {
	for protocol, speak := range map[string]func(*Client){"HTTP/1.1": speakHTTP1, "HTTP/2.0": func(*Client) {}} {
		t.Run(protocol, func(t *testing.T) {
			spoken := make(chan string, 1)
			_, sw := server(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { spoken <- r.Proto }))
			d, closed := NewDialer(sw), make(chan struct{})
			open, tell := d.open, sync.OnceFunc(func() { close(closed) })
			d.open = func(ctx context.Context, to netip.AddrPort, judge control) (net.Conn, error) {
				conn, err := open(ctx, to, judge)
				return telling{conn, tell}, err
			}
			c := NewClient(d)
			speak(c)
			if err := change(t, c, "POST"); err != nil {
				t.Fatal(err)
			}
			if got := <-spoken; got != protocol {
				t.Errorf("%s was spoken", got)
			}
			select {
			case <-closed:
			case <-time.After(time.Minute):
				t.Error("the connection is kept")
			}
		})
	}
}
