package policy

import (
	"maps"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cedar-policy/cedar-go/types"
	"golang.org/x/text/unicode/norm"
)

// places are paths or hosts with everything that they lie under.
type places struct {
	// values are the places themselves; any is everything that at least one of them
	// is or lies under, all is everything that each of them is or lies under.
	values, any, all map[string]bool
	some             bool
}

// add takes a place with everything that it lies under, itself included, from the
// longest to the shortest.
func (p *places) add(value string, under []string) {
	p.touch(value, under)
	if p.some {
		maps.DeleteFunc(p.all, func(u string, _ bool) bool {
			at, ok := slices.BinarySearchFunc(under, len(u), func(one string, n int) int { return n - len(one) })
			return !ok || under[at] != u
		})
		return
	}
	p.all, p.some = make(map[string]bool, len(under)), true
	for _, u := range under {
		p.all[u] = true
	}
}

// touch takes a place that forbids must see and that helps no permit.
func (p *places) touch(value string, under []string) {
	if p.values == nil {
		p.values, p.any = map[string]bool{}, map[string]bool{}
	}
	p.values[value] = true
	for _, u := range under {
		p.any[u] = true
	}
}

// unknown takes a text that names a place which is not known: no permit holds.
func (p *places) unknown() { p.all, p.some = nil, true }

func (p *places) record() types.Value {
	return types.NewRecord(types.RecordMap{"values": set(p.values), "any_under": set(p.any), "all_under": set(p.all)})
}

// addPath takes a canonical path. A relative path helps no permit, and forbids see
// it below each of the bases.
func (p *places) addPath(s string, bases []string) {
	for _, form := range forms(s) {
		if form[0] == '/' || isDrive(form) {
			p.add(form, folders(form))
			continue
		}
		p.touch(form, folders(form))
		p.unknown()
		for _, base := range bases {
			joined := path.Join(base, form)
			p.touch(joined, folders(joined))
		}
	}
}

// forms are the spellings of a canonical path that differ in harmless ways: with
// its escapes decoded, and with compatible characters replaced.
func forms(s string) []string {
	all := []string{s}
	if plain, err := url.PathUnescape(s); err == nil && plain != s {
		all = append(all, plain)
	}
	if !isASCII(s) {
		if plain := norm.NFKC.String(all[len(all)-1]); plain != all[len(all)-1] {
			all = append(all, plain)
		}
	}
	return all
}

func isDrive(s string) bool { return len(s) >= 2 && s[1] == ':' && isLetter(s[0]) }

// folders are a clean path and everything above it, no more than the deepest
// that a system accepts.
func folders(clean string) []string {
	if len(clean) > maxPath {
		clean = clean[:strings.LastIndexByte(clean[:maxPath], '/')+1]
	}
	all := make([]string, 0, min(strings.Count(clean, "/")+1, maxSegments))
	for at := clean; ; {
		all = append(all, at)
		switch end := strings.LastIndexByte(at, '/'); {
		case end < 0 || at == "/":
			return all
		case end == 0:
			at = "/"
		default:
			at = at[:end]
		}
	}
}

// addHost takes a canonical host.
func (p *places) addHost(host string) {
	under := []string{host}
	_, err := netip.ParseAddr(host)
	for rest, ok := host, err != nil; ok; {
		if _, rest, ok = strings.Cut(rest, "."); ok {
			under = append(under, rest)
		}
	}
	p.add(host, under)
}

// addURLByLooks adds the host of a text that starts with a URL. The text after a space is
// prose.
func (p *places) addURLByLooks(text string) flaw {
	s := strings.Trim(strings.Map(visible, text), wrapping+" ")
	if _, ok := escape(s); ok && s[0] == '%' && strings.Contains(s, ":") && !strings.ContainsAny(s, " ") {
		return escaped
	}
	if !urlStart.MatchString(s) || fileURL.MatchString(s) {
		return flaw{}
	}
	word, _, _ := strings.Cut(strings.Trim(strings.TrimLeftFunc(text, unicode.IsSpace), wrapping), " ")
	word, _, _ = strings.Cut(word, "\n")
	host, f := urlFlaw(strings.TrimRight(word, wrapping+"\r\t"), false)
	if f.what == "" {
		p.addHost(host)
	}
	return f
}

func visible(r rune) rune {
	if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
		return -1
	}
	return r
}

// An argument that no name and no rule declares a path can hold prose and source
// code. It is a path by its looks if it starts like one or climbs.
var (
	startsLikePath = regexp.MustCompile(`^(?:/|\.\.?(?:[/\\]|$)|[A-Za-z]:[/\\]|\\{1,2}[\w.$-]+\\)|[/\\]\.\.(?:[/\\]|$)`)
	startsAtHome   = regexp.MustCompile(`^(?:~[\w.-]*|\$HOME|\$\{HOME\})(?:[/\\]|$)`)
)

// addLooks takes a text that may be a path by its looks. Its structure may be odd,
// as that of prose is: it is cleaned. Only characters that disguise are refused.
func (p *places) addLooks(text string, bases []string) flaw {
	s := strings.Trim(strings.Map(visible, text), wrapping+" ")
	if s == "" {
		return flaw{}
	}
	head, _, _ := strings.Cut(strings.TrimLeftFunc(text, unicode.IsSpace), "\n")
	var odd flaw
	if !strings.ContainsAny(s, " \t") || startsLikePath.MatchString(s) || s[0] >= utf8.RuneSelf {
		odd = disguise(strings.TrimRight(plainSlashes.Replace(norm.NFKC.String(head)), "\r\t "), false)
	}
	compatible := s
	if !isASCII(s) || strings.Contains(s, `\`) {
		compatible = plainSlashes.Replace(norm.NFKC.String(s))
	}
	switch {
	case fileURL.MatchString(s):
		return p.addFileURL(text)
	case urlStart.MatchString(s) && s[0] != '/':
		return flaw{}
	case startsAtHome.MatchString(s):
		return flaw{"starts with a home folder", "send the whole path"}
	case startsLikePath.MatchString(s) || startsLikePath.MatchString(compatible):
	case odd.what == "" || strings.ContainsAny(s, " \t"):
		return flaw{}
	default: // a word in disguise, with a separator or one that is disguised
		if b, ok := escape(s); !strings.ContainsAny(s, `/\`) && !(s[0] == '%' && ok && strings.IndexByte(`/\.~%`, b) >= 0) && s[0] < 0x80 {
			return flaw{}
		}
	}
	if odd.what != "" {
		return odd
	}
	if otherRoot.MatchString(compatible) {
		return rootAlias
	}
	s = plainSlashes.Replace(s)
	for _, form := range []string{path.Clean(s), path.Clean(trimSegments(s)), path.Clean(trimSegments(compatible))} {
		if otherRoot.MatchString(form) {
			return rootAlias
		}
		if form == ".." || strings.HasPrefix(form, "../") { // enough steps up lead to the root
			p.unknown()
			for form == ".." || strings.HasPrefix(form, "../") {
				form = strings.TrimPrefix(form[2:], "/")
			}
			form = "/" + form
		}
		p.addPath(form, bases)
	}
	return flaw{}
}

var fileURL = regexp.MustCompile(`(?i)^(?:(?:url|jar|view-source|jdbc):)*(?:file|sqlite3?|duckdb):(?:\S|\s+[/\\.~%])`)

// addFileURL takes the path of a file's URL.
func (p *places) addFileURL(s string) flaw {
	rest, ok := strings.CutPrefix(s, "file://")
	if !ok || !strings.HasPrefix(rest, "/") || strings.ContainsAny(rest, "?#") {
		return flaw{"is the URL of a file, and is not written as file:///path", "send it so, or send the path itself"}
	}
	f := pathFlaw(rest)
	if f.what == "" {
		p.addPath(rest, nil)
		p.unknown() // to another program it is no path at all
	}
	return f
}

// plainSlashes replaces what is a separator on some systems.
var plainSlashes = strings.NewReplacer(`\`, "/", "\u2044", "/", "\u2215", "/", "\u29f8", "/", "\u29f5", "/", "\u00a5", "/", "\u20a9", "/")

// trimSegments drops the spaces and dots at the end of each segment, which Windows
// does not see.
func trimSegments(s string) string {
	parts := strings.Split(s, "/")
	for i, part := range parts {
		switch trimmed := strings.TrimRight(part, ". "); {
		case trimmed != "" || part == "":
			parts[i] = trimmed
		case strings.Count(part, ".") > 1:
			parts[i] = ".."
		default:
			parts[i] = "."
		}
	}
	return strings.Join(parts, "/")
}

// vocabulary are words in the names of arguments.
type vocabulary map[string]bool

func (v vocabulary) any(words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return v[w] })
}

func words(all string) vocabulary {
	v := vocabulary{}
	for w := range strings.FieldsSeq(all) {
		v[w] = true
	}
	return v
}

// A name declares its argument a path or a host. Some words do so only for a text
// that has the form: {"source": "en"} is no path, {"origin": "Berlin"} no host.
var (
	pathWords     = words("path paths file files filename filenames filepath filepaths dir dirs directory directories folder folders cwd")
	perhapsPaths  = words("root roots base src dst dest source destination")
	hostWords     = words("host hosts hostname hostnames url urls uri uris")
	perhapsHosts  = words("domain domains endpoint endpoints address site origin")
	databaseWords = words("database databases db dbname dbs schema catalog keyspace")
	// baseWords name the folder that relative paths of the same call start from.
	baseWords = words("cwd pwd root base dir directory folder workdir workspace")
)

// wordsOf splits the name of an argument: filePath, file_path and file-path are
// file and path.
func wordsOf(key string) []string {
	var all []string
	start, lower := -1, false
	end := func(i int) {
		if start >= 0 {
			all = append(all, strings.ToLower(key[start:i]))
		}
		start = -1
	}
	for i, r := range key {
		switch letter := unicode.IsLetter(r) || unicode.IsDigit(r); {
		case !letter:
			end(i)
			lower = false
			continue
		case unicode.IsUpper(r) && lower:
			end(i)
		}
		if lower = !unicode.IsUpper(r); start < 0 {
			start = i
		}
	}
	end(len(key))
	return all
}

// databaseURL is a URL whose path names a database, with drivers in its scheme:
// jdbc:postgresql://…, postgresql+psycopg2://….
var databaseURL = regexp.MustCompile(`(?i)^(?:[a-z0-9]+[:+])*(?:postgres|postgresql|mysql|mariadb|mongodb|sqlserver|mssql|clickhouse|cockroachdb|redshift|rediss?)(?:[:+][a-z0-9]+)*:/+`)

var (
	oddDatabase  = flaw{"names a database in an unusual way", "send the name alone, or one plain URL"}
	databaseList = regexp.MustCompile(`[,;|\n%]|^\s*[\[{]`)
)

// databases finds the databases that a text names: an argument of such a name, the
// path of a database's URL, dbname= in a connection string.
func (f *facts) addDatabases(key []string, text string) flaw {
	named := databaseWords.any(key)
	bare := strings.Trim(text, wrapping+" \t\r\n[]")
	start := databaseURL.FindString(bare)
	if start != "" {
		rest := bare[len(start):]
		connection, options := rest, ""
		if at := strings.IndexAny(rest, "?;"); at >= 0 {
			connection, options = rest[:at], rest[at:]
		}
		if strings.ContainsAny(rest, "%# \t\n") || strings.Contains(rest, "://") || strings.Contains(options, "@") {
			return oddDatabase
		}
		connection = connection[strings.LastIndexByte(connection, '@')+1:]
		if _, name, ok := strings.Cut(connection, "/"); ok {
			if strings.ContainsAny(name, "/,") {
				return oddDatabase
			}
			f.addDatabase(name)
		}
		text = options
	}
	found := false
	for _, m := range connectionPart.FindAllStringSubmatch(text, -1) {
		if databaseWords.any(wordsOf(m[1])) {
			found = true
			f.addDatabase(m[2])
		}
	}
	switch {
	case start != "" || !named && !hostWords.any(key) && !perhapsHosts.any(key):
	case strings.Contains(text, "://") && databaseList.MatchString(text):
		return oddDatabase
	case !named:
	case !found && databaseList.MatchString(text), found && strings.ContainsAny(strings.SplitN(text, "=", 2)[0], ",;|"):
		return oddDatabase
	case !found:
		f.addDatabase(text)
	}
	return flaw{}
}

// connectionPart is one setting of a connection string.
var connectionPart = regexp.MustCompile(`([A-Za-z][\w.-]*(?: [A-Za-z]\w*)?)\s*=\s*([^;\s?&#]*)`)

func (f *facts) addDatabase(name string) {
	if name = foldName(name); name != "" {
		f.databases[name] = true
	}
}

// foldName is the name of a database without quotes and escapes, in lower case.
func foldName(s string) string {
	s = strings.ReplaceAll(norm.NFKC.String(s), `\`, "")
	return strings.ToLower(strings.Trim(s, " \t\r\n\"'`[]"))
}
