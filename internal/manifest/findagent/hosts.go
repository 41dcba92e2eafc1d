package findagent

import (
	"net/netip"
	"strings"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/read"
)

// This file checks the names of hosts in URLs, credential slots and bundles.

// hostFault describes a problem with a host. The description completes a sentence that begins with the name of the
// host. The zero hostFault means that the host has no problem.
type hostFault struct {
	rule       *diag.Rule
	what, hint string
}

// hostMarks lists characters that do not belong in a host name.
var hostMarks = []struct {
	mark string
	rule *diag.Rule
	what string
	hint string
}{
	{"*", ruleWildcard, "contains a wildcard", "remove the wildcard; a host already covers its subdomains"},
	{"://", ruleHost, "contains a scheme", "write only the name of the host, without https://"},
	{"@", ruleHost, "contains a user name", "write only the name of the host"},
	{"/", ruleHost, "contains a path", "write only the name of the host, without a path"},
	{`\`, ruleHost, "contains a backslash", "write only the name of the host"},
	{"?", ruleHost, "contains a query", "write only the name of the host"},
	{"#", ruleHost, "contains a fragment", "write only the name of the host"},
	{"{", ruleHost, "contains a placeholder", "write the host without placeholders"},
}

const devHint = "use a public host; to reach this machine during development, use --dev or set AMBIT_DEV=1"

// isLoopback reports whether a host is localhost or a loopback address in its standard spelling. Programs disagree on
// other spellings, such as 127.1.
func isLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback() && a.Zone() == "" && !a.Is4In6()
}

// checkHost returns the first problem with the name of a host.
func checkHost(host string) hostFault {
	if host == "" {
		return hostFault{ruleHost, "is not a host", ""}
	}
	if fault := checkLabels(host); fault.rule == nil {
		return checkReach(host)
	} else if isPlain(host) {
		return fault
	}
	for _, m := range hostMarks {
		if strings.Contains(host, m.mark) {
			return hostFault{m.rule, m.what, m.hint}
		}
	}
	if strings.ContainsAny(host, ":[]%") {
		if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil || strings.Count(host, ":") > 1 ||
			strings.ContainsAny(host, "[]") {
			return hostFault{ruleAddress, "is an IP address", ""}
		}
		if strings.Contains(host, ":") {
			return hostFault{ruleHost, "contains a port", "write only the name of the host, which applies to every port"}
		}
	}
	for i := range len(host) {
		if host[i] >= 0x80 {
			hint := "write the host in its xn-- form"
			// Skip longer names, because none is valid and converting a very long name takes quadratic time.
			if len(host) <= 4*253 {
				if ascii, err := idna.Lookup.ToASCII(host); err == nil {
					hint = "write " + diag.Quote(ascii)
				}
			}
			return hostFault{ruleHost, "is not ASCII", hint}
		}
	}
	return hostFault{ruleHost, "contains an invalid character", ""}
}

// isPlain reports whether a host consists only of ASCII letters, digits, hyphens and dots.
func isPlain(host string) bool {
	for i := range len(host) {
		if c := host[i]; !isLetter(c) && !isDigit(c) && c != '-' && c != '.' {
			return false
		}
	}
	return true
}

// checkLabels checks the parts between the dots of a host name against the rules of DNS.
func checkLabels(host string) hostFault {
	if len(host) > 253 {
		return hostFault{ruleHost, "is longer than 253 characters", ""}
	}
	last := ""
	for label := range strings.SplitSeq(host, ".") {
		switch {
		case label == "":
			return hostFault{ruleHost, "contains a dot with nothing before or after it", "remove the extra dot"}
		case len(label) > 63:
			return hostFault{ruleHost, "has a part that is longer than 63 characters", ""}
		case label[0] == '-' || label[len(label)-1] == '-':
			return hostFault{ruleHost, "has a part that starts or ends with a hyphen", ""}
		case !isPlain(label):
			return hostFault{ruleHost, "contains an invalid character", ""}
		case len(label) > 4 && strings.EqualFold(label[:4], "xn--"):
			if _, err := idna.Lookup.ToUnicode(strings.ToLower(label)); err != nil {
				return hostFault{ruleHost, "has an invalid xn-- part", ""}
			}
		}
		last = label
	}
	if isNumeric(last) {
		return hostFault{ruleAddress, "is an IP address", ""}
	}
	if !isLetter(last[0]) {
		return hostFault{ruleHost, "does not end in a top-level domain", ""}
	}
	return hostFault{}
}

// isNumeric reports whether a label is a decimal, octal or hexadecimal number. If the last label is a number, programs
// treat the host as an IPv4 address. Examples are 127.1, 2130706433, 0x7f.1 and 0177.0.0.1.
func isNumeric(label string) bool {
	if len(label) > 1 && label[0] == '0' && (label[1] == 'x' || label[1] == 'X') {
		return strings.Trim(label[2:], "0123456789abcdefABCDEF") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// checkReach refuses names that refer to different machines on different networks.
func checkReach(host string) hostFault {
	dot := strings.LastIndexByte(host, '.')
	switch top := strings.ToLower(host[dot+1:]); {
	case top == "localhost" || top == "local" || top == "internal":
		return hostFault{ruleLocalHost, "is a name that exists only on a local network", ""}
	case dot < 0:
		return hostFault{ruleLocalHost, "is a name without a dot", "write the full name, such as api.example.com"}
	}
	return hostFault{}
}

// checkOwner refuses public suffixes, because their subdomains have different owners.
func checkOwner(host string) hostFault {
	if host == "" {
		return hostFault{}
	}
	host = strings.ToLower(host)
	suffix, icann := publicsuffix.PublicSuffix(host)
	switch {
	case suffix != host:
		return hostFault{}
	case icann:
		return hostFault{rulePublicSuffix, "is a public suffix, below which anyone can register a name", ""}
	case strings.Contains(host, "."):
		return hostFault{rulePrivateSuffix, "is a domain below which anyone can get a name", ""}
	}
	return hostFault{}
}

// parseHosts returns the valid hosts of a list in lower case. It reports invalid hosts.
func (p *parser) parseHosts(list doc.Value) []string {
	if !p.Is(list, doc.Array) {
		return nil
	}
	hosts := p.MakeStrings(list.Len())
	var seen read.Seen
	for v := range list.Each() {
		if !p.Is(v, doc.String) {
			continue
		}
		host := strings.ToLower(v.Text())
		owner := checkOwner(host)
		fault := checkHost(host)
		if isLoopback(host) {
			fault.hint = devHint
			if p.loopback {
				fault = hostFault{}
			}
		}
		if owner.rule == rulePublicSuffix || fault.rule == nil {
			fault = owner
		}
		if fault.rule != nil {
			if strings.Contains(host, "@") {
				p.Source.Mask(v.Place().Start, v.Place().End)
				p.Report(fault.rule, v.Place(), fault.hint, "the host %s", fault.what)
			} else {
				p.Report(fault.rule, v.Place(), fault.hint, "%s %s", diag.Quote(v.Text()), fault.what)
			}
		}
		if fault.rule != nil && fault.rule != rulePrivateSuffix {
			continue
		}
		if !seen.Add(host) {
			p.Report(diag.Repeated, v.Place(), "", "%s is already in the list", diag.Quote(v.Text()))
			continue
		}
		hosts = append(hosts, host)
	}
	return hosts
}
