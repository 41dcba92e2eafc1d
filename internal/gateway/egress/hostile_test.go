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

// A credential with a line break in it does not become a header of its own.
func TestSwapInjectsNoHeader(t *testing.T) {
	sw, sent := site(t, nil)
	policy, trusted := swapping(t, sw)
	for _, value := range []string{"a\r\nX-Evil: 1", "a\nb", "a\rb", "a\x00b"} {
		policy.Swaps[0].Value = func() string { return value }
		proxy, decisions := proxied(t, NewDialer(sw), policy)
		resp, body := send(t, through(trusted, proxy), request(t, "https://api.example.com/", ""))
		if resp.StatusCode != http.StatusBadGateway || strings.Contains(body, value) {
			t.Errorf("%q: %d %s", value, resp.StatusCode, body)
		}
		<-decisions // the tunnel
		if d := <-decisions; d.Refusal == nil || !strings.Contains(d.Refusal.Error(), "cannot be sent in a header") || strings.Contains(d.Refusal.Error(), value) {
			t.Errorf("%q: %+v", value, d)
		}
	}
	if n := len(sent()); n != 0 {
		t.Errorf("the server got %d requests", n)
	}
}

// near is a proxy that may pass only so many bytes more.
func near(t *testing.T, d *Dialer, p Policy, left int64) string {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "proxy"))
	if err != nil {
		t.Fatal(err)
	}
	proxy, done := NewProxy(d, p, nil), make(chan struct{})
	proxy.bytes.Store(proxyBytes - left)
	go func() { proxy.Serve(l); close(done) }()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// The bytes that a sandbox sends and receives are bounded, also if the proxy terminates
// its TLS; a truncated answer is not taken for a complete one.
func TestSwapIsBounded(t *testing.T) {
	sw, sent := site(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
		}
	})
	policy, trusted := swapping(t, sw)
	const left = 32 << 10 // enough for TLS to begin
	client := through(trusted, near(t, NewDialer(sw), policy, left))
	if resp, err := client.Do(request(t, "https://api.example.com/large", "")); err == nil {
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil {
			t.Errorf("%d bytes were taken for the whole answer", len(body))
		}
	}
	if len(sent()) != 1 {
		t.Fatal("what fits into the share was not sent")
	}
	client = through(trusted, near(t, NewDialer(sw), policy, left))
	before := len(sent())
	if resp, err := client.Do(request(t, "https://api.example.com/", strings.Repeat("y", 1<<20))); err == nil {
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("a request beyond the share was answered")
		}
	}
	if all := sent(); len(all) > before && len(all[before].body) >= 1<<20 {
		t.Error("all of it was sent")
	}
}

// So are the addresses and headers of such requests, and the headers of answers:
// they carry as much as a body.
func TestSwapHeadsAreBounded(t *testing.T) {
	const left, long = 48 << 10, 16 << 10 // so that two or three heads are the share
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
				t.Errorf("%d were sent and %d answered, and the share is that of less than %d", len(sent())-before, answered, most)
			}
		})
	}
}

// So it is over plain http, where everything is allowed.
func TestPlainIsBounded(t *testing.T) {
	var got, asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.URL.Path) > 1000 {
			asked.Add(1)
		}
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
		client := through(sw, near(t, NewDialer(sw), Policy{Mode: ModeFull}, 1000))
		resp, err := client.Do(request(t, "http://plain.test/", sent))
		if err != nil {
			continue
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil && resp.StatusCode == http.StatusOK {
			t.Errorf("%s: %d bytes were taken for the whole answer", name, len(body))
		}
	}
	if n := got.Load(); n >= 1<<20 {
		t.Errorf("%d bytes were sent", n)
	}
	client := through(sw, near(t, NewDialer(sw), Policy{Mode: ModeFull}, 1000))
	if resp, err := client.Do(request(t, "http://plain.test/"+strings.Repeat("z", 2000), "")); err == nil {
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("a long address was answered")
		}
	}
	if asked.Load() != 0 {
		t.Error("a long address was sent")
	}
}

// A program's request is sent once, also where the connection to the host dies on
// it: whether to try again is for the program to say.
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
	client.Transport.(*http.Transport).DisableKeepAlives = false // one tunnel, and so one connection to the host
	defer client.CloseIdleConnections()
	for _, want := range []int{http.StatusOK, http.StatusBadGateway} {
		req := request(t, "https://api.example.com/", "")
		req.Method = http.MethodGet
		if resp, body := send(t, client, req); resp.StatusCode != want {
			t.Errorf("%d %q, want %d", resp.StatusCode, body, want)
		}
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("two requests were sent %d times", n)
	}
}

// An answer that the server cuts short is not made whole.
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
		return // told at once
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("%q was taken for the whole answer", body)
	}
}

// A program that does not trust the run's authority, or that hangs up, gets no answer,
// and the proxy reports it.
func TestSwapHandshakeFails(t *testing.T) {
	sw, sent := site(t, nil)
	policy, trusted := swapping(t, sw)
	trusted.roots = x509.NewCertPool()
	proxy, decisions := proxied(t, NewDialer(sw), policy)
	if resp, err := through(trusted, proxy).Do(request(t, "https://api.example.com/", "")); err == nil {
		resp.Body.Close()
		t.Error("it was answered")
	}
	<-decisions // the tunnel
	if d := <-decisions; d.Refusal == nil || d.Refusal.Code != call.HostNotAllowed {
		t.Errorf("%+v", d)
	}
	conn, _, status := ask(t, proxy, "CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443")
	if status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	conn.Close()
	if d := <-decisions; d.Refusal == nil {
		t.Errorf("%+v", d)
	}
	if n := len(sent()); n != 0 {
		t.Errorf("the server got %d requests", n)
	}
}

// Connections are not kept beyond the client that they belong to.
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
		t.Errorf("a read does not use the connection again: %s, then %s", first, second)
	}
	c.Close()
	if third := get(); third == first {
		t.Error("the connection stays open")
	}
	c.Close()
}
