package egress

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// Each of these environment variables turns on a development switch.
const (
	EnvDev     = "AMBIT_DEV" // the value 1 has the effect of the flag --dev
	EnvResolve = "AMBIT_DEV_RESOLVE"
	EnvCA      = "AMBIT_DEV_CA"
)

// ErrProduction is returned by [Read] if a development switch is on in production.
var ErrProduction = errors.New("development switches are refused in production")

// Switches relax the host checks during development. In the zero value, all switches are off.
type Switches struct {
	// LoopbackHTTP allows requests to this machine, including plain http.
	LoopbackHTTP bool

	names  map[string]netip.AddrPort // address to dial for a HOST:PORT
	caFile string
	roots  *x509.CertPool // trusted authorities; nil means the system's authorities
}

// Read returns the switches. Two of them come from environment variables. The third is the flag --dev or
// --allow-loopback-http, which is passed as the parameter loopbackHTTP. In production, Read fails if a switch is on.
func Read(environ func(string) (string, bool), loopbackHTTP, production bool) (Switches, error) {
	s := Switches{LoopbackHTTP: loopbackHTTP}
	names, _ := environ(EnvResolve)
	s.caFile, _ = environ(EnvCA)
	if production {
		var on []string
		if names != "" {
			on = append(on, EnvResolve)
		}
		if s.caFile != "" {
			on = append(on, EnvCA)
		}
		if loopbackHTTP {
			on = append(on, "--dev ("+EnvDev+") or --allow-loopback-http")
		}
		if len(on) > 0 {
			return Switches{}, fmt.Errorf("%w: turn off %s", ErrProduction, strings.Join(on, ", "))
		}
		return Switches{}, nil
	}
	var err error
	if s.names, err = readNames(names); err != nil {
		return Switches{}, err
	}
	if s.caFile != "" {
		if s.roots, err = readRoots(s.caFile); err != nil {
			return Switches{}, err
		}
	}
	return s, nil
}

// readNames parses a list such as "api.example.com:443=127.0.0.1:9443,…".
func readNames(text string) (map[string]netip.AddrPort, error) {
	names := map[string]netip.AddrPort{}
	for pair := range strings.SplitSeq(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, to, _ := strings.Cut(pair, "=")
		host, port, err := net.SplitHostPort(name)
		if err == nil {
			host, err = Host(host)
		}
		target, toErr := netip.ParseAddrPort(to)
		if err != nil || toErr != nil || target.Port() == 0 {
			return nil, fmt.Errorf("%s: %q is not NAME:PORT=IP:PORT (example: a.example:443=127.0.0.1:9443)", EnvResolve, pair)
		}
		names[net.JoinHostPort(host, port)] = target
	}
	return names, nil
}

func readRoots(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", EnvCA, err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool() // this machine has no trusted authorities
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: %s contains no certificate in PEM format", EnvCA, file)
	}
	return roots, nil
}

// On returns true if at least one switch is on.
func (s Switches) On() bool { return s.LoopbackHTTP || len(s.names) > 0 || s.caFile != "" }

// Announce returns a warning that lists the active switches. It returns "" if no switch is on.
func (s Switches) Announce() string {
	if !s.On() {
		return ""
	}
	var b strings.Builder
	b.WriteString("DEVELOPMENT SWITCHES ARE ON: do not use real credentials")
	for _, name := range slices.Sorted(maps.Keys(s.names)) {
		fmt.Fprintf(&b, "\n  connections to %s go to %s instead (%s)", name, s.names[name], EnvResolve)
	}
	if s.caFile != "" {
		fmt.Fprintf(&b, "\n  certificates signed by %s are trusted (%s)", s.caFile, EnvCA)
	}
	if s.LoopbackHTTP {
		b.WriteString("\n  actions can connect to this machine, even over plain http (--dev)")
	}
	return b.String()
}

// resolve returns the address to connect to instead of the given host and port. The second result is false if no switch
// replaces this host and port.
func (s Switches) resolve(host, port string) (netip.AddrPort, bool) {
	to, ok := s.names[net.JoinHostPort(strings.ToLower(strings.TrimSuffix(host, ".")), port)]
	return to, ok
}

// CAFile returns the path of the file with the additional certificate authority, or "".
func (s Switches) CAFile() string { return s.caFile }
