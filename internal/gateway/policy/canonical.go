package policy

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/norm"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Rules compare text, and tools read it: "/data/../etc" matches "/data/*" and opens
// /etc. So a path, URL or host that a rule reads has one canonical spelling, and every
// other spelling is refused. The functions of this file find the flaw of a spelling.
// Each looks at a text once: the time is linear in its length.

// flaw is the reason why a text is not canonical, and the way to fix it; the zero
// flaw means that the text is canonical. It quotes nothing of the text.
type flaw struct{ what, fix string }

// flawError is a flaw of an argument.
type flawError struct {
	flaw
	where string // the argument, for a person
}

func (e *flawError) Error() string {
	return fmt.Sprintf("%s is not in its canonical spelling: it %s; %s", e.where, e.what, e.fix)
}

// The bounds of a path. No system accepts a longer one.
const (
	maxPath     = 4 << 10
	maxSegments = 256
)

var (
	dotSegment   = flaw{`has a "." or ".." segment`, "send the path that it leads to"}
	escaped      = flaw{`has a %-escape of a letter, a digit or one of / \ . %`, "send the character itself"}
	lookalike    = flaw{`has a character that some systems read as / \ . or %`, "send the plain character, or another name"}
	hidden       = flaw{"has a control or invisible character", "leave that character out"}
	asciiLike    = flaw{"spells an ASCII name in other characters", "send the name in ASCII"}
	oddAddress   = flaw{"is an address in an unusual spelling", "send it as 192.0.2.1 or 2001:db8::1"}
	notAHost     = flaw{"is not a host name or an address", "send a host name in lower case and ASCII, or an address"}
	wrapped      = flaw{"is a URL where a path belongs", "send the path itself"}
	rootAlias    = flaw{"leads through another name of the file system's root", "send the path from the root"}
	relativePath = flaw{"is a relative path, and nothing shows where it starts", "send an absolute path"}
)

// lookalikes are separators on some systems, although NFKC leaves them alone.
const lookalikes = "\u2044\u2215\u29f8\u29f5\u00a5\u20a9"

// disguise finds characters that hide a separator, a dot or an escape. In a URL,
// escapes of characters beyond ASCII are usual and pass.
func disguise(s string, inURL bool) flaw {
	var last rune
	beyond := false
	for i, r := range s {
		switch {
		case r == '%':
			switch b, ok := escape(s[i:]); {
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
		return disguise(strings.ReplaceAll(plain, "%", ""), false)
	}
	return flaw{}
}

var unicodeEscape = regexp.MustCompile(`^%[uU][0-9a-fA-F]{4}`)

// escape decodes the %xx that a text starts with.
func escape(s string) (byte, bool) {
	if len(s) < 3 {
		return 0, false
	}
	b, err := strconv.ParseUint(s[1:3], 16, 8)
	return byte(b), err == nil && isAlnum(s[1]) // ParseUint accepts a sign
}

// disguisedRune judges a control character or one beyond ASCII.
func disguisedRune(r, before rune) flaw {
	switch {
	case r == '\u200c' || r == '\u200d': // joiners belong to words of some scripts, and to emoji
		if before < utf8.RuneSelf {
			return hidden
		}
	case unicode.IsControl(r), unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point),
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

// dotted reports whether a segment leads here or up to some system: "..", ".. " and
// "..;x", which servers of Java cut at the semicolon.
func dotted(segment string) bool {
	core, _, _ := strings.Cut(segment, ";")
	return core != "" && strings.Trim(core, ". ") == ""
}

var (
	// pathURL is a URL that leads to a file, or a prefix of a URL that some programs drop.
	pathURL = regexp.MustCompile(`(?i)^(?:[a-z][a-z0-9+.-]+:/|(?:(?:url|jar|view-source|jdbc):)*(?:file|sqlite3?|duckdb):\S)`)
	// otherRoot is a folder through which the whole file system can be reached once more.
	otherRoot = regexp.MustCompile(`^/(?:proc/[^/]+/(?:.*/)?(?:root|cwd|fd|map_files)|dev/fd|private/(?:etc|var|tmp)|System/Volumes/Data)(?:/|$)`)
	// pathList is a separator of lists with another path behind it.
	pathList = regexp.MustCompile(`[,;|:\s](?:[/~]|\.\.?/)`)
)

// wrapping is quotation that people and programs put around a path or URL.
const wrapping = "\"'`<>"

// pathFlaw finds why a text is not the canonical spelling of a path: segments
// between single slashes, absolute or relative, or behind a drive letter.
func pathFlaw(s string) flaw {
	if s == "" {
		return flaw{}
	}
	if f := disguise(s, false); f.what != "" {
		return f
	}
	body := s
	switch {
	case len(s) > maxPath:
		return flaw{"is too long", fmt.Sprintf("send at most %d bytes", maxPath)}
	case strings.Trim(s, wrapping) != s || strings.TrimSpace(s) != s:
		return flaw{"starts or ends with a space or a quotation mark", "leave it out"}
	case s[0] == '~' || s[0] == '$':
		return flaw{"starts with a home folder or a variable", "send the whole path"}
	case (s[0] == '[' || s[0] == '{') && strings.ContainsAny(s, `"'`):
		return flaw{"is a list inside a text", "send a list of paths"}
	case len(s) > 1 && s[1] == ':' && isLetter(s[0]):
		if s[0] >= 'a' || len(s) < 3 || s[2] != '/' {
			return flaw{"has a drive that is not written as C:/", "write the drive so"}
		}
		body = s[2:]
	case pathURL.MatchString(s):
		return wrapped
	case otherRoot.MatchString(s):
		return rootAlias
	}
	if pathList.MatchString(body) {
		return flaw{"has a second path behind a separator", "send a list of paths"}
	}
	if body == "/" {
		return flaw{}
	}
	return segmentsFlaw(strings.TrimPrefix(body, "/"))
}

func segmentsFlaw(body string) flaw {
	count := 0
	for segment := range strings.SplitSeq(body, "/") {
		count++
		switch {
		case segment == "":
			return flaw{"has a doubled slash or one at the end", "send single slashes, and none at the end"}
		case dotted(segment):
			return dotSegment
		case count > maxSegments:
			return flaw{"has too many segments", fmt.Sprintf("send at most %d", maxSegments)}
		case strings.TrimRightFunc(segment, func(r rune) bool { return r == '.' || unicode.IsSpace(r) }) != segment:
			return flaw{"has a segment that ends in a dot or a space", "leave that out"}
		case !isASCII(segment) && isASCII(norm.NFKC.String(segment)):
			return asciiLike
		}
	}
	return flaw{}
}

var (
	// urlStart is the start of a text that some program takes for a URL with a host.
	urlStart = regexp.MustCompile(`(?i)^(?:[a-z][a-z0-9+.-]*(?::[a-z0-9+.-]+)*:@?//|//|(?:https?|wss?|ftp):[^\s]|[a-z][a-z0-9+.-]+:/[^/\s])`)
	scheme   = regexp.MustCompile(`^[a-z][a-z0-9+.-]*$`)
	urlList  = regexp.MustCompile(`[,;|][a-zA-Z][a-zA-Z0-9+.-]*://`)
)

// defaultPorts are the ports that a canonical URL leaves out.
var defaultPorts = map[string]string{"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21"}

// urlFlaw finds why a text is not the canonical spelling of a URL, and returns its
// host. A rule that compares the text also needs the slash behind the host.
func urlFlaw(s string, compared bool) (host string, f flaw) {
	kind, rest, ok := strings.Cut(s, "://")
	if !ok || !scheme.MatchString(kind) {
		return "", flaw{"is not written as scheme://host/path with the scheme in lower case", "send it in that form"}
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r == '\\' || unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return "", flaw{"has a space, a backslash or a control character", "escape it, or leave it out"}
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, tail := rest[:end], rest[end:]
	if tail == "" && compared && defaultPorts[kind] != "" || tail != "" && tail[0] != '/' {
		return "", flaw{"has no / behind its host", "add it"}
	}
	if host, f = hostFlaw(authority, kind); f.what != "" {
		return "", f
	}
	path, query := tail, ""
	if at := strings.IndexAny(tail, "?#"); at >= 0 {
		path, query = tail[:at], tail[at:]
	}
	if f := disguise(path, true); f.what != "" {
		return "", f
	}
	if urlList.MatchString(query) {
		return "", flaw{"has a second URL behind a separator", "send a list of URLs"}
	}
	if strings.Contains(path, "//") {
		return "", flaw{"has a doubled slash", "send single slashes"}
	}
	for segment := range strings.SplitSeq(path, "/") {
		if dotted(segment) {
			return "", dotSegment
		}
	}
	return host, flaw{}
}

// hostFlaw finds why a text is not the canonical spelling of a host with or without
// a port, and returns the host. Without a scheme, an IPv6 address has no brackets.
func hostFlaw(s, scheme string) (host string, f flaw) {
	if strings.Contains(s, "@") {
		return "", flaw{"has a user in front of its host", "send the host alone"}
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
	if n, err := strconv.ParseUint(port, 10, 16); hasPort && (err != nil || strconv.FormatUint(n, 10) != port || port == defaultPorts[scheme]) {
		return "", flaw{"has a port that is not needed, or not a plain number", "send the port in digits, and leave out the usual one"}
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if a.String() != host || a.Zone() != "" || embedsIPv4(a) {
			return "", oddAddress
		}
		return host, flaw{}
	}
	return host, nameFlaw(host)
}

// embedsIPv4 reports whether an address of IPv6 is one of IPv4 to a translator.
func embedsIPv4(a netip.Addr) bool {
	if !a.Is6() || !a.Is4In6() && (a.IsLoopback() || a.IsUnspecified()) {
		return false
	}
	b := a.As16()
	zero := func(part []byte) bool { return strings.Trim(string(part), "\x00") == "" }
	return a.Is4In6() || zero(b[:12]) || b[0] == 0x20 && b[1] == 0x02 || b[0] == 0 && b[1] == 0x64 && b[2] == 0xff && b[3] == 0x9b && zero(b[4:12])
}

func nameFlaw(host string) flaw {
	if !isASCII(host) {
		if ascii, err := idna.Lookup.ToASCII(host); err == nil && nameFlaw(ascii).what == "" {
			return flaw{"has characters beyond ASCII in its host", "send the host in ASCII, as in xn--bcher-kva.example"}
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

// quote writes a name that came with a call.
func quote(s string) string { return diag.Quote(s) }
