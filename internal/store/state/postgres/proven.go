package postgres

import (
	"crypto/tls"
	"net/netip"
	"path/filepath"

	"github.com/jackc/pgx/v5"
)

// Unproven returns the first host of a URL that is on another machine and does not have
// to prove its name with a certificate. It returns "" if there is none, or if the URL
// cannot be parsed and so cannot be opened.
func Unproven(url string) string {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return ""
	}
	unproven := func(host string, c *tls.Config) bool {
		return !onThisMachine(host) && (c == nil || c.InsecureSkipVerify)
	}
	if unproven(config.Host, config.TLSConfig) {
		return config.Host
	}
	for _, f := range config.Fallbacks {
		if unproven(f.Host, f.TLSConfig) {
			return f.Host
		}
	}
	return ""
}

// onThisMachine reports whether a host is the directory of a socket or a loopback
// address.
func onThisMachine(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || filepath.IsAbs(host) || err == nil && ip.Unmap().IsLoopback()
}
