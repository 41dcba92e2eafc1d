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

// places contains the paths or hosts in a call, and their parent folders or domains.
type places struct {
	// values contains the paths or hosts themselves. inAny contains the folders or domains that contain at least one of
	// them. inAll contains the folders or domains that contain all of them. A path or host is considered to contain
	// itself.
	values, inAny, inAll map[string]bool
	some                 bool
	// count points to the total number of folders and domains in the sets of the call. If it exceeds maxFolders, the
	// sets stop growing and the call is refused.
	count *int
}

// add adds a path or host. The second argument lists the path or host itself and all its parent folders or domains.
func (p *places) add(value string, under []string) {
	if !p.addForForbid(value, under) {
		return
	}
	here := make(map[string]bool, len(under))
	for _, u := range under {
		here[u] = true
	}
	if !p.some {
		p.inAll, p.some = here, true
	}
	maps.DeleteFunc(p.inAll, func(u string, _ bool) bool { return !here[u] })
}

// addForForbid adds a path or host for forbid rules only. It does not change inAll, which permit rules use. It
// returns false if the sets are too large.
func (p *places) addForForbid(value string, under []string) bool {
	if p.count != nil {
		if *p.count += len(under); *p.count > maxFolders {
			return false
		}
	}
	if p.values == nil {
		p.values, p.inAny = map[string]bool{}, map[string]bool{}
	}
	p.values[value] = true
	for _, u := range under {
		p.inAny[u] = true
	}
	return true
}

// addUnknown records that a call contains an unknown path or host. It empties inAll, so that no permit rule about
// paths or hosts matches.
func (p *places) addUnknown() { p.inAll, p.some = nil, true }

func (p *places) record() types.Value {
	return types.NewRecord(types.RecordMap{"values": set(p.values), "any_under": set(p.inAny), "all_under": set(p.inAll)})
}

// addPath adds a canonical path. It adds a relative path only for forbid rules, both unchanged and resolved against
// each folder in bases. If the call contains a relative path, no permit rule about paths matches. The result is a flaw
// if there are too many bases, or if a resolved path matches otherRoot.
func (p *places) addPath(s string, bases []string) flaw {
	for _, form := range forms(s) {
		if form[0] == '/' || isDrive(form) {
			p.add(form, folders(form))
			continue
		}
		p.addForForbid(form, folders(form))
		p.addUnknown()
		if len(bases) > maxBases {
			return flaw{"is a relative path that can start from too many folders", "send an absolute path"}
		}
		for _, base := range bases {
			joined := path.Join(base, form)
			if otherRoot.MatchString(joined) {
				return rootAlias
			}
			p.addForForbid(joined, folders(joined))
		}
	}
	return flaw{}
}

// forms returns the equivalent spellings of a canonical path: unchanged, with escapes decoded, and with Unicode
// compatibility characters normalized (NFKC).
func forms(s string) []string {
	plain, err := url.PathUnescape(s)
	if err != nil {
		plain = s
	}
	return slices.Compact([]string{s, plain, norm.NFKC.String(plain)})
}

func isDrive(s string) bool { return len(s) >= 2 && s[1] == ':' && isLetter(s[0]) }

// folders returns a clean path and all its parent folders. A path that is longer than maxPath is shortened first.
func folders(clean string) []string {
	if len(clean) > maxPath {
		clean = clean[:strings.LastIndexByte(clean[:maxPath], '/')+1]
	}
	all := make([]string, 0, min(strings.Count(clean, "/")+1, maxSegments))
	for at := clean; ; {
		all = append(all, at)
		end := strings.LastIndexByte(at, '/')
		if end < 0 || at == "/" {
			return all
		}
		at = at[:max(end, 1)]
	}
}

// addHost adds a canonical host and its parent domains.
func (p *places) addHost(host string) {
	under := []string{host}
	if _, err := netip.ParseAddr(host); err != nil {
		for _, rest, ok := strings.Cut(host, "."); ok; _, rest, ok = strings.Cut(rest, ".") {
			under = append(under, rest)
		}
	}
	p.add(host, under)
}

// addURLByLooks checks whether a string starts with a URL, and adds the host of the URL. It ignores the text after a
// space or a line break.
func (p *places) addURLByLooks(text string) flaw {
	s := strings.Trim(strings.Map(visible, text), quoteMarks+" ")
	if _, ok := decodeEscape(s); ok && s[0] == '%' && strings.Contains(s, ":") && !strings.ContainsAny(s, " ") {
		return escaped
	}
	if !startsURL(s) || fileURL.MatchString(s) {
		return flaw{}
	}
	word, _, _ := strings.Cut(strings.Trim(strings.TrimLeftFunc(text, unicode.IsSpace), quoteMarks), " ")
	word, _, _ = strings.Cut(word, "\n")
	host, f := urlFlaw(strings.TrimRight(word, quoteMarks+"\r\t"), false)
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

// These expressions apply to a string if neither its argument name nor a rule declares a path. Such a string can be
// prose or source code. It is treated as a path if it starts like a path or contains a ".." segment.
var (
	startsLikePath = regexp.MustCompile(`^(?:/|\.\.?(?:[/\\]|$)|[A-Za-z]:[/\\]|\\{1,2}[\w.$-]+\\)|[/\\]\.\.(?:[/\\]|$)`)
	startsAtHome   = regexp.MustCompile(`^(?:~[\w.-]*|\$HOME|\$\{HOME\})(?:[/\\]|$)`)
	// perhapsPath matches a word that may be a disguised path.
	perhapsPath = regexp.MustCompile(`(?i)[/\\]|^(?:%(?:2f|5c|2e|7e|25)|[^\x00-\x7f])`)
)

// addLooks adds a string as a path if it looks like a path. The string may be prose. Therefore, addLooks does not
// refuse a path that is not canonical, but normalizes its segments. It still refuses disguised characters, home
// folders, and folders such as /proc/self/root, which give a file a second path.
func (p *places) addLooks(text string, bases []string) flaw {
	s := strings.Trim(strings.Map(visible, text), quoteMarks+" ")
	if s == "" {
		return flaw{}
	}
	head, _, _ := strings.Cut(strings.TrimLeftFunc(text, unicode.IsSpace), "\n")
	var odd flaw
	if !strings.ContainsAny(s, " \t") || startsLikePath.MatchString(s) || s[0] >= utf8.RuneSelf {
		odd = disguiseFlaw(strings.TrimRight(plainSlashes.Replace(norm.NFKC.String(head)), "\r\t "), false)
	}
	compatible := plainSlashes.Replace(norm.NFKC.String(s))
	switch {
	case fileURL.MatchString(s):
		return p.addFileURL(text)
	case schemesOf(s) != "":
		p.addOtherURL(s)
		return flaw{}
	case startsURL(s) && s[0] != '/':
		return flaw{}
	case startsAtHome.MatchString(s):
		return flaw{"starts with a home folder", "send the whole path"}
	case startsLikePath.MatchString(s) || startsLikePath.MatchString(compatible):
	case odd.what == "" || strings.ContainsAny(s, " \t") || !perhapsPath.MatchString(s):
		return flaw{}
	}
	if odd.what != "" {
		return odd
	}
	if otherRoot.MatchString(compatible) {
		return rootAlias
	}
	s = plainSlashes.Replace(s)
	cleaned := []string{path.Clean(s), path.Clean(trimSegments(s)), path.Clean(trimSegments(compatible))}
	for _, form := range slices.Compact(cleaned) {
		if otherRoot.MatchString(form) {
			return rootAlias
		}
		if form == ".." || strings.HasPrefix(form, "../") { // enough ".." segments lead to the root folder
			p.addUnknown()
			form = path.Clean("/" + form)
		}
		if f := p.addPath(form, bases); f.what != "" {
			return f
		}
	}
	return flaw{}
}

var fileURL = regexp.MustCompile(`(?i)^(?:(?:url|jar|view-source|jdbc):)*(?:file|sqlite3?|duckdb):(?:\S|\s+[/\\.~%])`)

// addFileURL adds the path of a file URL.
func (p *places) addFileURL(s string) flaw {
	rest, ok := strings.CutPrefix(s, "file://")
	if !ok || !strings.HasPrefix(rest, "/") || strings.ContainsAny(rest, "?#") {
		return flaw{"is a file URL that is not written as file:///path", "send it in that form, or send the path itself"}
	}
	f := pathFlaw(rest)
	if f.what == "" {
		p.addPath(rest, nil)
		p.addUnknown() // a program without support for file URLs can use another path
	}
	return f
}

// otherURL matches a URL that some servers treat as a file, such as fs://etc/passwd or git+file:///etc/passwd.
var otherURL = regexp.MustCompile(`(?i)^(?:[a-z][a-z0-9+.-]+:)+[/\\]`)

// maxSchemes is the maximum length of the schemes of a URL. It limits the work for a long text that is not a URL.
const maxSchemes = 64

// schemesOf returns the schemes at the start of a URL with the slash after them, or "" if there is no URL.
func schemesOf(s string) string {
	if start := s[:min(len(s), maxSchemes)]; strings.Contains(start, ":") {
		return otherURL.FindString(start)
	}
	return ""
}

// addOtherURL adds the path of a URL for forbid rules, with and without the authority. Only the server knows whether the
// URL names a file, so permit rules do not see the path. Web URLs name no file.
func (p *places) addOtherURL(s string) {
	start := schemesOf(s)
	schemes := strings.FieldsFunc(strings.ToLower(start), func(r rune) bool { return strings.ContainsRune(`:+/\`, r) })
	if len(schemes) == 0 || webSchemes[schemes[len(schemes)-1]] {
		return
	}
	rest, _, _ := strings.Cut(s[len(start)-1:], "\n")
	rest, _ = cutAny(rest, "?# \t\r")
	whole := strings.TrimLeft(plainSlashes.Replace(rest), "/")
	_, inside, _ := strings.Cut(whole, "/")
	for _, candidate := range []string{whole, inside} {
		for _, form := range forms(candidate) {
			clean := path.Clean("/" + plainSlashes.Replace(form))
			p.addForForbid(clean, folders(clean))
		}
	}
}

var webSchemes = words("http https ws wss")

// plainSlashes replaces characters with a slash if some systems treat them as separators.
var plainSlashes = strings.NewReplacer(`\`, "/", "\u2044", "/", "\u2215", "/", "\u29f8", "/", "\u29f5", "/", "\u00a5",
	"/", "\u20a9", "/")

// trimSegments removes spaces and dots at the end of each segment, because Windows ignores them. A segment of only
// spaces and dots becomes "." or "..".
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

// vocabulary is a set of words that occur in the names of arguments.
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

func union(all ...vocabulary) vocabulary {
	u := vocabulary{}
	for _, v := range all {
		maps.Copy(u, v)
	}
	return u
}

// These words in the name of an argument declare a path, a host or a database. For the words in perhapsPaths and
// perhapsHosts, the value must also look like a path or host. For example, the value "en" of an argument named source
// is not a path, and the value "Berlin" of an argument named origin is not a host.
var (
	pathWords = words("path paths file files filename filenames filepath filepaths " +
		"dir dirs directory directories folder folders cwd")
	perhapsPaths  = words("root roots base src dst dest source destination")
	hostWords     = words("host hosts hostname hostnames url urls uri uris")
	perhapsHosts  = words("domain domains endpoint endpoints address site origin")
	databaseWords = words("database databases db dbname dbs schema catalog keyspace")
	// A word in baseWords declares a folder. Relative paths in the same call are resolved against that folder.
	baseWords = words("cwd pwd root base dir directory folder workdir workspace")

	generalNames = words("name names value values id raw href addr ip ips fqdn")
	placeWords   = union(pathWords, perhapsPaths, hostWords, perhapsHosts, databaseWords, baseWords)
)

// nameWord matches one word in the name of an argument. An upper-case letter begins a new word.
var nameWord = regexp.MustCompile(`\p{Lu}+[\p{Ll}\p{Lt}\p{Lm}\p{Lo}\p{Nd}]*|[\p{Ll}\p{Lt}\p{Lm}\p{Lo}\p{Nd}]+`)

// wordsOf splits the name of an argument into lower-case words. For example, filePath, file_path and file-path all
// become "file" and "path". Because some programs ignore case and separators, wordsOf also finds a word of placeWords
// that was split apart, such as "host" in hOst and "path" in srcpAth. It skips short and vague words that can occur by
// coincidence, such as "db" in fieldB, "url" in hourLimit and "dest" in codeStyle.
func wordsOf(key string) []string {
	all := nameWord.FindAllString(key, -1)
	for i, word := range all {
		all[i] = strings.ToLower(word)
	}
	folded, split := fold(key), strings.Join(all, " ")
	if folded == split {
		return all
	}
	for w := range placeWords {
		if strings.Contains(folded, w) && !strings.Contains(split, w) &&
			(folded == w || len(w) > 3 && !perhapsPaths[w] && !perhapsHosts[w] ||
				len(w) > 2 && (strings.HasPrefix(folded, w) || strings.HasSuffix(folded, w))) {
			all = append(all, w)
		}
	}
	return all
}

// databaseURL matches the start of a URL whose path is the name of a database. The scheme can include a driver, as in
// jdbc:postgresql:// and postgresql+psycopg2://. If the argument name declares a database, anyURL is used too.
var (
	databaseURL = regexp.MustCompile(`(?i)^(?:[a-z0-9]+[:+])*(?:postgres\w*|pg(?:sql)?|psql|mysql\w*|maria\w*|` +
		`mongo\w*|sqlserver|mssql|clickhouse\w*|cockroach\w*|redshift|rediss?|valkeys?|oracle|db2|tidb|snowflake)` +
		`(?:[:+][a-z0-9]+)*:/{1,2}`)
	anyURL = regexp.MustCompile(`(?i)^[a-z][a-z0-9+.:-]+:/{1,2}`)
)

var (
	oddDatabase = flaw{"names a database in an unusual form", "send only the name, or one plain URL"}
	// cutName matches a name that connectionPart cut off at a separator inside the name. The closing quotation mark or
	// brace is missing, or the name ends in a backslash.
	cutName      = regexp.MustCompile(`^['"{](?:.*[^'"}])?$|\\$`)
	databaseList = regexp.MustCompile(`[,;|\n%]|^\s*[\[{]`)
)

// addDatabases adds the databases that a string names. The string can be the value of an argument such as database, a
// database URL, or a connection string with dbname=.
func (f *facts) addDatabases(key []string, text string) flaw {
	named := databaseWords.any(key)
	bare := strings.Trim(text, quoteMarks+" \t\r\n[]")
	start := databaseURL.FindString(bare)
	if start == "" && named && !fileURL.MatchString(bare) {
		start = anyURL.FindString(bare)
	}
	if start != "" {
		rest := bare[len(start):]
		connection, options := cutAny(rest, "?;")
		if !strings.HasSuffix(start, "://") || strings.ContainsAny(rest, "%# \t\n") ||
			strings.Contains(rest, "://") || strings.Contains(options, "@") {
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
			if cutName.MatchString(m[2]) {
				return oddDatabase
			}
			f.addDatabase(strings.Trim(m[2], "{}"))
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

// connectionPart matches one setting of a connection string.
var connectionPart = regexp.MustCompile(`([A-Za-z][\w.-]*(?: [A-Za-z]\w*)?)\s*=\s*([^;\s?&#]*)`)

func (f *facts) addDatabase(name string) {
	if name = foldName(name); name != "" {
		f.databases[name] = true
	}
}

// foldName returns the name of a database without quotes and escapes, in lower case.
func foldName(s string) string {
	s = strings.ReplaceAll(norm.NFKC.String(s), `\`, "")
	return strings.ToLower(strings.Trim(s, " \t\r\n\"'`[]"))
}
