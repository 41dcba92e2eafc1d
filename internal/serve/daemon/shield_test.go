package daemon

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestHostAndOrigin(t *testing.T) {
	loopback := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, nil)
	public := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, func(_ *rig, o *Options) {
		o.Listen, o.BehindProxy, o.PublicURL = "0.0.0.0:0", true, "https://ambit.example.com"
	})
	for _, tt := range []struct {
		name         string
		rig          *rig
		host, origin string
		site         string
		want         int
	}{
		{"the server's own address", loopback, "", "", "", 200},
		{"localhost", loopback, "localhost:7411", "", "", 200},
		{"IPv6", loopback, "[::1]:7411", "", "", 200},
		{"a rebound host name", loopback, "evil.example", "", "", 421},
		{"a name that looks local", loopback, "localhost.evil.example", "", "", 421},
		{"a name that looks like an address", loopback, "127.0.0.1.evil.example", "", "", 421},
		{"a name after a colon", loopback, "localhost:80.evil.example", "", "", 421},
		{"no host", loopback, " ", "", "", 421},
		{"a page of the daemon", loopback, "localhost:7411", "http://localhost:7411", "same-origin", 200},
		{"a page of another site", loopback, "", "https://evil.example", "", 403},
		{"a page on another port", loopback, "localhost:7411", "http://localhost:9999", "", 403},
		{"a page with another scheme", loopback, "localhost:7411", "https://localhost:7411", "", 403},
		{"a page without an origin", loopback, "", "null", "", 403},
		{"a form of another site", loopback, "", "", "cross-site", 403},
		{"the public name", public, "ambit.example.com", "", "", 200},
		{"a page of the public name", public, "ambit.example.com", "https://ambit.example.com", "same-origin", 200},
		{"localhost at a public daemon", public, "localhost", "", "", 421},
		{"another name", public, "evil.example", "", "", 421},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, path := range []string{"/api/v1/agents/alpha/call", "/mcp/alpha"} {
				req, err := http.NewRequestWithContext(t.Context(), "POST", tt.rig.server.URL+path, strings.NewReader(`{"tool":"echo"}`))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Authorization", "Bearer "+tt.rig.admin)
				if tt.host != "" {
					req.Host = tt.host
				}
				if tt.origin != "" {
					req.Header.Set("Origin", tt.origin)
				}
				if tt.site != "" {
					req.Header.Set("Sec-Fetch-Site", tt.site)
				}
				resp, err := tt.rig.server.Client().Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != tt.want {
					t.Errorf("%s answered %d, want %d", path, resp.StatusCode, tt.want)
				}
			}
		})
	}
	// Other host names are rejected on every path, even on /healthz.
	req, err := http.NewRequestWithContext(t.Context(), "GET", loopback.server.URL+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "evil.example"
	if a := loopback.do(req); a.status != 421 {
		t.Errorf("healthz answered %d", a.status)
	}
}

func TestSecurityHeaders(t *testing.T) {
	r := newRig(t, nil, nil)
	for _, path := range []string{"/healthz", "/api/v1/agents", "/nothing"} {
		h := r.ask("", "GET", path, "").header
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin"} {
			if h.Get(name) != want {
				t.Errorf("%s: %s is %q", path, name, h.Get(name))
			}
		}
		if !strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: the content policy is %q", path, h.Get("Content-Security-Policy"))
		}
	}
}

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestTooLarge(t *testing.T) {
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, nil)
	for name, size := range map[string]int64{"announced size": maxBody + 1, "unknown size": -1} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", r.server.URL+"/api/v1/agents/alpha/call", io.LimitReader(zeros{}, maxBody+1))
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = size
		req.Header.Set("Authorization", "Bearer "+r.admin)
		resp, err := r.server.Client().Do(req)
		if err != nil {
			// The daemon may close the connection before everything was sent. This counts as a rejection too.
			continue
		}
		resp.Body.Close()
		if resp.StatusCode != 413 {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
	}
	w := &brokenBody{err: &http.MaxBytesError{Limit: 1}}
	if p := readJSON(&http.Request{Body: w}, nil); p.status != 413 {
		t.Errorf("a body that is too large got the status %d, want 413", p.status)
	}
}

type brokenBody struct{ err error }

func (b *brokenBody) Read([]byte) (int, error) { return 0, b.err }
func (b *brokenBody) Close() error             { return nil }

// After a request with Transfer-Encoding, the connection is closed. A proxy and the daemon may
// disagree on where this request ends. The bytes after the request are not read as a second request.
func TestNoRequestAfterTransferEncoding(t *testing.T) {
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, nil)
	for name, head := range map[string]string{
		"with a length":    "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
		"length last":      "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
		"without a length": "Transfer-Encoding: chunked\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", strings.TrimPrefix(r.server.URL, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			const second = "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
			_, err = io.WriteString(c, "POST /api/v1/agents/alpha/call HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "+
				r.admin+"\r\n"+head+"\r\n2\r\n{}\r\n0\r\n\r\n"+second)
			if err != nil {
				t.Fatal(err)
			}
			read := bufio.NewReader(c)
			resp, err := http.ReadResponse(read, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Fatal(err)
			}
			if !resp.Close {
				t.Fatal("the connection stays open")
			}
			if after, err := io.ReadAll(read); len(after) > 0 {
				t.Errorf("the daemon sent a second response: %q, %v", after, err)
			}
		})
	}
}

// The daemon stops waiting for a body or a header that does not arrive.
func TestTooSlow(t *testing.T) {
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, nil)
	if r.Daemon.server.ReadTimeout == 0 || r.Daemon.server.ReadHeaderTimeout == 0 {
		t.Fatal("the server has no read timeouts")
	}
	// Each server has one short and one long timeout, so that only the missing part of a request can time out.
	r.Daemon.server.ReadTimeout, r.Daemon.server.ReadHeaderTimeout = 20*time.Millisecond, time.Minute
	url, stop, ended := serveRig(t, r)
	defer func() { stop(); <-ended }()
	hasty := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, nil)
	hasty.Daemon.server.ReadTimeout, hasty.Daemon.server.ReadHeaderTimeout = time.Minute, 20*time.Millisecond
	hastyURL, stopHasty, hastyEnded := serveRig(t, hasty)
	defer func() { stopHasty(); <-hastyEnded }()
	dial := func(url, text string) *bufio.Reader {
		t.Helper()
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		return bufio.NewReader(c)
	}
	resp, err := http.ReadResponse(dial(url, "POST /api/v1/agents/alpha/call HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "+r.admin+"\r\nContent-Length: 100\r\n\r\n{"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 408 {
		t.Errorf("a request without its whole body got %d, want 408", resp.StatusCode)
	}
	// If the header does not arrive, the daemon closes the connection.
	if _, err := io.ReadAll(dial(hastyURL, "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")); err != nil {
		t.Errorf("a connection without a whole header ended with %v", err)
	}
	// A header that is too long is refused.
	if resp, err := http.ReadResponse(dial(url, "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: "+strings.Repeat("a", maxHeader+8192)+"\r\n\r\n"), nil); err != nil || resp.StatusCode != 431 {
		t.Errorf("a request with a header that is too long got %v, %v", resp, err)
	}
}

// A response may take longer than the time limit for a request to arrive.
func TestSlowAnswer(t *testing.T) {
	hold, began := make(chan struct{}), make(chan string, 1)
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, func(r *rig, _ *Options) {
		r.make = func(f *fake) { f.hold, f.calls = hold, began; close(f.ready) }
	})
	r.Daemon.server.ReadTimeout = 2 * time.Second
	_, stop, ended := serveRig(t, r)
	defer func() { stop(); <-ended }()
	answered := make(chan *answer, 1)
	go func() { answered <- r.ask(r.admin, "POST", "/api/v1/agents/alpha/call", `{"tool":"echo"}`) }()
	<-began
	timer := time.NewTimer(3 * time.Second) // longer than ReadTimeout
	<-timer.C
	close(hold)
	if a := <-answered; a.status != 200 {
		t.Errorf("the call got %d: %s", a.status, a.body)
	}
}

func TestListenOptions(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    Options
		ok   bool
	}{
		{"loopback", Options{Listen: "127.0.0.1:0"}, true},
		{"IPv6 loopback", Options{Listen: "[::1]:0"}, true},
		{"by name", Options{Listen: "localhost:0"}, true},
		{"all interfaces without TLS", Options{Listen: "0.0.0.0:0"}, false},
		{"all interfaces, no address", Options{Listen: ":0"}, false},
		{"another name", Options{Listen: "example.com:80"}, false},
		{"behind a proxy", Options{Listen: "0.0.0.0:0", BehindProxy: true}, true},
		{"a certificate without its key", Options{Listen: "0.0.0.0:0", Cert: "x"}, false},
		{"a port without a host", Options{Listen: "7411"}, false},
		{"an invalid port", Options{Listen: "127.0.0.1:80000"}, false},
		{"a public URL without a scheme", Options{PublicURL: "ambit.example.com"}, false},
	} {
		_, err := New(tt.o)
		if _, usage := errors.AsType[*UsageError](err); usage == tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// certificate writes a new certificate and its key to dir and returns the paths.
func certificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "ambit"}, DNSNames: []string{"ambit.test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: raw}, key: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// With TLS, the daemon serves HTTP/2, and a reload replaces its certificate.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, nil, func(_ *rig, o *Options) { o.Cert, o.Key = certificate(t, dir) })
	l, url, err := r.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := contextOf(t)
	ended := make(chan error, 1)
	go func() { ended <- r.Serve(ctx, l) }()
	defer func() { stop(); <-ended }()
	get := func(host string) (*http.Response, error) {
		pool := x509.NewCertPool()
		pool.AddCert(r.leaf())
		client := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool}}}
		defer client.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), "GET", url+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			req.Host = host
		}
		resp, err := client.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		return resp, err
	}
	resp, err := get("")
	if err != nil || resp.ProtoMajor != 2 || resp.StatusCode != 200 || resp.Header.Get("Strict-Transport-Security") == "" {
		t.Errorf("the daemon answered %v, %v", resp, err)
	}
	if resp, err := get("ambit.test"); err != nil || resp.StatusCode != 200 {
		t.Errorf("a request with the host name of the certificate got %v, %v", resp, err)
	}
	if resp, err := get("evil.example"); err != nil || resp.StatusCode != 421 {
		t.Errorf("a request with another host name got %v, %v", resp, err)
	}
	before := r.leaf().SerialNumber
	certificate(t, dir)
	if _, err := r.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	resp, err = get("")
	if err != nil || resp.TLS.PeerCertificates[0].SerialNumber.Cmp(before) == 0 {
		t.Errorf("after a reload, the daemon uses the old certificate: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cert.pem"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reload(t.Context()); err == nil {
		t.Error("a reload accepted an invalid certificate")
	}
	if resp, err = get(""); err != nil || resp.StatusCode != 200 {
		t.Errorf("after a failed reload: %v, %v", resp, err)
	}
	// The certificate is valid, but an agent is not, so nothing changes.
	certificate(t, dir)
	r.fleet.options.Strict = true
	r.write("bad.json", `{"schema_version": 1, "agent": 7}`)
	shown := r.leaf().SerialNumber
	if _, err := r.Reload(t.Context()); err == nil {
		t.Error("a reload accepted an invalid agent")
	}
	if resp, err = get(""); err != nil || resp.TLS.PeerCertificates[0].SerialNumber.Cmp(shown) != 0 {
		t.Errorf("after a failed reload, the daemon uses another certificate: %v", err)
	}
}
