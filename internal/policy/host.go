package policy

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/norm"
)

const (
	maxHost = 16 << 10
	// maxHosts bounds what one text can be split into.
	maxHosts = 2 * maxReadings
)

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
	parts := slices.Concat(listed(t.text, listSeparators), jsonTexts(t.text))
	if len(forms)+len(parts) > maxHosts {
		return errReadings
	}
	for _, form := range slices.Concat(forms, parts) {
		if _, ok := isFileURL(form); ok || strings.HasPrefix(form, "/") && !strings.HasPrefix(form, "//") {
			p.unknown() // it is a file, and on no host
		}
		authorities, err := authorities(form)
		if err != nil {
			return err
		}
		for _, authority := range authorities {
			hosts := cleanHosts(authority)
			for _, host := range hosts {
				under, err := domains(host)
				if err != nil {
					return err
				}
				p.add(host, under)
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
func authorities(s string) ([]string, error) {
	rest := s
	if scheme, after, ok := strings.Cut(s, ":"); ok && isScheme(scheme) && (strings.HasPrefix(after, "/") || webSchemes[strings.ToLower(scheme)]) {
		rest = after
	}
	rests := []string{rest}
	if before, after, ok := strings.Cut(s, "//"); ok && !strings.ContainsAny(before, "/?#") && strings.HasSuffix(strings.TrimSuffix(before, "@"), ":") {
		rests = append(rests, after) // jdbc:postgresql://x, jdbc:oracle:thin:@//x
	}
	var all []string
	for _, rest := range rests {
		rest = strings.TrimLeft(rest, "/") // https:x, https:/x and https:///x are https://x to a browser
		rest, _, _ = strings.Cut(rest, "/")
		if slices.Contains(all, rest) {
			continue
		}
		at := strings.IndexAny(rest, "?#")
		if at < 0 {
			all = append(all, rest)
			continue
		}
		if all = append(all, rest[:at]); strings.Contains(rest[at:], "@") {
			all = append(all, rest) // to a careless reader, what is behind it can still be the host
		}
	}
	var parts []string
	for _, one := range all {
		if strings.Count(one, "@") >= maxHosts {
			return nil, errReadings
		}
		// What is behind each @ could be the host, and so could what is in front.
		for part := range strings.SplitSeq(one, "@") {
			parts = append(parts, part)
			// What has more than one port has one to some readers, and is no host to others.
			if strings.Count(part, ":") > 1 && part[0] != '[' {
				if _, err := netip.ParseAddr(part); err != nil {
					name, _, _ := strings.Cut(part, ":")
					parts = append(parts, name)
				}
			}
		}
	}
	return parts, nil
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

// domains are a host and all domains it lies in; an address lies in none.
func domains(host string) ([]string, error) {
	all := []string{host}
	if _, err := netip.ParseAddr(host); err == nil {
		return all, nil
	}
	for rest := host; ; {
		_, up, ok := strings.Cut(rest, ".")
		if !ok {
			return all, nil
		}
		if all = append(all, up); len(all) > maxSegments {
			return nil, errLongHost
		}
		rest = up
	}
}

// addNumber adds a number that is an address to old resolvers. 0 is this machine;
// other numbers below 1.0.0.0 lead nowhere, and are what arguments such as
// max_hosts hold.
func (p *places) addNumber(n int64) {
	if n != 0 && n < 1<<24 || n >= 1<<32 {
		return
	}
	host := netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}).String()
	p.add(host, []string{host})
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
		case strings.EqualFold(scheme, "jdbc") && strings.Contains(after, "//"):
			return true
		}
	}
	return false
}

// databaseSchemes are URLs whose path names a database.
var databaseSchemes = words("postgres postgresql mysql mariadb mongodb sqlserver mssql clickhouse cockroachdb redshift redis rediss")

// nameSeparators are what stands between names of databases, which may have spaces.
const nameSeparators = ",;|\t\r\n"

// noteDatabases notes the databases that a text names: an argument that is
// called so, the path of a database's URL, dbname= in a connection string. A text
// of any length is looked at: what is long may name one all the same.
func noteDatabases(into map[string]bool, key []string, text string) error {
	note := func(name string) {
		if name = foldName(name); name != "" {
			into[name] = true
		}
	}
	ends := func(r rune) bool { return r == ';' || unicode.IsSpace(r) }
	value := func(s string) string { return s }
	_, whole := databaseURL(text)
	urls, items := []string{text}, []string(nil)
	if whole || baseWords.any(key) || hostWords.any(key) { // in prose, a URL is no argument
		items = jsonTexts(text)
		urls = slices.Concat(urls, listed(text, listSeparators), items)
	}
	some := false
	for _, one := range urls {
		rest, ok := databaseURL(one)
		if !ok {
			continue
		}
		some = true
		for _, path := range databasePaths(rest) {
			first, _, _ := strings.Cut(strings.Trim(percentDecoded(path), "/"), "/")
			note(first)
			for _, part := range listed(first, nameSeparators) {
				note(part)
			}
		}
	}
	if some {
		ends = func(r rune) bool { return strings.ContainsRune(";?&#", r) || unicode.IsSpace(r) }
		value = percentDecoded
	}
	named := false
	for part := range strings.FieldsFuncSeq(tight(text), ends) {
		if name, v, ok := strings.Cut(part, "="); ok && baseWords.any(wordsOf(value(name))) {
			note(value(v))
			named = true
		}
	}
	if !whole && baseWords.any(key) {
		for _, one := range slices.Concat([]string{text}, listed(text, nameSeparators), items) {
			if _, ok := databaseURL(one); ok || named && strings.Contains(one, "=") {
				continue // it is no name, but says one
			}
			note(one)
		}
	}
	if len(into) > maxElements {
		return errTooMuch
	}
	return nil
}

// databaseURL is what follows the scheme of a database's URL, in which drivers
// may be named too: jdbc:postgresql://…, postgresql+psycopg2://….
func databaseURL(text string) (rest string, ok bool) {
	schemes, rest, ok := strings.Cut(bare(text), ":/")
	if !ok {
		return "", false
	}
	for scheme := range strings.FieldsFuncSeq(schemes, func(r rune) bool { return r == ':' || r == '+' }) {
		if databaseSchemes[strings.ToLower(scheme)] {
			return strings.TrimLeft(rest, "/"), true
		}
	}
	return "", false
}

// databasePaths are what readers take for the path of a database's URL. It is cut
// by hand, since drivers take what is no URL by the rules: several hosts, a
// socket's path for a host, any sign in a password.
func databasePaths(rest string) []string {
	starts := []string{rest}
	if at := strings.IndexByte(rest, '@'); at >= 0 {
		starts = append(starts, rest[at+1:], rest[strings.LastIndexByte(rest, '@')+1:])
	}
	var paths []string
	for _, start := range starts {
		if at := strings.IndexAny(start, "/?"); at >= 0 && start[at] == '/' {
			path := start[at:]
			if end := strings.IndexAny(path, "?#"); end >= 0 {
				path = path[:end]
			}
			paths = append(paths, path)
		}
	}
	return paths
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

// foldName is a name without quotes and escapes, in one width and in lower case.
func foldName(s string) string {
	s = strings.ReplaceAll(withoutInvisible(norm.NFKC.String(s)), `\`, "")
	return strings.ToLower(strings.Trim(s, " \t\r\n\"'`[]"))
}
