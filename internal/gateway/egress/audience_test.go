package egress

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// Audience returns exactly the host in the address, plus the port if the host is this machine. It
// accepts plain http only on this machine.
func FuzzAudience(f *testing.F) {
	for _, s := range []string{
		"https://api.example.com/mcp", "https://API.example.com.", "http://127.0.0.1:1", "http://localhost", "https://me@example.com", "https://[::1]:2/", "http://example.com",
		"https://a b", "http://[0::1]", "http://[::ffff:127.0.0.1]", "https://*.example.com", "https://example.com:443@evil.example", "https://[fe80::1%25lo]", "://", "https:example.com",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, address string) {
		host, err := Audience(address)
		if err != nil {
			return
		}
		u, err := url.Parse(address)
		if err != nil {
			t.Fatalf("the invalid URL %q has the audience %q", address, host)
		}
		want, a := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), netip.Addr{}
		if ip, err := netip.ParseAddr(want); err == nil {
			a = ip
		}
		here := want == "localhost" || a.IsLoopback()
		if u.User != nil || u.Scheme != "https" && !here {
			t.Fatalf("the unencrypted address %q has the audience %q", address, host)
		}
		if here {
			port, err := strconv.Atoi(cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]))
			if err != nil {
				t.Fatalf("%q has no port, but its audience is %q", address, host)
			}
			want = net.JoinHostPort(want, strconv.Itoa(port))
		}
		if host != want {
			t.Errorf("the audience of %q is %q, want %q", address, host, want)
		}
	})
}

func TestAudienceHost(t *testing.T) {
	for in, want := range map[string]string{
		"Agents.Example.com.": "agents.example.com", "127.0.0.1:080": "127.0.0.1:80", "[::1]:8443": "[::1]:8443", "LocalHost.:1": "localhost:1",
		"127.0.0.1": "", "::1": "", "localhost": "", "localhost.": "", "localhost:": "", "localhost:0": "", "localhost:65536": "", "localhost:http": "", "localhost:-1": "", "::1:80": "",
		"https://agents.example.com": "", "agents.example.com:8443": "", "a b": "", "*.example.com": "", "a/b": "", "me@host": "", "": "", "a?b": "", "[::1]": "", "..": "", "a..": "",
	} {
		if got, err := AudienceHost(in); got != want || (err == nil) != (want != "") {
			t.Errorf("AudienceHost(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestAudienceAt(t *testing.T) {
	for in, want := range map[string]string{
		"https://Agents.Example.com:8443/x": "agents.example.com", "http://localhost": "localhost:80", "https://127.0.0.1/": "127.0.0.1:443", "http://[::1]:7/": "[::1]:7",
		"ws://localhost": "", "localhost:80": "", "https://a b/": "", "": "",
	} {
		if got, err := AudienceAt(in); got != want || (err == nil) != (want != "") {
			t.Errorf("AudienceAt(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}
