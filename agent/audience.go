package agent

import "strings"

// Covers reports whether the slot's credential may be sent to host: to one of
// its hosts or to a name below one, letter case and a final dot aside.
func (s *Slot) Covers(host string) bool { return Covers(s.Hosts, host) }

// Covers reports whether host is one of hosts or a name below one.
func Covers(hosts []string, host string) bool {
	host = strings.TrimSuffix(host, ".")
	for _, h := range hosts {
		if len(host) < len(h) || h == "" {
			continue
		}
		at := len(host) - len(h)
		if strings.EqualFold(host[at:], h) && (at == 0 || host[at-1] == '.') {
			return true
		}
	}
	return false
}
