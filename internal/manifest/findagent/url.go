package findagent

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/secretlike"
)

// checkURL checks the address of an action and returns the host in lower case. It returns "" if the host is unusable.
//
// checkURL accepts only addresses in which every program finds the same host. It therefore parses the address byte by
// byte instead of with a library.
func (p *parser) checkURL(v doc.Value, in *inputs) (host string) {
	s := v.Text()
	found := p.checkTemplate(v, inURL, in, nil)
	scheme, rest, ok := strings.Cut(s, "://")
	start := len(s) - len(rest) // the offset of the host
	if !ok {
		scheme, start = "", 0
	}
	end := len(s)
	if i := strings.IndexAny(s[start:], `/?#\`); i >= 0 {
		end = start + i
	}
	if len(found) > 0 && found[0].Start < end {
		p.Report(ruleHostPlaceholder, v.Within(found[0].Start, found[0].End), "",
			"with this placeholder, the caller could choose the scheme or host of the request")
		return ""
	}
	if !ok {
		p.Report(ruleURL, v.Place(), "", "%s is not an absolute https address", diag.Quote(s))
		return ""
	}
	host = p.checkAuthority(v, start, end)
	switch {
	case scheme == "http" && p.loopback && isLoopback(host):
	case scheme == "http":
		hint := ""
		if isLoopback(hostOf(s[:end])) {
			hint = devHint
		}
		p.Report(rulePlainHTTP, v.Within(0, len(scheme)), hint, "the connection would not be encrypted")
	case scheme != "https":
		hint := ""
		if strings.EqualFold(scheme, "https") {
			hint = "write the scheme in lower case"
		}
		p.Report(ruleURL, v.Within(0, len(scheme)), hint, "the scheme of the URL must be https, not %s", diag.Quote(scheme))
	}
	p.checkRest(v, end)
	p.checkQuery(v, end)
	return host
}

// hostOf returns the host of a valid address.
func hostOf(address string) string {
	_, rest, _ := strings.Cut(address, "://")
	if inner, ok := strings.CutPrefix(rest, "["); ok {
		inner, _, _ = strings.Cut(inner, "]")
		return strings.ToLower(inner)
	}
	if end := strings.IndexAny(rest, ":/?"); end >= 0 {
		rest = rest[:end]
	}
	return strings.ToLower(strings.TrimSuffix(rest, "."))
}

// checkAuthority checks the host and port of an address, which are between the given offsets. It returns the host in
// lower case, or "" if the host is unusable.
func (p *parser) checkAuthority(v doc.Value, start, end int) string {
	s := v.Text()
	if at := strings.LastIndexByte(s[start:end], '@'); at >= 0 {
		place := v.Within(start, start+at)
		p.Source.Mask(place.Start, place.End)
		p.Report(ruleURL, place, "use a credential slot and auth_ref", "the address contains a user name or password")
		start += at + 1
	}
	host, port := s[start:end], ""
	if strings.HasPrefix(host, "[") {
		if close := strings.IndexByte(host, ']'); close >= 0 {
			host, port = host[:close+1], host[close+1:]
		}
	} else if colon := strings.LastIndexByte(host, ':'); colon >= 0 && strings.Count(host, ":") == 1 {
		host, port = host[:colon], host[colon:]
	}
	if number, ok := strings.CutPrefix(port, ":"); port != "" {
		if n, err := strconv.Atoi(number); !ok || err != nil || n < 1 || n > 65535 || !isDigit(number[0]) {
			p.Report(ruleURL, v.Within(end-len(port), end), "write a port from 1 to 65535",
				"the address has an invalid port")
		}
	}
	plain := strings.ToLower(strings.TrimSuffix(host, "."))
	// A host has brackets if and only if it is an IPv6 address.
	name := strings.TrimSuffix(strings.TrimPrefix(plain, "["), "]")
	if p.loopback && isLoopback(name) && (name == plain) != strings.Contains(name, ":") {
		return name
	}
	fault := checkHost(plain)
	if fault.rule == nil {
		return plain
	}
	if isLoopback(name) {
		fault.hint = devHint
	}
	place := v.Within(start, start+len(host))
	if host == "" {
		place = v.Place()
	}
	p.Report(fault.rule, place, fault.hint, "%s %s", diag.Quote(host), fault.what)
	return ""
}

// checkRest reports the first forbidden character or invalid escape in an address. It checks escapes only in the part
// that follows the host and port.
func (p *parser) checkRest(v doc.Value, end int) {
	s := v.Text()
	for i := range len(s) {
		switch c := s[i]; {
		case c <= ' ' || c == 0x7F:
			p.Report(ruleURL, v.Within(i, i+1), "write a space as %20", "the address contains a space or control character")
			return
		case c == '\\':
			p.Report(ruleURL, v.Within(i, i+1), "write / instead",
				"the address contains a backslash, which programs interpret in different ways")
			return
		case c == '#':
			p.Report(ruleURL, v.Within(i, len(s)), "remove the fragment, or write # as %23",
				"the address has a fragment, which is never sent")
			return
		case c == '%' && i >= end && (i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2])):
			p.Report(ruleURL, v.Within(i, i+1), "write % as %25", "the address has a %% that is not followed by two hex digits")
			return
		}
	}
}

func isHex(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' }

// checkQuery reports query parameters that are named like a credential and have a literal value.
func (p *parser) checkQuery(v doc.Value, end int) {
	s := v.Text()
	q := strings.IndexByte(s[end:], '?')
	if q < 0 {
		return
	}
	pos := end + q + 1
	for pair := range strings.SplitSeq(s[pos:], "&") {
		name, value, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		if value != "" && !strings.ContainsRune(value, '{') && secretlike.Name(name) {
			at := v.Within(pos+len(pair)-len(value), pos+len(pair))
			p.Source.Mask(at.Start, at.End)
			p.Report(ruleLiteralCredential, at, "", "the query contains %s, which usually holds a credential",
				diag.Quote(name))
		}
		pos += len(pair) + 1
	}
}
