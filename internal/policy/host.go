package policy

import (
	"errors"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/norm"
)

const maxHost = 16 << 10

var errLongHost = errors.New("it is too long")

// addHost adds every reading of a text as a URL, or as a host with or without a
// port. Names are in lower case and in ASCII, addresses in their usual form.
func (p *places) addHost(text string, work *int) error {
	if len(text) > maxHost {
		return errLongHost
	}
	forms, err := readings(text, work)
	if err != nil {
		return err
	}
	for _, form := range forms {
		for _, authority := range authorities(form) {
			if host, ok := cleanHost(authority); ok {
				p.add(host, domains(host))
			} else {
				p.unknown()
			}
		}
	}
	return nil
}

// authorities are the parts of a text that a reader could take for host and
// port: behind the scheme, in front of the path, behind what looks like a user.
func authorities(s string) []string {
	rest := s
	if scheme, after, ok := strings.Cut(s, ":"); ok && isScheme(scheme) && strings.HasPrefix(after, "/") {
		rest = after
	}
	rest = strings.TrimLeft(rest, "/") // https:/x and https:///x are https://x to a browser
	if at := strings.IndexAny(rest, "/?#"); at >= 0 {
		rest = rest[:at]
	}
	all := []string{rest}
	for {
		at := strings.IndexByte(rest, '@')
		if at < 0 {
			break
		}
		// What is behind each @ could be the host, and so could what is in front.
		all = append(all, rest[:at], rest[at+1:])
		rest = rest[at+1:]
		if len(all) > maxReadings {
			break
		}
	}
	if len(all) > 1 {
		return all[1:] // the whole holds a user, and is no host
	}
	return all
}

func isScheme(s string) bool {
	if s == "" || !isLetter(s[0]) {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; !isLetter(c) && (c < '0' || c > '9') && c != '+' && c != '-' && c != '.' {
			return false
		}
	}
	return true
}

// cleanHost takes the port off, and writes a host in its one form.
func cleanHost(s string) (string, bool) {
	if strings.HasPrefix(s, "[") {
		inner, _, ok := strings.Cut(s[1:], "]")
		if !ok {
			return "", false
		}
		s = inner
	} else if strings.Count(s, ":") == 1 {
		s, _, _ = strings.Cut(s, ":") // a port, or the path of an scp address
	}
	s = strings.TrimRight(s, ".")
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Unmap().WithZone("").String(), true
	}
	if a, ok := looseIPv4(s); ok {
		return a.String(), true
	}
	name, err := idna.Lookup.ToASCII(s)
	if err != nil {
		// An underscore is no letter of a host, and resolvers take it all the same.
		if name = strings.ToLower(s); strings.IndexFunc(name, func(r rune) bool {
			return r > unicode.MaxASCII || r <= ' ' || strings.ContainsRune(`/\?#@:[]<>"'|^%`+"`", r)
		}) >= 0 {
			return "", false
		}
	}
	name = strings.TrimRight(strings.ToLower(name), ".")
	return name, name != ""
}

// looseIPv4 reads the forms that old resolvers take: 0x7f.1, 017700000001,
// 2130706433.
func looseIPv4(s string) (netip.Addr, bool) {
	parts := strings.Split(s, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var value uint64
	for i, part := range parts {
		base := 10
		digits := part
		switch {
		case strings.HasPrefix(part, "0x") || strings.HasPrefix(part, "0X"):
			base, digits = 16, part[2:]
		case len(part) > 1 && part[0] == '0':
			base = 8
		}
		n, err := strconv.ParseUint(digits, base, 32)
		if err != nil {
			return netip.Addr{}, false
		}
		if i < len(parts)-1 {
			if n > 255 {
				return netip.Addr{}, false
			}
			value |= n << (8 * (3 - i))
			continue
		}
		if n >= 1<<(8*(4-i)) {
			return netip.Addr{}, false
		}
		value |= n
	}
	return netip.AddrFrom4([4]byte{byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)}), true
}

// domains are a host and the domains it lies in; an address lies in none.
func domains(host string) []string {
	all := []string{host}
	if _, err := netip.ParseAddr(host); err == nil {
		return all
	}
	for rest := host; ; {
		_, up, ok := strings.Cut(rest, ".")
		if !ok || len(all) > maxSegments {
			return all
		}
		all = append(all, up)
		rest = up
	}
}

// looksLikeURL reports whether a text is a URL by its looks.
func looksLikeURL(s string, work *int) bool {
	if s = strings.TrimSpace(withoutInvisible(s)); len(s) > maxStart {
		s = s[:maxStart]
	}
	forms, err := readings(s, work)
	if err != nil {
		return true
	}
	for _, f := range forms {
		scheme, after, ok := strings.Cut(f, ":")
		if ok && isScheme(scheme) && strings.HasPrefix(after, "/") && !strings.EqualFold(scheme, "file") && len(scheme) > 1 || strings.HasPrefix(f, "//") {
			return true
		}
	}
	return false
}

// databaseSchemes are URLs whose path names a database.
var databaseSchemes = words("postgres postgresql mysql mariadb mongodb mongodb+srv sqlserver mssql clickhouse cockroachdb redshift redis rediss")

// noteDatabases notes the databases that a text names: an argument that is
// called so, the path of a database's URL, dbname= in a connection string.
func noteDatabases(into map[string]bool, key []string, text string) {
	if len(text) > maxHost {
		return
	}
	note := func(name string) {
		if name = foldName(name); name != "" {
			into[name] = true
		}
	}
	if u, err := url.Parse(strings.TrimSpace(text)); err == nil && databaseSchemes[strings.ToLower(u.Scheme)] {
		first, _, _ := strings.Cut(strings.Trim(u.Path, "/"), "/")
		note(first)
		for name, values := range u.Query() {
			if baseWords.any(wordsOf(name)) {
				for _, v := range values {
					note(v)
				}
			}
		}
		return
	}
	named := false
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ';' || unicode.IsSpace(r) }) {
		if name, value, ok := strings.Cut(part, "="); ok && baseWords.any(wordsOf(name)) {
			note(value)
			named = true
		}
	}
	if !named && baseWords.any(key) {
		note(text)
	}
}

// foldName is a name without quotes, in one width and in lower case.
func foldName(s string) string {
	s = withoutInvisible(norm.NFKC.String(s))
	return strings.ToLower(strings.Trim(s, " \t\r\n\"'`[]"))
}
