package login

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// A host that a token may go to is the host that the address leads to, over https or
// on this machine, and there it is its port too.
func FuzzAudience(f *testing.F) {
	for _, s := range []string{
		"https://api.example.com/mcp", "https://API.example.com.", "http://127.0.0.1:1", "http://localhost", "https://me@example.com", "https://[::1]:2/", "http://example.com",
		"https://a b", "http://[0::1]", "http://[::ffff:127.0.0.1]", "https://*.example.com", "https://example.com:443@evil.example", "https://[fe80::1%25lo]", "://", "https:example.com",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, address string) {
		host, err := audience(address)
		if err != nil {
			return
		}
		u, err := url.Parse(address)
		if err != nil {
			t.Fatalf("%q may hear a token of %q", address, host)
		}
		want, a := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), netip.Addr{}
		if ip, err := netip.ParseAddr(want); err == nil {
			a = ip
		}
		here := want == "localhost" || a.IsLoopback()
		if u.User != nil || u.Scheme != "https" && !here {
			t.Fatalf("%q may hear a token of %q", address, host)
		}
		if here {
			port, err := strconv.Atoi(cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]))
			if err != nil {
				t.Fatalf("%q is %q", address, host)
			}
			want = net.JoinHostPort(want, strconv.Itoa(port))
		}
		if host != want {
			t.Errorf("%q leads to %q, and not to %q", address, want, host)
		}
	})
}
