package daemon

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipeServer serves GET /healthz with the daemon's handler over a pipe, which has no buffer. It returns the client's
// end and a channel that is closed when the server closes its end.
func pipeServer(t *testing.T, h http.HandlerFunc) (client net.Conn, closed chan struct{}) {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", h)
	closed = make(chan struct{})
	server := &http.Server{
		Handler:   &handler{daemon: &Daemon{}, mux: mux, shield: shield{loopback: true, cross: http.NewCrossOriginProtection()}},
		Protocols: new(http.Protocols),
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed {
				close(closed)
			}
		},
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	client, end := net.Pipe()
	l := &oneConn{conn: make(chan net.Conn, 1), done: make(chan struct{})}
	l.conn <- end
	go server.Serve(l)
	t.Cleanup(func() { server.Close(); client.Close() })
	return client, closed
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn chan net.Conn
	done chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error   { close(l.done); return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// get sends a request over a connection, with HTTP/2 or HTTP/1.
func get(t *testing.T, c net.Conn, http2 bool) *http.Response {
	t.Helper()
	tr := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }, Protocols: new(http.Protocols),
	}
	tr.Protocols.SetHTTP1(!http2)
	tr.Protocols.SetUnencryptedHTTP2(http2)
	resp, err := (&http.Client{Transport: tr}).Get("http://127.0.0.1/healthz")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.CloseIdleConnections)
	return resp
}

// A response may be silent for longer than the deadline for writing one piece of it.
func TestSilentResponseStaysOpen(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		for what, begin := range map[string]func(http.ResponseWriter){
			"flushed":  func(w http.ResponseWriter) { io.WriteString(w, "a"); w.(http.Flusher).Flush() },
			"buffered": func(w http.ResponseWriter) { io.WriteString(w, "a") },
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					client, _ := pipeServer(t, func(w http.ResponseWriter, r *http.Request) {
						begin(w)
						select {
						case <-time.After(3 * writeTime): // in fake time
						case <-r.Context().Done():
							t.Error("the request was cancelled")
						}
						io.WriteString(w, "b")
					})
					resp := get(t, client, http2)
					defer resp.Body.Close()
					if b, err := io.ReadAll(resp.Body); string(b) != "ab" || err != nil {
						t.Errorf("the response over %s is %q, %v", resp.Proto, b, err)
					}
				})
			})
		}
	}
}

// The daemon disconnects an HTTP/1 client that does not read, whatever kind of response the client requested.
func TestEveryAnswerHasADeadline(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"a head":       func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) },
		"nothing":      func(http.ResponseWriter, *http.Request) {},
		"a small body": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x") },
		"a large body": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("x", 1<<20)) },
		"flushed":      func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, closed := pipeServer(t, h)
				if _, err := io.WriteString(client, "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				select {
				case <-closed:
				case <-time.After(2 * writeTime):
					t.Error("the connection is still open")
				}
			})
		})
	}
}

// If an HTTP/2 client does not read, its request is cancelled.
func TestStreamThatIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := make(chan error, 1)
		client, _ := pipeServer(t, func(w http.ResponseWriter, _ *http.Request) {
			_, err := w.Write(make([]byte, 16<<20)) // more data than fits in the client's window
			failed <- err
		})
		resp := get(t, client, true)
		defer resp.Body.Close()
		select {
		case err := <-failed:
			if err == nil {
				t.Error("the response was written, but the client has not read it")
			}
		case <-time.After(2 * writeTime):
			t.Error("the handler still writes")
			client.Close()
		}
	})
}
