package login

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// A host that a token may go to is the host that the address leads to, over https or
// on this machine.
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
		a, bad := netip.ParseAddr(host)
		if err != nil || u.User != nil || u.Scheme != "https" && host != "localhost" && (bad != nil || !a.IsLoopback()) {
			t.Fatalf("%q may hear a token of %q", address, host)
		}
		if want := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."); host != want {
			t.Errorf("%q leads to %q, and not to %q", address, want, host)
		}
	})
}
