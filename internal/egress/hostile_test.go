package egress

import (
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ambit-run/ambit/internal/call"
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

// What a sandbox may send and receive is bounded, also where its requests are
// looked through; what is cut is not taken for a whole answer.
func TestSwapIsBounded(t *testing.T) {
	sw, sent := site(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
		}
	})
	policy, trusted := swapping(t, sw)
	client := through(trusted, near(t, NewDialer(sw), policy, 1000))
	if resp, err := client.Do(request(t, "https://api.example.com/large", "")); err == nil {
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil {
			t.Errorf("%d bytes were taken for the whole answer", len(body))
		}
	}
	client = through(trusted, near(t, NewDialer(sw), policy, 1000))
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

// A program that does not trust the run's authority gets nowhere, and that is
// told; so is one that hangs up.
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
