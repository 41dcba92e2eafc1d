package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"

	"code.dny.dev/ssrf"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Dialer opens connections only to public addresses.
type Dialer struct {
	// Resolver looks up the addresses of a name.
	Resolver Resolver

	switches Switches
	// open connects to an address that was already checked. The last parameter is a function that checks the address again
	// just before the socket connects. It may be nil.
	open func(ctx context.Context, address netip.AddrPort, control control) (net.Conn, error)
}

// Resolver looks up the addresses of a name. [net.Resolver] implements it.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

type control func(network, address string, raw syscall.RawConn) error

// NewDialer returns a dialer.
func NewDialer(s Switches) *Dialer {
	return &Dialer{switches: s, Resolver: net.DefaultResolver, open: open}
}

func open(ctx context.Context, address netip.AddrPort, control control) (net.Conn, error) {
	d := net.Dialer{Timeout: connectTimeout, Control: control}
	return d.DialContext(ctx, "tcp", address.String())
}

// DialContext connects to an address of the form HOST:PORT. The host must be a name, not an IP address.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("the address to dial has no port: %w", err)
	}
	if network != "tcp" && network != "tcp4" && network != "tcp6" {
		return nil, call.Refuse(Stage, call.HostNotAllowed, "the network must be tcp, tcp4 or tcp6, not %s", diag.Quote(network))
	}
	if _, err := netip.ParseAddr(host); err == nil && !(d.switches.LoopbackHTTP && IsLoopback(host)) {
		_, err := Host(host)
		return nil, err
	}
	return d.dial(ctx, host, port, false)
}

// dial connects to a port of a host. The host is a name or an IP address. If private is true, the host's address may be
// loopback or private.
func (d *Dialer) dial(ctx context.Context, host, port string, private bool) (net.Conn, error) {
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return nil, call.Refuse(Stage, call.HostNotAllowed, "%s is not a valid port", diag.Quote(port))
	}
	if to, ok := d.switches.resolve(host, port); ok {
		return d.open(ctx, to, nil)
	}
	allowed := public
	switch {
	case private:
		allowed = notMetadata
	case d.switches.LoopbackHTTP && IsLoopback(host):
		allowed = loopback
	}
	addresses, err := d.lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	for i, a := range addresses {
		addresses[i] = a.Unmap() // some resolvers return IPv4 addresses in their IPv6 form
		if allowed(addresses[i]) != nil {
			if err := notMetadata(addresses[i]); err != nil {
				return nil, fmt.Errorf("%w: %w", blocked(host), err)
			}
			return nil, blocked(host)
		}
	}
	return d.first(ctx, host, addresses, uint16(number), allowed)
}

// lookup returns the addresses of a host.
func (d *Dialer) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	if IsLoopback(host) {
		return d.Resolver.LookupNetIP(ctx, "ip", host)
	}
	name, err := Host(host)
	if err != nil {
		return nil, err
	}
	// Without the final dot, the resolver would also try search domains.
	return d.Resolver.LookupNetIP(ctx, "ip", name+".")
}

func (d *Dialer) first(
	ctx context.Context, host string, addresses []netip.Addr, port uint16, allowed func(netip.Addr) error,
) (net.Conn, error) {
	judge := func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil || allowed(to.Addr().Unmap()) != nil {
			return blocked(host)
		}
		return nil
	}
	err := error(&net.DNSError{Err: "no address", Name: host, IsNotFound: true})
	for _, a := range addresses {
		var conn net.Conn
		if conn, err = d.open(ctx, netip.AddrPortFrom(a, port), judge); err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
	}
	return nil, err
}

// guardian blocks all addresses that are not public. It blocks the special-purpose address ranges in IANA's
// registries. It also blocks all IPv6 addresses that are not global unicast, such as mapped, translated and tunneled
// IPv4 addresses.
var guardian = ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(
	// This is the address of Azure's metadata service. It looks like a public address.
	netip.MustParsePrefix("168.63.129.16/32"),
))

var (
	errZone        = errors.New("a link-local address")
	errNotLoopback = errors.New("not this machine")
)

// public returns an error if the address is not public. An address with a zone is link-local, so it is not public.
func public(a netip.Addr) error {
	if a.Zone() != "" {
		return errZone
	}
	return guardian.SafeAddr(a)
}

// metadata contains the addresses of cloud metadata services that are not link-local.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("100.100.100.200/32"),
	netip.MustParsePrefix("192.0.0.192/32"), netip.MustParsePrefix("fd00:ec2::/32"),
	netip.MustParsePrefix("fd20:ce::254/128"),
}

var errMetadata = errors.New("a metadata service")

// notMetadata returns an error for link-local addresses and those of metadata services.
func notMetadata(a netip.Addr) error {
	if a.Zone() != "" || a.IsLinkLocalUnicast() || a.IsMulticast() ||
		slices.ContainsFunc(metadata, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return errMetadata
	}
	return nil
}

func loopback(a netip.Addr) error {
	if a.IsLoopback() {
		return nil
	}
	return errNotLoopback
}

func blocked(host string) *call.Refusal {
	return call.Refuse(Stage, call.AddressBlocked, "%s resolves to a blocked address", diag.Quote(host))
}
