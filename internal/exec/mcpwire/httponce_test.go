package mcpwire

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
)

// TestHTTP2NeverSendsTwice checks an HTTP/2 server that claims to have refused a call. The call is not sent again,
// because the server may have executed it. The test's server hangs up at the third request.
func TestHTTP2NeverSendsTwice(t *testing.T) {
	for name, refuse := range map[string]func(*http2.Framer, uint32) error{
		"REFUSED_STREAM": func(f *http2.Framer, id uint32) error { return f.WriteRSTStream(id, http2.ErrCodeRefusedStream) },
		"GOAWAY":         func(f *http2.Framer, _ uint32) error { return f.WriteGoAway(0, http2.ErrCodeNo, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			s := httptest.NewUnstartedServer(nil)
			s.StartTLS()
			defer s.Close()
			l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{NextProtos: []string{"h2"}, Certificates: s.TLS.Certificates})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			var got atomic.Int64
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
					if data, ok := frame.(*http2.DataFrame); ok && data.StreamEnded() {
						if got.Add(1) > 2 {
							return
						}
						err = refuse(f, data.StreamID)
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
			h2 := newTransport() // the pool does not support HTTP/2
			defer h2.CloseIdleConnections()
			roots := x509.NewCertPool()
			roots.AddCert(s.Certificate())
			h2.TLSClientConfig = &tls.Config{RootCAs: roots}
			address := &url.URL{Scheme: "https", Host: l.Addr().String(), Path: "/mcp"}
			transport := &httpTransport{url: address, roundTripper: h2}
			req, _, err := transport.newRequest(t.Context(), http.MethodPost, outgoing{method: methodCallTool, version: offeredVersion})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = transport.roundTrip(req, []byte("{}")); err == nil || errors.Is(sendingFailed(err), ErrNotSent) {
				t.Errorf("error = %v, want an error that does not wrap ErrNotSent", err)
			}
			if got.Load() != 1 {
				t.Errorf("the server received the call %d times, want once", got.Load())
			}
		})
	}
}
