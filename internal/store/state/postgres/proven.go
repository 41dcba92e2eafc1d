package postgres

import (
	"crypto/tls"
	"net/netip"
	"path/filepath"

	"github.com/jackc/pgx/v5"
)

// Unproven is a server of a URL that could be anybody: it is on another machine,
// and no certificate has to show that it is the one that is named. Empty if there
// is none. What cannot be parsed names none, and cannot be opened.
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

// onThisMachine reports whether a host is a socket's folder or loopback.
func onThisMachine(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || filepath.IsAbs(host) || err == nil && ip.Unmap().IsLoopback()
}
