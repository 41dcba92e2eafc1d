package egress

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Host returns the canonical spelling of a host's name: lower case, without a final dot.
// It refuses addresses in every spelling, and characters that programs read differently.
func Host(host string) (string, error) {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	labels := strings.Split(name, ".")
	ok := len(name) <= 253
	for _, l := range labels {
		ok = ok && l != "" && len(l) <= 63 && strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
	}
	if !ok || numeric(labels[len(labels)-1]) {
		return "", call.Refuse(Stage, call.HostNotAllowed, "%s is not a host name", diag.Quote(host))
	}
	return name, nil
}

// numeric reports whether a last label makes resolvers read the whole name as an IPv4
// address: 127.1, 2130706433, 0x7f.1, 0177.0.0.1.
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// IsLoopback reports whether the text of a host names this machine.
func IsLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// Destination refuses a request that does not go over https to a host with a name, or
// whose headers contradict that host.
func (s Switches) Destination(req *http.Request) error {
	u := req.URL
	if u.User != nil || u.Opaque != "" {
		return call.Refuse(Stage, call.HostNotAllowed, "the address has more than a host in its host part")
	}
	if req.Host != "" && !strings.EqualFold(req.Host, u.Host) {
		return call.Refuse(Stage, call.HostNotAllowed, "the Host header differs from the host of the address")
	}
	_, err := s.Host(u)
	return err
}

// Host returns the canonical host of an address. The address must use https, or this
// machine if that is switched on.
func (s Switches) Host(u *url.URL) (string, error) {
	if s.LoopbackHTTP && IsLoopback(u.Hostname()) && (u.Scheme == "http" || u.Scheme == "https") {
		return strings.ToLower(u.Hostname()), nil
	}
	if u.Scheme != "https" {
		return "", call.Refuse(Stage, call.HostNotAllowed, "an action must use https, not %s", diag.Quote(u.Scheme))
	}
	return Host(u.Hostname())
}

// Same reports whether two addresses have the same scheme, host and port, in any spelling.
func Same(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && port(a) == port(b) &&
		strings.EqualFold(strings.TrimSuffix(a.Hostname(), "."), strings.TrimSuffix(b.Hostname(), "."))
}

func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "http":
		return "80"
	}
	return "443"
}
