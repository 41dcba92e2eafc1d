package egress

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// answers is a resolver. Each lookup returns the next list of addresses; the last list is
// repeated.
type answers struct {
	mu    sync.Mutex
	lists [][]netip.Addr
	asked []string
}

func (a *answers) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, host)
	if len(a.lists) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	list := a.lists[0]
	if len(a.lists) > 1 {
		a.lists = a.lists[1:]
	}
	return append([]netip.Addr(nil), list...), nil
}

func addrs(list ...string) []netip.Addr {
	out := make([]netip.Addr, len(list))
	for i, a := range list {
		out[i] = netip.MustParseAddr(a)
	}
	return out
}

// trap is a server that must never be reached.
func trap(t *testing.T) (port string, reached *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	reached = new(atomic.Int32)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			c.Close()
		}
	}()
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port, reached
}

func wantCode(t *testing.T, err error, code call.Code, effect call.Effect) *call.Refusal {
	t.Helper()
	r, ok := errors.AsType[*call.Refusal](err)
	if !ok || r.Code != code || r.Effect != effect {
		t.Fatalf("got %v, want %s with effect %s", err, code, effect)
	}
	return r
}

func get(t *testing.T, c *Client, method, address string) (*http.Response, error) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do((&http.Request{Method: method, URL: u, Header: http.Header{}}).WithContext(t.Context()))
	if err == nil {
		t.Cleanup(func() { resp.Body.Close() })
	}
	return resp, err
}

func TestAddresses(t *testing.T) {
	for _, a := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "169.254.169.254",
		"172.16.0.1", "172.31.255.255", "192.0.0.192", "192.168.1.1", "192.88.99.1", "198.18.0.1", "224.0.0.1", "239.255.255.255",
		"240.0.0.1", "255.255.255.255", "168.63.129.16", "192.0.2.1",
		"::", "::1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1",
		"::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", // mapped
		"::127.0.0.1",                             // compatible
		"64:ff9b::7f00:1", "64:ff9b:1::a9fe:a9fe", // translated
		"2002:7f00:1::1", "2002:a9fe:a9fe::1", // 6to4
		"2001:0:7f00:1::1",    // Teredo
		"2606:4700::1111%en0", // a zone
	} {
		if public(netip.MustParseAddr(a).Unmap()) == nil {
			t.Errorf("%s is treated as public", a)
		}
	}
	for _, a := range []string{"1.1.1.1", "93.184.216.34", "172.32.0.1", "100.128.0.1", "168.63.129.17", "2606:4700::1111", "::ffff:1.1.1.1"} {
		if public(netip.MustParseAddr(a).Unmap()) != nil {
			t.Errorf("%s is not treated as public", a)
		}
	}
}

func TestHost(t *testing.T) {
	for host, want := range map[string]string{
		"API.Example.com.": "api.example.com", "xn--bcher-kva.example": "xn--bcher-kva.example", "a_b.example.com": "a_b.example.com",
	} {
		if got, err := Host(host); err != nil || got != want {
			t.Errorf("Host(%q) = %q, %v, want %q", host, got, err, want)
		}
	}
	for _, host := range []string{
		"", ".", "..", "a..b", "example.com..", "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0X7F.1", "0177.0.0.1", "127.0.0.1.",
		"0x7f", "0x", "::1", "[::1]", "::ffff:127.0.0.1", "a b.com", "bücher.example", "ex%61mple.com", "user@example.com", "example.com:443", "１２７.0.0.1",
		strings.Repeat("a", 64) + ".com", strings.Repeat("a.", 130) + "com",
	} {
		if got, err := Host(host); err == nil {
			t.Errorf("Host(%q) = %q, want an error", host, got)
		}
	}
}

// TestEncodedAddresses: no spelling of this machine's address is dialled.
func TestEncodedAddresses(t *testing.T) {
	port, reached := trap(t)
	c := New(Switches{})
	for _, host := range []string{
		"127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001", "127.0.0.1.", "[::1]",
		"[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::1]", "0", "0.0.0.0",
	} {
		_, err := get(t, c, "GET", "https://"+host+":"+port+"/")
		wantCode(t, err, call.HostNotAllowed, call.NoEffect)
		// The dialer checks the host too, and does not rely on the client.
		_, err = c.dialer.DialContext(t.Context(), "tcp", net.JoinHostPort(strings.Trim(host, "[]"), port))
		wantCode(t, err, call.HostNotAllowed, call.NoEffect)
	}
	c.dialer.Resolver = &answers{lists: [][]netip.Addr{addrs("127.0.0.1")}}
	for _, host := range []string{"localhost", "LOCALHOST."} {
		_, err := get(t, c, "GET", "https://"+host+":"+port+"/")
		wantCode(t, err, call.AddressBlocked, call.NoEffect)
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("the server was reached %d times", n)
	}
}

func TestDestination(t *testing.T) {
	c := New(Switches{})
	for _, address := range []string{
		"http://api.example.com/", "ftp://api.example.com/", "https://user@api.example.com/", "https://user:pw@api.example.com/",
		"https://api.example.com@evil.test/", "https:api.example.com", "//api.example.com/", "https:///x", "https://api.example.com:0/",
	} {
		_, err := get(t, c, "POST", address)
		wantCode(t, err, call.HostNotAllowed, call.NoEffect)
	}
	req := &http.Request{Method: "GET", URL: &url.URL{Scheme: "https", Host: "api.example.com"}, Host: "evil.test", Header: http.Header{}}
	_, err := c.Do(req)
	wantCode(t, err, call.HostNotAllowed, call.NoEffect)
}

// TestRebinding: the dialer dials exactly the address that it checked. The first lookup of
// the name returns a public address, and all later lookups return this machine's address.
func TestRebinding(t *testing.T) {
	port, reached := trap(t)
	number := netip.MustParseAddrPort("127.0.0.1:" + port).Port()
	names := &answers{lists: [][]netip.Addr{addrs("93.184.216.34"), addrs("127.0.0.1")}}
	var dialled []netip.AddrPort
	d := NewDialer(Switches{})
	d.Resolver = names
	d.open = func(_ context.Context, a netip.AddrPort, judge control) (net.Conn, error) {
		dialled = append(dialled, a)
		if err := judge("tcp4", a.String(), nil); err != nil {
			return nil, err
		}
		return nil, errors.New("connection refused")
	}
	_, err := d.DialContext(t.Context(), "tcp", "rebind.test:"+port)
	if err == nil || len(dialled) != 1 || dialled[0] != netip.AddrPortFrom(netip.MustParseAddr("93.184.216.34"), number) {
		t.Fatalf("dialled %v: %v", dialled, err)
	}
	_, err = d.DialContext(t.Context(), "tcp", "rebind.test:"+port)
	wantCode(t, err, call.AddressBlocked, call.NoEffect)
	if len(names.asked) != 2 || names.asked[0] != "rebind.test." || reached.Load() != 0 {
		t.Errorf("got lookups %v, and the server was reached %d times", names.asked, reached.Load())
	}
}

// TestSocketIsJudged: the address is checked again when the socket is opened. This check blocks an
// address even if the check of the resolver's answer missed it.
func TestSocketIsJudged(t *testing.T) {
	port, reached := trap(t)
	number := netip.MustParseAddrPort("127.0.0.1:" + port).Port()
	_, err := NewDialer(Switches{}).first(t.Context(), "evil.test", addrs("127.0.0.1", "::1"), number, public)
	wantCode(t, err, call.AddressBlocked, call.NoEffect)
	if reached.Load() != 0 {
		t.Error("the server was reached")
	}
}

func TestMixedAnswersAreRefused(t *testing.T) {
	for _, list := range [][]netip.Addr{
		addrs("93.184.216.34", "127.0.0.1"), addrs("::ffff:10.0.0.1"), addrs("2606:4700::1111", "fe80::1"), addrs("64:ff9b::a00:1"),
	} {
		d := NewDialer(Switches{})
		d.Resolver = &answers{lists: [][]netip.Addr{list}}
		d.open = func(context.Context, netip.AddrPort, control) (net.Conn, error) {
			t.Errorf("%v: an address was dialled", list)
			return nil, errors.New("no")
		}
		_, err := NewClient(d).Do(&http.Request{Method: "POST", URL: &url.URL{Scheme: "https", Host: "evil.test"}, Header: http.Header{}})
		if r := wantCode(t, err, call.AddressBlocked, call.NoEffect); strings.Contains(r.Message, "10.0") || strings.Contains(r.Message, "fe80") {
			t.Errorf("the message contains an address of the local network: %s", r.Message)
		}
	}
}

// server starts a TLS server for example.com with its own certificate authority. The
// returned switches make a client dial the server and trust the authority.
func server(t *testing.T, h http.Handler) (*httptest.Server, Switches) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS() // its certificate is for example.com and subdomains
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	to := s.Listener.Addr().String()
	sw, err := Read(environ(map[string]string{EnvResolve: "example.com:443=" + to + ",wrong.test:443=" + to, EnvCA: file}), false, false)
	if err != nil {
		t.Fatal(err)
	}
	return s, sw
}

func environ(m map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := m[name]; return v, ok }
}

func TestSwitchesLeadToTheServer(t *testing.T) {
	_, sw := server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Host) }))
	c := New(sw)
	for _, method := range []string{"GET", "POST"} {
		resp, err := get(t, c, method, "https://example.com/")
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); string(body) != "example.com" || err != nil {
			t.Errorf("%s: got body %q with error %v, want example.com", method, body, err)
		}
	}
	// The client refuses a server with an untrusted certificate authority or with a certificate for
	// another name.
	untrusted := sw
	untrusted.roots = x509.NewCertPool()
	_, err := get(t, New(untrusted), "POST", "https://example.com/")
	if r := wantCode(t, err, call.ServerUnavailable, call.NoEffect); !strings.Contains(r.Message, "signed") {
		t.Errorf("without the authority: got message %q", r.Message)
	}
	_, err = get(t, c, "POST", "https://wrong.test/")
	if r := wantCode(t, err, call.ServerUnavailable, call.NoEffect); !strings.Contains(r.Message, "another name") {
		t.Errorf("with the wrong name: got message %q", r.Message)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	_, sw := server(t, http.RedirectHandler("https://wrong.test/", http.StatusFound))
	resp, err := get(t, New(sw), "GET", "https://example.com/")
	if err != nil || resp.StatusCode != http.StatusFound {
		t.Errorf("got response %v with error %v, want status %d", resp, err, http.StatusFound)
	}
}

func TestProxiesOfTheEnvironmentAreNotUsed(t *testing.T) {
	port, reached := trap(t)
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy"} {
		t.Setenv(name, "http://127.0.0.1:"+port)
	}
	_, sw := server(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	if _, err := get(t, New(sw), "GET", "https://example.com/"); err != nil || reached.Load() != 0 {
		t.Errorf("%v; the proxy was reached %d times", err, reached.Load())
	}
	if New(Switches{}).reused.Proxy != nil || New(Switches{}).single.Proxy != nil {
		t.Error("a transport uses a proxy")
	}
}

// TestEffects: a request that was not sent has no effect. If a sent request fails, its effect is
// unknown. A request that only reads never has an effect.
func TestEffects(t *testing.T) {
	_, sw := server(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	}))
	closed, _ := net.Listen("tcp", "127.0.0.1:0")
	closed.Close()
	sw.names["closed.test:443"] = netip.MustParseAddrPort(closed.Addr().String())
	for _, tt := range []struct {
		name, method string
		of           agent.SideEffect
		address      string
		code         call.Code
		effect       call.Effect
		unsent       bool
	}{
		{"a read that is cut off", "GET", agent.Read, "https://example.com/", call.ServerUnavailable, call.NoEffect, false},
		{"a write with a GET request that is cut off", "GET", agent.Write, "https://example.com/", call.ServerUnavailable, call.EffectUnknown, false},
		{"a tool of an unknown class, with a request that is cut off", "HEAD", "", "https://example.com/", call.ServerUnavailable, call.EffectUnknown, false},
		{"a read with a POST request that is cut off", "POST", agent.Read, "https://example.com/", call.ServerUnavailable, call.EffectUnknown, false},
		{"a write that is cut off", "POST", agent.Write, "https://example.com/", call.ServerUnavailable, call.EffectUnknown, false},
		{"a DELETE request that is cut off", "DELETE", agent.Write, "https://example.com/", call.ServerUnavailable, call.EffectUnknown, false},
		{"a write to a closed port", "POST", agent.Write, "https://closed.test/", call.ServerUnavailable, call.NoEffect, true},
		{"a read from a closed port", "GET", agent.Read, "https://closed.test/", call.ServerUnavailable, call.NoEffect, true},
		{"a write to a server with a certificate for another name", "POST", agent.Write, "https://wrong.test/", call.ServerUnavailable, call.NoEffect, true},
		{"a read from a host that is not allowed", "GET", agent.Read, "http://example.com/", call.HostNotAllowed, call.NoEffect, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u, err := url.Parse(tt.address)
			if err != nil {
				t.Fatal(err)
			}
			_, err = New(sw).Send((&http.Request{Method: tt.method, URL: u, Header: http.Header{}}).WithContext(t.Context()), tt.of)
			r := wantCode(t, err, tt.code, tt.effect)
			if r.Unsent != tt.unsent {
				t.Errorf("got Unsent %t, want %t", r.Unsent, tt.unsent)
			}
			if r.Retryable != (tt.effect == call.NoEffect && r.Code == call.ServerUnavailable && !strings.Contains(r.Message, "authenticated")) || strings.Contains(r.Message, "127.0.0.1") {
				t.Errorf("the refusal has the wrong Retryable, or shows an address: %+v", r)
			}
		})
	}
}

func TestTimeouts(t *testing.T) {
	arrived := make(chan struct{}, 8)
	_, sw := server(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	}))
	for _, tt := range []struct {
		method string
		end    error
		effect call.Effect
	}{
		{"GET", context.DeadlineExceeded, call.NoEffect},
		{"PUT", context.DeadlineExceeded, call.EffectUnknown},
		{"PUT", context.Canceled, call.EffectUnknown},
	} {
		ctx := &ending{Context: t.Context(), done: make(chan struct{})}
		req := (&http.Request{Method: tt.method, URL: &url.URL{Scheme: "https", Host: "example.com"}, Header: http.Header{}}).WithContext(ctx)
		go func() {
			<-arrived
			ctx.end(tt.end)
		}()
		_, err := New(sw).Do(req)
		r := wantCode(t, err, call.TimedOut, tt.effect)
		if cancelled := tt.end == context.Canceled; strings.Contains(r.Message, "cancelled") != cancelled {
			t.Errorf("%s request cancelled with %v: got message %q", tt.method, tt.end, r.Message)
		}
	}
}

// ending is a context that the test ends with any error.
type ending struct {
	context.Context
	mu   sync.Mutex
	err  error
	done chan struct{}
}

func (e *ending) Done() <-chan struct{} { return e.done }

func (e *ending) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

func (e *ending) end(err error) {
	e.mu.Lock()
	e.err = err
	e.mu.Unlock()
	close(e.done)
}

func TestLoopbackHTTP(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "here") }))
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	_, err := get(t, New(Switches{}), "GET", "http://127.0.0.1:"+port+"/")
	wantCode(t, err, call.HostNotAllowed, call.NoEffect)

	c := New(Switches{LoopbackHTTP: true})
	resp, err := get(t, c, "GET", "http://127.0.0.1:"+port+"/")
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(resp.Body); string(body) != "here" {
		t.Errorf("got body %q, want \"here\"", body)
	}
	// The switch allows http to this machine. It does not allow other names that resolve to this
	// machine, or plain http to other hosts.
	for _, address := range []string{"http://example.com:" + port + "/", "http://10.0.0.1/", "http://2130706433:" + port + "/", "http://localhost.:" + port + "/"} {
		_, err := get(t, c, "GET", address)
		wantCode(t, err, call.HostNotAllowed, call.NoEffect)
	}
	c.dialer.Resolver = &answers{lists: [][]netip.Addr{addrs("127.0.0.1")}}
	_, err = get(t, c, "GET", "https://evil.test:"+port+"/")
	wantCode(t, err, call.AddressBlocked, call.NoEffect)
}

func TestSwitches(t *testing.T) {
	_, sw := server(t, nil)
	if !sw.On() || !strings.Contains(sw.Announce(), "connections to example.com:443 go to 127.0.0.1:") || !strings.Contains(sw.Announce(), EnvCA) {
		t.Errorf("the warning does not list the switches: %q", sw.Announce())
	}
	none, err := Read(environ(nil), false, true)
	if err != nil || none.On() || none.Announce() != "" {
		t.Errorf("with an empty environment: got switches %+v with error %v", none, err)
	}
	for _, tt := range []struct {
		env      map[string]string
		loopback bool
	}{
		{map[string]string{EnvResolve: "a.test:443=127.0.0.1:1"}, false},
		{map[string]string{EnvCA: "ca.pem"}, false},
		{nil, true},
	} {
		if s, err := Read(environ(tt.env), tt.loopback, true); !errors.Is(err, ErrProduction) || s.On() {
			t.Errorf("%v in production: got error %v, want %v", tt, err, ErrProduction)
		}
	}
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, env := range []map[string]string{
		{EnvResolve: "a.test=127.0.0.1:1"},
		{EnvResolve: "a.test:443"},
		{EnvResolve: "a.test:443=b.test:443"},
		{EnvResolve: "a.test:443=127.0.0.1"},
		{EnvResolve: "127.0.0.1:443=127.0.0.1:1"},
		{EnvResolve: "a.test:443=127.0.0.1:0"},
		{EnvCA: empty},
		{EnvCA: empty + "x"},
	} {
		if _, err := Read(environ(env), false, false); err == nil {
			t.Errorf("%v is accepted", env)
		}
	}
}

func TestMissingHost(t *testing.T) {
	d := NewDialer(Switches{})
	d.Resolver = &answers{}
	_, err := NewClient(d).Do(&http.Request{Method: "POST", URL: &url.URL{Scheme: "https", Host: "gone.test"}, Header: http.Header{}})
	if r := wantCode(t, err, call.ServerUnavailable, call.NoEffect); !strings.Contains(r.Message, "does not exist") {
		t.Errorf("got message %q, want that the host does not exist", r.Message)
	}
}
