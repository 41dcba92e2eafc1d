package egress

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// AudienceHost returns the normalized form of a host that may receive a token. It returns an error if the host is
// invalid. A valid host is a name without a port, or a loopback host with a port.
func AudienceHost(text string) (string, error) {
	if host, port, err := net.SplitHostPort(text); err == nil {
		host = bare(host)
		if n, err := strconv.ParseUint(port, 10, 16); IsLoopback(host) && err == nil && n > 0 {
			return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
		}
	}
	host := bare(text)
	if IsLoopback(host) {
		return "", fmt.Errorf("%s is this machine, where any process can listen on a port; add the port: HOST:PORT",
			diag.Quote(text))
	}
	if !isName(host) {
		return "", fmt.Errorf("%s is not a host name", diag.Quote(text))
	}
	return host, nil
}

func bare(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

func isName(host string) bool {
	u, err := url.Parse("https://" + host)
	return err == nil && host != "" && u.Host == host && u.Hostname() == host && u.Path == "" &&
		!strings.ContainsAny(host, "*@ ") && !strings.HasSuffix(host, ".")
}

// AudienceAt returns the host of an address, normalized by [AudienceHost]. For a loopback host, the result includes the
// port.
func AudienceAt(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	host := u.Hostname()
	if !IsLoopback(bare(host)) {
		return AudienceHost(host)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return AudienceHost(net.JoinHostPort(host, port))
}

// Audience returns the host that is allowed to receive a token for the given address. It fails if the token would be
// sent unencrypted to another machine.
func Audience(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	if u.Scheme != "https" && !(u.Scheme == "http" && IsLoopback(bare(u.Hostname()))) || u.User != nil {
		return "", errors.New("the connection would not be encrypted")
	}
	return AudienceAt(address)
}
