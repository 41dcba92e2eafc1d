package egress

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Host is the one spelling of a host's name: lower case, without a final dot.
// It refuses what is no name: addresses in all their spellings, and characters
// that programs read differently.
func Host(host string) (string, error) {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	labels := strings.Split(name, ".")
	ok := len(name) <= 253
	for _, l := range labels {
		ok = ok && l != "" && len(l) <= 63 && strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
	}
	if !ok || numeric(labels[len(labels)-1]) {
		return "", call.Refuse(Stage, call.HostNotAllowed, "%s is not the name of a host", diag.Quote(host))
	}
	return name, nil
}

// numeric tells a last label that makes resolvers read the whole as an IPv4
// address: 127.1, 2130706433, 0x7f.1, 0177.0.0.1.
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// IsLoopback reports whether a host is this machine, as written.
func IsLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// Destination holds a request to where requests may go: over https to a host
// with a name, which nothing in the request contradicts.
func (s Switches) Destination(req *http.Request) error {
	u := req.URL
	if u.User != nil || u.Opaque != "" {
		return call.Refuse(Stage, call.HostNotAllowed, "the address says more than a host where its host stands")
	}
	if req.Host != "" && !strings.EqualFold(req.Host, u.Host) {
		return call.Refuse(Stage, call.HostNotAllowed, "the request names another host than it goes to")
	}
	_, err := s.Host(u)
	return err
}

// Host is the one spelling of the host that an address goes to, over https, or
// to this machine where that is switched on.
func (s Switches) Host(u *url.URL) (string, error) {
	if s.LoopbackHTTP && IsLoopback(u.Hostname()) && (u.Scheme == "http" || u.Scheme == "https") {
		return strings.ToLower(u.Hostname()), nil
	}
	if u.Scheme != "https" {
		return "", call.Refuse(Stage, call.HostNotAllowed, "an action goes over https, not %s", diag.Quote(u.Scheme))
	}
	return Host(u.Hostname())
}

// Same reports whether two addresses have the same scheme, host and port, in
// whatever spelling.
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
