package egress

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Host returns the canonical spelling of a host name: lower case and without a final dot. It rejects IP addresses in
// every notation. It also rejects characters that different programs interpret in different ways.
func Host(host string) (string, error) {
	name, port := agent.SplitHost(host)
	if _, err := netip.ParseAddr(name); name == "" || port != "" || err == nil {
		return "", call.Refuse(Stage, call.HostNotAllowed, "%s is not a host name", diag.Quote(host))
	}
	return name, nil
}

// ParseDestination checks an entry for a program's list of allowed hosts, and returns the canonical spelling. The entry
// is NAME or NAME:PORT, and NAME can be an IP address. If private is true, the address may be private or loopback, and
// the entry must contain a port. The addresses of metadata services are always refused.
func ParseDestination(text string, private bool) (string, error) {
	name, port := agent.SplitHost(text)
	address, err := netip.ParseAddr(name)
	literal := err == nil
	switch {
	case name == "":
		return "", fmt.Errorf("%s is not a host; write NAME or NAME:PORT", diag.Quote(text))
	case literal && notMetadata(address.Unmap()) != nil:
		return "", fmt.Errorf("no program can reach %s, because it is a link-local, multicast or metadata service address",
			diag.Quote(text))
	case private && port == "":
		return "", fmt.Errorf("a private host needs a port; write %s:PORT", diag.Printable(name))
	case !private && (literal && public(address) != nil || name == "localhost"):
		return "", fmt.Errorf("%s is not a public address; to allow it, write NAME:PORT and add --private", diag.Quote(text))
	}
	return agent.ParseHost(text), nil
}

// IsLoopback reports whether a host is "localhost" or a loopback address.
func IsLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// Destination returns a refusal unless the URL of the request uses https and contains a host name. The Host header
// must contain the same host name.
func (s Switches) Destination(req *http.Request) error {
	u := req.URL
	if u.User != nil || u.Opaque != "" {
		return call.Refuse(Stage, call.HostNotAllowed,
			"the URL must contain a host and must not contain a user name or password")
	}
	if req.Host != "" && !strings.EqualFold(req.Host, u.Host) {
		return call.Refuse(Stage, call.HostNotAllowed, "the Host header differs from the host in the URL")
	}
	_, err := s.Host(u)
	return err
}

// Host returns the canonical host of a URL. The URL must use https. If the switch LoopbackHTTP is on, the URL can
// also use http to this machine.
func (s Switches) Host(u *url.URL) (string, error) {
	if s.LoopbackHTTP && IsLoopback(u.Hostname()) && (u.Scheme == "http" || u.Scheme == "https") {
		return strings.ToLower(u.Hostname()), nil
	}
	if u.Scheme != "https" {
		r := call.Refuse(Stage, call.HostNotAllowed, "an action must use https, not %s", diag.Quote(u.Scheme))
		if IsLoopback(u.Hostname()) {
			r.Hint = "to reach this machine during development, use --dev"
		}
		return "", r
	}
	return Host(u.Hostname())
}

// Same reports whether two URLs have the same scheme, host and port, even if the host is spelled differently.
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
