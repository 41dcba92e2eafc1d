package policy

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/norm"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// A rule compares strings, but a tool interprets them. For example, "/data/../etc" matches "/data/*" but opens /etc. A
// call is therefore refused unless every path, URL and host that a rule reads is in its canonical spelling. The
// functions in this file find spellings that are not canonical. They run in linear time.

// flaw describes why a string is not in its canonical spelling, and how to fix the string. The zero flaw means that the
// string is canonical. The description never quotes the string.
type flaw struct{ what, fix string }

// flawError reports that an argument is not in its canonical spelling.
type flawError struct {
	flaw
	where string // describes the argument in messages
}

func (e *flawError) Error() string {
	return fmt.Sprintf("%s is not in its canonical spelling: it %s; %s", e.where, e.what, e.fix)
}

// The maximum length of a path, in bytes and in segments. Operating systems reject longer paths.
const (
	maxPath     = 4 << 10
	maxSegments = 256
)

var (
	dotSegment = flaw{`has a "." or ".." segment`, "send the path without such segments"}
	escaped    = flaw{`has a %-escape of a letter, a digit or one of / \ . %`, "send the character itself"}
	lookalike  = flaw{
		`has a character that some systems read as / \ . or %`,
		"send the plain character, or another name",
	}
	hidden       = flaw{"has a control or invisible character", "leave that character out"}
	asciiLike    = flaw{"spells an ASCII name with non-ASCII characters", "send the name in ASCII"}
	oddAddress   = flaw{"is an address in an unusual spelling", "write the address like 192.0.2.1 or 2001:db8::1"}
	notAHost     = flaw{"is not a host name or an address", "send a host name in lower case and ASCII, or an address"}
	wrapped      = flaw{"is a URL, but a path is expected", "send the path itself"}
	rootAlias    = flaw{"goes through a folder that leads back to the root folder", "send the path from the root"}
	notOneText   = flaw{"is not one string", "send a string"}
	relativePath = flaw{"is a relative path, and its start folder is unknown", "send an absolute path"}
)

// lookalikes contains characters that some systems treat as separators, and that NFKC normalization does not convert
// to separators.
const lookalikes = "\u2044\u2215\u29f8\u29f5\u00a5\u20a9"

// disguiseFlaw finds characters that some systems treat as a separator, a dot or an escape. In a URL, escaped non-ASCII
// characters are allowed, because they are common there.
func disguiseFlaw(s string, inURL bool) flaw {
	var last rune
	beyond := false
	for i, r := range s {
		switch {
		case r == '%':
			switch b, ok := decodeEscape(s[i:]); {
			case ok && b >= utf8.RuneSelf && inURL:
				beyond = true
			case ok && (b <= ' '-1 || b >= 0x7f || strings.IndexByte(`/\.%-_~`, b) >= 0 || isAlnum(b)):
				return escaped
			case !ok && (inURL || unicodeEscape.MatchString(s[i:min(len(s), i+6)])):
				return escaped
			}
		case r == '\\':
			return flaw{"has a backslash", "send / instead"}
		case r >= utf8.RuneSelf || r < ' ' || r == 0x7f:
			if f := disguisedRune(r, last); f.what != "" {
				return f
			}
		}
		last = r
	}
	if beyond {
		plain, err := url.PathUnescape(s)
		if err != nil || !utf8.ValidString(plain) {
			return escaped
		}
		return disguiseFlaw(strings.ReplaceAll(plain, "%", ""), false)
	}
	return flaw{}
}

var unicodeEscape = regexp.MustCompile(`^%[uU][0-9a-fA-F]{4}`)

// decodeEscape decodes the %xx at the start of a string. The second result reports whether the escape is valid.
func decodeEscape(s string) (byte, bool) {
	if len(s) < 3 {
		return 0, false
	}
	b, err := strconv.ParseUint(s[1:3], 16, 8)
	return byte(b), err == nil && isAlnum(s[1]) // ParseUint accepts a sign
}

// disguisedRune checks r, which is a control character or a non-ASCII character. The second argument is the preceding
// character.
func disguisedRune(r, before rune) flaw {
	switch {
	case r == '\u200c' || r == '\u200d': // some scripts and emoji need joiners
		if before < utf8.RuneSelf {
			return hidden
		}
	case unicode.IsControl(r), unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp,
		unicode.Other_Default_Ignorable_Code_Point),
		r == utf8.RuneError:
		return hidden
	case strings.ContainsRune(lookalikes, r):
		return lookalike
	default:
		if d := norm.NFKC.PropertiesString(string(r)).Decomposition(); strings.ContainsAny(string(d), `/\.%`) {
			return lookalike
		}
	}
	return flaw{}
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

func isAlnum(c byte) bool { return isLetter(c) || c >= '0' && c <= '9' }

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// isDotSegment reports whether some systems treat a path segment as "." or "..". For example, Windows ignores the space
// in ".. ", and Java servers cut "..;x" at the semicolon.
func isDotSegment(segment string) bool {
	core, _, _ := strings.Cut(segment, ";")
	return core != "" && strings.Trim(core, ". ") == ""
}

var (
	// pathURL matches the start of a URL that some programs treat as a path.
	pathURL = regexp.MustCompile(`(?i)^(?:[a-z][a-z0-9+.-]+:/|` +
		`(?:(?:url|jar|view-source|jdbc):)*(?:file|sqlite3?|duckdb):\S)`)
	// otherRoot matches folders such as /proc/self/root, which give a file a second path.
	otherRoot = regexp.MustCompile(`^/(?:proc/[^/]+/(?:.*/)?(?:root|cwd|fd|map_files)|dev/fd|` +
		`private/(?:etc|var|tmp)|System/Volumes/Data)(?:/|$)`)
	// pathList matches a list separator that is followed by another path.
	pathList = regexp.MustCompile(`[,;|:\s](?:[/~]|\.\.?/)`)
)

// quoteMarks contains the quotation marks that people and programs put around a path or URL.
const quoteMarks = "\"'`<>"

// pathFlaw reports why a path is not canonical. A canonical path has exactly one slash between two segments. It can be
// absolute or relative, and can begin with a drive letter.
func pathFlaw(s string) flaw {
	if s == "" {
		return flaw{}
	}
	if f := disguiseFlaw(s, false); f.what != "" {
		return f
	}
	body := s
	switch {
	case len(s) > maxPath:
		return flaw{"is too long", fmt.Sprintf("send at most %d bytes", maxPath)}
	case strings.Trim(s, quoteMarks) != s || strings.TrimSpace(s) != s:
		return flaw{"starts or ends with a space or a quotation mark", "leave that character out"}
	case s[0] == '~' || s[0] == '$':
		return flaw{"starts with a home folder or a variable", "send the whole path"}
	case (s[0] == '[' || s[0] == '{') && strings.ContainsAny(s, `"'`):
		return flaw{"is a list inside a string", "send a list of paths"}
	case len(s) > 1 && s[1] == ':' && isLetter(s[0]):
		if s[0] >= 'a' || len(s) < 3 || s[2] != '/' {
			return flaw{"has a drive that is not written like C:/", "write the drive like C:/"}
		}
		body = s[2:]
	case pathURL.MatchString(s):
		return wrapped
	case otherRoot.MatchString(s):
		return rootAlias
	}
	if pathList.MatchString(body) {
		return flaw{"has a second path after a separator", "send a list of paths"}
	}
	if body == "/" {
		return flaw{}
	}
	return segmentsFlaw(strings.TrimPrefix(body, "/"))
}

func segmentsFlaw(body string) flaw {
	for i, segment := range strings.Split(body, "/") {
		switch {
		case segment == "":
			return flaw{"has a double slash or a slash at the end", "send single slashes, and none at the end"}
		case isDotSegment(segment):
			return dotSegment
		case i >= maxSegments:
			return flaw{"has too many segments", fmt.Sprintf("send at most %d", maxSegments)}
		case strings.TrimRightFunc(segment, func(r rune) bool { return r == '.' || unicode.IsSpace(r) }) != segment:
			return flaw{"has a segment that ends in a dot or a space", "leave that character out"}
		case !isASCII(segment) && isASCII(norm.NFKC.String(segment)):
			return asciiLike
		}
	}
	return flaw{}
}

var (
	// urlStart matches the start of a string that some programs accept as a URL with a host.
	urlStart = regexp.MustCompile(`(?i)^(?:[a-z][a-z0-9+.-]*(?::[a-z0-9+.-]+)*:@?//|//|` +
		`(?:https?|wss?|ftp):[^\s]|[a-z][a-z0-9+.-]+:/[^/\s])`)
	scheme  = regexp.MustCompile(`^[a-z][a-z0-9+.-]*$`)
	urlList = regexp.MustCompile(`[,;|][a-zA-Z][a-zA-Z0-9+.-]*://`)
)

// startsURL reports whether urlStart matches. Every match contains "//" or a colon. Without this check, the expression
// takes more than a millisecond for 8 KiB of letters.
func startsURL(s string) bool {
	return (strings.HasPrefix(s, "//") || strings.Contains(s, ":")) && urlStart.MatchString(s)
}

// defaultPorts contains the default port of each scheme. A canonical URL omits the default port.
var defaultPorts = map[string]string{"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21"}

// urlFlaw returns the host of a URL, and the flaw if the URL is not canonical. If compared is set, a rule compares the
// whole URL. The host must then be followed by a slash, and parts of the URL that many servers ignore are refused.
func urlFlaw(s string, compared bool) (host string, f flaw) {
	kind, rest, ok := strings.Cut(s, "://")
	if !ok || !scheme.MatchString(kind) {
		return "", flaw{"is not written as scheme://host/path with the scheme in lower case", "send the URL in that form"}
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r == '\\' || unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return "", flaw{"has a space, a backslash or a control character", "escape that character, or leave it out"}
	}
	authority, tail := cutAny(rest, "/?#")
	if tail == "" && compared && defaultPorts[kind] != "" || tail != "" && tail[0] != '/' {
		return "", flaw{"has no / after its host", "add the /"}
	}
	if host, f = hostFlaw(authority, kind); f.what != "" {
		return "", f
	}
	path, query := cutAny(tail, "?#")
	if compared && (query == "?" || strings.Contains(query, "#") || strings.Contains(path, ";")) {
		return "", flaw{"has a fragment, an empty query or a ; in its path", "leave that part out"}
	}
	if f := disguiseFlaw(path, true); f.what != "" {
		return "", f
	}
	if urlList.MatchString(query) {
		return "", flaw{"has a second URL after a separator", "send a list of URLs"}
	}
	if strings.Contains(path, "//") {
		return "", flaw{"has a double slash", "send single slashes"}
	}
	if slices.ContainsFunc(strings.Split(path, "/"), isDotSegment) {
		return "", dotSegment
	}
	return host, flaw{}
}

// cutAny splits s before the first occurrence of any of the given characters.
func cutAny(s, chars string) (before, rest string) {
	if at := strings.IndexAny(s, chars); at >= 0 {
		return s[:at], s[at:]
	}
	return s, ""
}

// hostFlaw returns the host in s without the port, and the flaw if s is not canonical. The scheme is that of the URL,
// or "" if s is not part of a URL.
func hostFlaw(s, scheme string) (host string, f flaw) {
	if strings.Contains(s, "@") {
		return "", flaw{"has a user name before its host", "send the host alone"}
	}
	host, port, hasPort := s, "", false
	switch {
	case strings.HasPrefix(s, "["):
		inner, behind, ok := strings.Cut(s[1:], "]")
		if port, hasPort = strings.CutPrefix(behind, ":"); !ok || !hasPort && behind != "" {
			return "", notAHost
		}
		if a, err := netip.ParseAddr(inner); err != nil || !a.Is6() {
			return "", oddAddress
		}
		host = inner
	case strings.Count(s, ":") == 1:
		host, port, hasPort = strings.Cut(s, ":")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if hasPort && (err != nil || strconv.FormatUint(n, 10) != port || port == defaultPorts[scheme]) {
		return "", flaw{
			"has the default port, or a port that is not a plain number",
			"write the port in digits, and leave the default port out",
		}
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if a.String() != host || a.Zone() != "" || embedsIPv4(a) {
			return "", oddAddress
		}
		return host, flaw{}
	}
	return host, nameFlaw(host)
}

// embedsIPv4 reports whether an IPv6 address contains an IPv4 address. Some networks route such an address to the IPv4
// address.
func embedsIPv4(a netip.Addr) bool {
	if !a.Is6() || !a.Is4In6() && (a.IsLoopback() || a.IsUnspecified()) {
		return false
	}
	b := a.As16()
	zero := func(part []byte) bool { return strings.Trim(string(part), "\x00") == "" }
	return a.Is4In6() || zero(b[:12]) || b[0] == 0x20 && b[1] == 0x02 ||
		b[0] == 0 && b[1] == 0x64 && b[2] == 0xff && b[3] == 0x9b && zero(b[4:12])
}

func nameFlaw(host string) flaw {
	if !isASCII(host) {
		if ascii, err := idna.Lookup.ToASCII(host); err == nil && nameFlaw(ascii).what == "" {
			return flaw{"has non-ASCII characters in its host", "send the host in ASCII, as in xn--bcher-kva.example"}
		}
		return notAHost
	}
	last := ""
	for last = range strings.SplitSeq(host, ".") {
		if last == "" || len(last) > 63 || strings.Trim(last, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return notAHost
		}
	}
	if len(host) > 253 {
		return notAHost
	}
	if strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") {
		return oddAddress
	}
	return flaw{}
}

func quote(s string) string { return diag.Quote(s) }
