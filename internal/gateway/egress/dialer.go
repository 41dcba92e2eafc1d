package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
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
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 || network != "tcp" && network != "tcp4" && network != "tcp6" {
		return nil, call.Refuse(Stage, call.HostNotAllowed, "%s is not a valid TCP port", diag.Quote(port))
	}
	if to, ok := d.switches.resolve(host, port); ok {
		return d.open(ctx, to, nil)
	}
	allowed, name := loopback, host
	if !d.switches.LoopbackHTTP || !IsLoopback(host) {
		if host, err = Host(host); err != nil {
			return nil, err
		}
		// The name ends with a dot so that the resolver does not also try search domains.
		allowed, name = public, host+"."
	}
	addresses, err := d.Resolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil, err
	}
	for i, a := range addresses {
		addresses[i] = a.Unmap() // some resolvers return IPv4 addresses in their IPv6 form
		if allowed(addresses[i]) != nil {
			return nil, blocked(host)
		}
	}
	return d.first(ctx, host, addresses, uint16(number), allowed)
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

func loopback(a netip.Addr) error {
	if a.IsLoopback() {
		return nil
	}
	return errNotLoopback
}

func blocked(host string) *call.Refusal {
	return call.Refuse(Stage, call.AddressBlocked, "%s resolves to a blocked address", diag.Quote(host))
}
