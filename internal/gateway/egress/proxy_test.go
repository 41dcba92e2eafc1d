package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// proxied starts a proxy and returns its address and its decisions.
func proxied(t *testing.T, d *Dialer, p Policy) (address string, decisions chan Decision) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "proxy"))
	if err != nil {
		t.Fatal(err)
	}
	decisions = make(chan Decision, 2*maxConnections)
	done := make(chan struct{})
	go func() {
		NewNetwork(d, p, func(d Decision) { decisions <- d }).Serve(l)
		close(done)
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return l.Addr().String(), decisions
}

// ask sends the lines of one request to a proxy and returns the connection and the status.
func ask(t *testing.T, proxy, line string) (net.Conn, *bufio.Reader, int) {
	t.Helper()
	conn, err := net.Dial("unix", proxy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, line+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, &http.Request{Method: "CONNECT"})
	if err != nil {
		return conn, r, 0
	}
	return conn, r, resp.StatusCode
}

// through returns a client that sends all requests through the proxy.
func through(sw Switches, proxy string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy:           func(*http.Request) (*url.URL, error) { return url.Parse("http://proxy") },
		DialContext:     func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", proxy) },
		TLSClientConfig: &tls.Config{RootCAs: sw.roots}, DisableKeepAlives: true,
	}}
}

func TestProxyLetsThrough(t *testing.T) {
	_, sw := server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		io.WriteString(w, r.Host+" got "+string(body))
	}))
	for _, p := range []Policy{{Mode: ModeHTTPS}, {Mode: ModeAllowlist, Hosts: []string{"example.com"}}, {Mode: ModeFull}} {
		proxy, decisions := proxied(t, NewDialer(sw), p)
		for _, address := range []string{"https://example.com/", "https://EXAMPLE.com./"} {
			resp, err := through(sw, proxy).Post(address, "text/plain", strings.NewReader(strings.Repeat("x", 100_000)))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || len(body) < 100_000 || !strings.Contains(strings.ToLower(string(body)), "example.com") {
				t.Errorf("%s: %d bytes, %v", p.Mode, len(body), err)
			}
			if d := <-decisions; d.Refusal != nil || d.Host != "example.com" || d.Port != "443" {
				t.Errorf("%s: got decision %+v, want example.com:443 allowed", p.Mode, d)
			}
		}
	}
}

func TestProxyRefuses(t *testing.T) {
	port, reached := trap(t)
	d := NewDialer(Switches{})
	d.Resolver = &answers{lists: [][]netip.Addr{addrs("127.0.0.1")}}
	for _, tt := range []struct {
		name, line string
		policy     Policy
		code       call.Code
	}{
		{"no network", "CONNECT example.com:443 HTTP/1.1", Policy{}, call.HostNotAllowed},
		{"unlisted", "CONNECT other.test:443 HTTP/1.1", Policy{Mode: ModeAllowlist, Hosts: []string{"example.com"}}, call.HostNotAllowed},
		{"a name with a listed name as its ending", "CONNECT badexample.com:443 HTTP/1.1", Policy{Mode: ModeAllowlist, Hosts: []string{"example.com"}}, call.HostNotAllowed},
		{"capitals and a final dot", "CONNECT OTHER.Test.:443 HTTP/1.1", Policy{Mode: ModeAllowlist, Hosts: []string{"example.com"}}, call.HostNotAllowed},
		{"an empty list", "CONNECT example.com:443 HTTP/1.1", Policy{Mode: ModeAllowlist}, call.HostNotAllowed},
		{"an address", "CONNECT 93.184.215.14:443 HTTP/1.1", Policy{Mode: ModeHTTPS}, call.HostNotAllowed},
		{"decimal", "CONNECT 2130706433:443 HTTP/1.1", Policy{Mode: ModeHTTPS}, call.HostNotAllowed},
		{"hexadecimal", "CONNECT 0x7f000001:443 HTTP/1.1", Policy{Mode: ModeHTTPS}, call.HostNotAllowed},
		{"octal", "CONNECT 0177.0.0.1:443 HTTP/1.1", Policy{Mode: ModeHTTPS}, call.HostNotAllowed},
		{"short", "CONNECT 127.1:443 HTTP/1.1", Policy{Mode: ModeHTTPS}, call.HostNotAllowed},
		{"IPv6", "CONNECT [::1]:443 HTTP/1.1", Policy{Mode: ModeHTTPS}, call.HostNotAllowed},
		{"mapped", "CONNECT [::ffff:127.0.0.1]:443 HTTP/1.1", Policy{Mode: ModeHTTPS}, call.HostNotAllowed},
		{"translated", "CONNECT [64:ff9b::7f00:1]:443 HTTP/1.1", Policy{Mode: ModeHTTPS}, call.HostNotAllowed},
		{"a name in brackets", "CONNECT [example.com]:443 HTTP/1.1", Policy{Mode: ModeHTTPS}, call.HostNotAllowed},
		{"no request", "hello", Policy{Mode: ModeHTTPS}, call.HostNotAllowed},
		{"two final dots", "CONNECT example.com..:443 HTTP/1.1", Policy{Mode: ModeHTTPS}, call.HostNotAllowed},
		{"an address with a dot", "CONNECT 127.0.0.1.:443 HTTP/1.1", Policy{Mode: ModeHTTPS}, call.HostNotAllowed},
		{"a user", "CONNECT user@example.com:443 HTTP/1.1", Policy{Mode: ModeHTTPS}, call.HostNotAllowed},
		{"another port", "CONNECT example.com:22 HTTP/1.1", Policy{Mode: ModeHTTPS}, call.HostNotAllowed},
		{"a port with a leading zero", "CONNECT example.com:022 HTTP/1.1", Policy{Mode: ModeHTTPS}, call.HostNotAllowed},
		{"no port", "CONNECT example.com HTTP/1.1", Policy{Mode: ModeHTTPS}, call.HostNotAllowed},
		{"plain http", "GET http://example.com/ HTTP/1.1\r\nHost: example.com", Policy{Mode: ModeHTTPS}, call.HostNotAllowed},
		{"https without a tunnel", "GET https://example.com/ HTTP/1.1\r\nHost: example.com", Policy{Mode: ModeFull}, call.HostNotAllowed},
		{"the proxy itself", "GET / HTTP/1.1\r\nHost: proxy", Policy{Mode: ModeFull}, call.HostNotAllowed},
		{"a listed name with a loopback address", "CONNECT example.com:443 HTTP/1.1", Policy{Mode: ModeAllowlist, Hosts: []string{"example.com"}}, call.AddressBlocked},
		{"full network access does not include loopback addresses", "CONNECT example.com:" + port + " HTTP/1.1", Policy{Mode: ModeFull}, call.AddressBlocked},
		{"plain http to a loopback address", "GET http://example.com:" + port + "/ HTTP/1.1\r\nHost: example.com", Policy{Mode: ModeFull}, call.HostNotAllowed},
		{"a loopback address with full network access", "CONNECT 127.0.0.1:" + port + " HTTP/1.1", Policy{Mode: ModeFull}, call.AddressBlocked},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proxy, decisions := proxied(t, d, tt.policy)
			_, _, status := ask(t, proxy, tt.line)
			if status != http.StatusForbidden {
				t.Errorf("got status %d, want %d", status, http.StatusForbidden)
			}
			if got := <-decisions; got.Refusal == nil || got.Refusal.Code != tt.code {
				t.Errorf("got decision %+v, want %s", got.Refusal, tt.code)
			}
		})
	}
	if reached.Load() != 0 {
		t.Error("the server on this machine was reached")
	}
}

// TestProxyRebinding: the proxy never dials a blocked address. A name may resolve to a public
// address first and to a blocked address later. A name may also resolve to both addresses at the
// same time.
func TestProxyRebinding(t *testing.T) {
	_, reached := trap(t)
	for _, lists := range [][][]netip.Addr{
		{addrs("93.184.215.14", "127.0.0.1")},
		{addrs("93.184.215.14"), addrs("127.0.0.1")},
	} {
		d := NewDialer(Switches{})
		resolver := &answers{lists: lists}
		d.Resolver = resolver
		dialled := make(chan netip.AddrPort, 10)
		d.open = func(_ context.Context, a netip.AddrPort, _ control) (net.Conn, error) {
			dialled <- a
			return nil, io.ErrUnexpectedEOF
		}
		proxy, _ := proxied(t, d, Policy{Mode: ModeHTTPS})
		_, _, first := ask(t, proxy, "CONNECT rebind.test:443 HTTP/1.1")
		_, _, second := ask(t, proxy, "CONNECT rebind.test:443 HTTP/1.1")
		if want := http.StatusForbidden; second != want || len(lists) == 1 && first != want {
			t.Errorf("%v: got status %d, then %d", lists, first, second)
		}
		close(dialled)
		for a := range dialled {
			if a.Addr() != lists[0][0] || len(lists) == 1 {
				t.Errorf("%v was dialled", a)
			}
		}
	}
	if reached.Load() != 0 {
		t.Error("the server on this machine was reached")
	}
}

// TestProxyRequiresTLS: a tunnel can be used only for TLS with the requested host.
func TestProxyRequiresTLS(t *testing.T) {
	_, sw := server(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "reached") }))
	for _, tt := range []struct {
		name string
		talk func(net.Conn)
	}{
		{"other bytes", func(c net.Conn) { io.WriteString(c, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n") }},
		{"SSH", func(c net.Conn) { io.WriteString(c, "SSH-2.0-OpenSSH_9.2\r\n") }},
		{"another name", func(c net.Conn) {
			tls.Client(c, &tls.Config{ServerName: "sub.example.com", InsecureSkipVerify: true}).Handshake()
		}},
		{"no name", func(c net.Conn) { tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake() }},
		{"nothing", func(c net.Conn) { c.(*net.UnixConn).CloseWrite() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proxy, decisions := proxied(t, NewDialer(sw), Policy{Mode: ModeHTTPS})
			conn, r, status := ask(t, proxy, "CONNECT example.com:443 HTTP/1.1")
			if status != http.StatusOK {
				t.Fatalf("status %d", status)
			}
			tt.talk(conn)
			if d := <-decisions; d.Refusal == nil || d.Refusal.Code != call.HostNotAllowed {
				t.Errorf("got decision %+v, want %s", d.Refusal, call.HostNotAllowed)
			}
			if b, _ := io.ReadAll(r); len(b) != 0 {
				t.Errorf("the program received %q, want nothing", b)
			}
		})
	}
}

// TestProxyEnds: all connections end when the listener is closed, including idle ones.
func TestProxyEnds(t *testing.T) {
	_, sw := server(t, nil)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "proxy"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		NewNetwork(NewDialer(sw), Policy{Mode: ModeHTTPS}, nil).Serve(l)
		close(done)
	}()
	conn, r, _ := ask(t, l.Addr().String(), "CONNECT example.com:443 HTTP/1.1")
	silent, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	client := tls.Client(conn, &tls.Config{ServerName: "example.com", RootCAs: sw.roots})
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	l.Close()
	<-done
	if _, err := r.ReadByte(); err == nil {
		t.Error("the tunnel is still open")
	}
}

// TestProxyBounds: the proxy limits the number of connections of a sandbox. A connection counts even before it has sent
// CONNECT.
func TestProxyBounds(t *testing.T) {
	_, sw := server(t, nil)
	proxy, _ := proxied(t, NewDialer(sw), Policy{Mode: ModeHTTPS})
	dial := func() net.Conn {
		conn, err := net.Dial("unix", proxy)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	for range maxConnections - 1 {
		dial() // sends nothing
	}
	if _, _, status := ask(t, proxy, "CONNECT example.com:443 HTTP/1.1"); status != http.StatusOK {
		t.Fatalf("the last connection: got status %d, want %d", status, http.StatusOK)
	}
	if n, err := dial().Read(make([]byte, 1)); n != 0 || err == nil {
		t.Error("a connection beyond the limit is served")
	}
}

// The header of a request counts toward the traffic of a sandbox.
func TestProxyCountsHeaders(t *testing.T) {
	_, sw := server(t, nil)
	for long, want := range map[int]int{10: http.StatusOK, 2000: http.StatusForbidden} {
		proxy := near(t, NewDialer(sw), Policy{Mode: ModeHTTPS}, 1000)
		line := "CONNECT example.com:443 HTTP/1.1\r\nX-Long: " + strings.Repeat("x", long)
		if _, _, status := ask(t, proxy, line); status != want {
			t.Errorf("a header of %d bytes: got status %d, want %d", long, status, want)
		}
	}
}
