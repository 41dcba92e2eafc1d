package egress

import (
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// A credential that contains a line break is not sent, because it would add a header.
func TestSwapInjectsNoHeader(t *testing.T) {
	sw, sent := site(t, nil)
	policy, trusted := swapping(t, sw)
	for _, value := range []string{"a\r\nX-Evil: 1", "a\nb", "a\rb", "a\x00b"} {
		policy.Swaps[0].Value = func() string { return value }
		proxy, decisions := proxied(t, NewDialer(sw), policy)
		resp, body := send(t, through(trusted, proxy), request(t, "https://api.example.com/", ""))
		if resp.StatusCode != http.StatusBadGateway || strings.Contains(body, value) {
			t.Errorf("%q: got status %d with body %s, want %d", value, resp.StatusCode, body, http.StatusBadGateway)
		}
		<-decisions // the tunnel
		if d := <-decisions; d.Refusal == nil || !strings.Contains(d.Refusal.Error(), "cannot be sent in a header") || strings.Contains(d.Refusal.Error(), value) {
			t.Errorf("%q: got decision %+v, want a refusal without the value", value, d)
		}
	}
	if n := len(sent()); n != 0 {
		t.Errorf("the server got %d requests", n)
	}
}

// near starts a proxy and returns the proxy's address. The proxy reaches its limit after the given
// number of bytes.
func near(t *testing.T, d *Dialer, p Policy, left int64) string {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "proxy"))
	if err != nil {
		t.Fatal(err)
	}
	network, done := NewNetwork(d, p, nil), make(chan struct{})
	network.bytes.Store(maxTraffic - left)
	go func() { network.Serve(l); close(done) }()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// The limit on sent and received bytes also applies if the proxy terminates TLS. The program must
// not mistake a truncated answer for a complete one.
func TestSwapIsBounded(t *testing.T) {
	sw, sent := site(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
		}
	})
	policy, trusted := swapping(t, sw)
	const left = 32 << 10 // enough for the TLS handshake
	client := through(trusted, near(t, NewDialer(sw), policy, left))
	if resp, err := client.Do(request(t, "https://api.example.com/large", "")); err == nil {
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil {
			t.Errorf("%d bytes were accepted as the complete answer", len(body))
		}
	}
	if len(sent()) != 1 {
		t.Fatal("a request within the limit was not sent")
	}
	client = through(trusted, near(t, NewDialer(sw), policy, left))
	before := len(sent())
	if resp, err := client.Do(request(t, "https://api.example.com/", strings.Repeat("y", 1<<20))); err == nil {
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("a request beyond the limit was answered")
		}
	}
	if all := sent(); len(all) > before && len(all[before].body) >= 1<<20 {
		t.Error("the complete body was sent")
	}
}

// If the proxy terminates TLS, the byte limit also covers URLs, request headers and answer headers.
// They can carry as much data as a body.
func TestSwapHeadsAreBounded(t *testing.T) {
	const left, long = 48 << 10, 16 << 10 // two or three headers reach the limit
	sw, sent := site(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/answer" {
			w.Header().Set("X-Long", strings.Repeat("a", long))
		}
	})
	policy, trusted := swapping(t, sw)
	for name, ask := range map[string]func(*http.Request){
		"address": func(r *http.Request) { r.URL.RawQuery = strings.Repeat("q", long) },
		"header":  func(r *http.Request) { r.Header.Set("X-Long", strings.Repeat("h", long)) },
		"answer":  func(r *http.Request) { r.URL.Path = "/answer" },
	} {
		t.Run(name, func(t *testing.T) {
			client := through(trusted, near(t, NewDialer(sw), policy, left))
			before, answered := len(sent()), 0
			for range 2 * left / long {
				req := request(t, "https://api.example.com/", "")
				ask(req)
				resp, err := client.Do(req)
				if err != nil {
					continue
				}
				resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					answered++
				}
			}
			if most := left / long; answered == 0 || answered > most || len(sent())-before > most {
				t.Errorf("%d requests were sent and %d answered, want 1 to %d", len(sent())-before, answered, most)
			}
		})
	}
}

// The limit on sent and received bytes also applies to a tunnel without TLS.
func TestTunnelIsBounded(t *testing.T) {
	var got atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		got.Add(n)
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
	}))
	t.Cleanup(s.Close)
	sw, err := Read(environ(map[string]string{EnvResolve: "plain.test:80=" + s.Listener.Addr().String()}), false, false)
	if err != nil {
		t.Fatal(err)
	}
	for name, sent := range map[string]string{"received": "", "sent": strings.Repeat("y", 1<<20)} {
		proxy := near(t, NewDialer(sw), Policy{Mode: ModeFull}, 1000)
		conn, r, status := ask(t, proxy, "CONNECT plain.test:80 HTTP/1.1")
		if status != http.StatusOK {
			t.Fatalf("%s: got status %d, want %d", name, status, http.StatusOK)
		}
		go request(t, "http://plain.test/", sent).Write(conn) // fails if the proxy closes the tunnel
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			continue
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil && resp.StatusCode == http.StatusOK {
			t.Errorf("%s: %d bytes were accepted as the complete answer", name, len(body))
		}
	}
	if n := got.Load(); n >= 1<<20 {
		t.Errorf("%d bytes were sent, want less than %d", n, 1<<20)
	}
}

// The proxy sends a program's request once, even if the connection to the host dies. Only
// the program may decide to retry.
func TestSwapSendsOnce(t *testing.T) {
	var requests atomic.Int32
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { // HTTP/1.1
		if requests.Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	sw, err := Read(environ(map[string]string{EnvResolve: "api.example.com:443=" + s.Listener.Addr().String(), EnvCA: file}), false, false)
	if err != nil {
		t.Fatal(err)
	}
	policy, trusted := swapping(t, sw)
	proxy, _ := proxied(t, NewDialer(sw), policy)
	client := through(trusted, proxy)
	client.Transport.(*http.Transport).DisableKeepAlives = false // all requests use one tunnel, and therefore one connection to the host
	defer client.CloseIdleConnections()
	for _, want := range []int{http.StatusOK, http.StatusBadGateway} {
		req := request(t, "https://api.example.com/", "")
		req.Method = http.MethodGet
		if resp, body := send(t, client, req); resp.StatusCode != want {
			t.Errorf("%d %q, want %d", resp.StatusCode, body, want)
		}
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("the server got %d requests, want 2", n)
	}
}

// If the server cuts an answer short, the program must see an error, not a complete answer.
func TestSwapCutAnswers(t *testing.T) {
	sw, _ := site(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	policy, trusted := swapping(t, sw)
	proxy, _ := proxied(t, NewDialer(sw), policy)
	resp, err := through(trusted, proxy).Do(request(t, "https://api.example.com/", ""))
	if err != nil {
		return // the client noticed the error before the answer began
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("%q was accepted as the complete answer", body)
	}
}

// A program may distrust the run's authority or close the connection. The proxy then sends no
// request to the host and reports a refusal.
func TestSwapHandshakeFails(t *testing.T) {
	sw, sent := site(t, nil)
	policy, trusted := swapping(t, sw)
	trusted.roots = x509.NewCertPool()
	proxy, decisions := proxied(t, NewDialer(sw), policy)
	if resp, err := through(trusted, proxy).Do(request(t, "https://api.example.com/", "")); err == nil {
		resp.Body.Close()
		t.Error("the request was answered")
	}
	<-decisions // the tunnel
	if d := <-decisions; d.Refusal == nil || d.Refusal.Code != call.HostNotAllowed {
		t.Errorf("got decision %+v, want %s", d, call.HostNotAllowed)
	}
	conn, _, status := ask(t, proxy, "CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443")
	if status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	conn.Close()
	if d := <-decisions; d.Refusal == nil {
		t.Errorf("got decision %+v, want a refusal", d)
	}
	if n := len(sent()); n != 0 {
		t.Errorf("the server got %d requests", n)
	}
}

// A client reuses connections for reads until it is closed.
func TestClosedClientKeepsNoConnection(t *testing.T) {
	from := make(chan string, 1)
	_, sw := server(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { from <- r.RemoteAddr }))
	c := New(sw)
	get := func() string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		return <-from
	}
	first := get()
	if second := get(); second != first {
		t.Errorf("a read did not reuse the connection: got client address %s, then %s", first, second)
	}
	c.Close()
	if third := get(); third == first {
		t.Error("Close left the connection open")
	}
	c.Close()
}
