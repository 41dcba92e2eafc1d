package policy

import (
	"errors"
	"net/netip"
	"net/url"
	"slices"
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
func (p *places) addHost(t *spelt) error {
	if len(t.text) > maxHost {
		return errLongHost
	}
	forms, err := t.readings()
	if err != nil {
		return err
	}
	// To some tools it is a list.
	parts := listed(t.text, ",;| \t\r\n")
	if len(forms)+len(parts) > 2*maxReadings {
		return errReadings
	}
	for _, form := range slices.Concat(forms, parts) {
		if _, ok := isFileURL(form); ok || strings.HasPrefix(form, "/") && !strings.HasPrefix(form, "//") {
			p.unknown() // it is a file, and on no host
		}
		for _, authority := range authorities(form) {
			hosts := cleanHosts(authority)
			for _, host := range hosts {
				p.add(host, domains(host))
			}
			if len(hosts) == 0 {
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
	if scheme, after, ok := strings.Cut(s, ":"); ok && isScheme(scheme) && (strings.HasPrefix(after, "/") || webSchemes[strings.ToLower(scheme)]) {
		rest = after
	}
	rest = strings.TrimLeft(rest, "/") // https:x, https:/x and https:///x are https://x to a browser
	rest, _, _ = strings.Cut(rest, "/")
	all := []string{rest}
	if at := strings.IndexAny(rest, "?#"); at >= 0 {
		if all[0] = rest[:at]; strings.Contains(rest[at:], "@") {
			all = append(all, rest) // to a careless reader, what is behind it can still be the host
		}
	}
	var parts []string
	for _, one := range all {
		// What is behind each @ could be the host, and so could what is in front.
		parts = append(parts, strings.SplitN(one, "@", maxReadings)...)
	}
	return parts
}

// webSchemes are those that browsers read without slashes too.
var webSchemes = words("http https ws wss ftp")

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

// cleanHosts takes the port off, and writes a host in its one form, or in two
// where readers of names differ; none if it is no host.
func cleanHosts(s string) []string {
	if strings.HasPrefix(s, "[") {
		inner, _, ok := strings.Cut(s[1:], "]")
		if !ok {
			return nil
		}
		s = inner
	} else if strings.Count(s, ":") == 1 {
		s, _, _ = strings.Cut(s, ":") // a port, or the path of an scp address
	}
	s = strings.TrimRight(s, ".")
	if a, err := netip.ParseAddr(s); err == nil {
		return []string{a.Unmap().WithZone("").String()}
	}
	if a, ok := looseIPv4(s); ok {
		return []string{a.String()}
	}
	var all []string
	readers := nameReaders
	if strings.IndexFunc(s, func(r rune) bool { return r > unicode.MaxASCII }) < 0 {
		readers = readers[:1]
	}
	for _, reader := range readers {
		name, _ := reader.ToASCII(s) // what is no rule of names is no rule of resolvers
		name = strings.TrimRight(strings.ToLower(name), ".")
		if name != "" && strings.IndexFunc(name, notInName) < 0 && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// nameReaders are the two ways to read names in other letters than ASCII: ß is a
// letter of its own, or ss.
var nameReaders = []*idna.Profile{
	idna.New(idna.MapForLookup(), idna.StrictDomainName(false), idna.Transitional(false)),
	idna.New(idna.MapForLookup(), idna.StrictDomainName(false), idna.Transitional(true)),
}

func notInName(r rune) bool {
	return r > unicode.MaxASCII || r <= ' ' || strings.ContainsRune(`/\?#@:[]<>"'|^%,;`+"`", r)
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
func looksLikeURL(t *spelt) bool {
	forms, err := t.starts()
	if err != nil {
		return true
	}
	for _, f := range forms {
		scheme, after, ok := strings.Cut(f, ":")
		switch {
		case strings.HasPrefix(f, "//"):
			return true
		case !ok || !isScheme(scheme) || len(scheme) == 1 || after == "":
		case webSchemes[strings.ToLower(scheme)], strings.HasPrefix(after, "/") && !fileSchemes[strings.ToLower(scheme)]:
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
	if u, err := url.Parse(withoutDriver(bare(text))); err == nil && databaseSchemes[strings.ToLower(u.Scheme)] {
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
	for part := range strings.FieldsFuncSeq(tight(text), func(r rune) bool { return r == ';' || unicode.IsSpace(r) }) {
		if name, value, ok := strings.Cut(part, "="); ok && baseWords.any(wordsOf(name)) {
			note(value)
			named = true
		}
	}
	if !named && baseWords.any(key) {
		note(text)
	}
}

// tight is a connection string without the space that it may have around a =.
func tight(text string) string {
	if !strings.Contains(text, "=") {
		return text
	}
	parts := strings.Split(text, "=")
	for i := range parts {
		if i > 0 {
			parts[i] = strings.TrimLeftFunc(parts[i], unicode.IsSpace)
		}
		if i < len(parts)-1 {
			parts[i] = strings.TrimRightFunc(parts[i], unicode.IsSpace)
		}
	}
	return strings.Join(parts, "=")
}

// withoutDriver is a URL without the names of drivers: jdbc:postgresql://…,
// postgresql+psycopg2://….
func withoutDriver(s string) string {
	if len(s) > 5 && strings.EqualFold(s[:5], "jdbc:") {
		s = s[5:]
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if base, _, driver := strings.Cut(scheme, "+"); ok && driver {
		return base + "://" + rest
	}
	return s
}

// foldName is a name without quotes and escapes, in one width and in lower case.
func foldName(s string) string {
	s = strings.ReplaceAll(withoutInvisible(norm.NFKC.String(s)), `\`, "")
	return strings.ToLower(strings.Trim(s, " \t\r\n\"'`[]"))
}
