package policy

import (
	"errors"
	"path"
	"strconv"
	"strings"
	"unicode"

	"github.com/cedar-policy/cedar-go/types"
	"golang.org/x/text/unicode/norm"

	"github.com/ambit-run/ambit/manifest/diag"
)

// places are what texts could mean, and what that lies under.
type places struct {
	// values are the places themselves; any is all that at least one of them is
	// or lies under, all what every one is or lies under.
	values, any, all map[string]bool
	some             bool
}

// add takes one reading with everything it lies under, itself included.
func (p *places) add(value string, under []string) {
	if p.values == nil {
		p.values, p.any = map[string]bool{}, map[string]bool{}
	}
	p.values[value] = true
	kept := make(map[string]bool, len(under))
	for _, u := range under {
		p.any[u] = true
		if !p.some || p.all[u] {
			kept[u] = true
		}
	}
	p.all, p.some = kept, true
}

// unknown takes a text that means something, and nobody knows what.
func (p *places) unknown() { p.all, p.some = nil, true }

func (p *places) record() types.Value {
	return types.NewRecord(types.RecordMap{"values": set(p.values), "any_under": set(p.any), "all_under": set(p.all)})
}

// The bounds of a path. No system takes a longer one.
const (
	maxPath     = 4 << 10
	maxSegments = 256
	maxReadings = 64
	maxStart    = 512
	// maxWork bounds the bytes that are looked at to find all readings of all
	// texts of a call.
	maxWork = 8 << 20
)

var (
	errLongPath = errors.New("it is too long")
	errReadings = errors.New("it can be read in too many ways")
)

// addPath adds every reading of a text as a path. Nothing is looked up: links
// are not followed, and a relative path stays relative, since the folder that
// a tool works in is not known here.
func (p *places) addPath(text string, work *int) error {
	if len(text) > maxPath {
		return errLongPath
	}
	forms, err := readings(text, work)
	if err != nil {
		return err
	}
	for _, form := range forms {
		clean := cleanPath(form)
		under, err := folders(clean)
		if err != nil {
			return err
		}
		p.add(clean, under)
		// Enough steps up lead to the root, wherever they start.
		if rest := strings.TrimLeft(clean, "./"); strings.HasPrefix(clean, "../") && rest != "" {
			above, err := folders("/" + rest)
			if err != nil {
				return err
			}
			for _, u := range above {
				p.any[u] = true
			}
		}
	}
	return nil
}

// cleanPath is the shortest form of a path, with / between its parts. A drive
// letter is a capital, and no steps up lead out of it.
func cleanPath(s string) string {
	if len(s) >= 2 && s[1] == ':' && isLetter(s[0]) {
		return strings.ToUpper(s[:1]) + ":" + path.Clean("/"+s[2:])
	}
	return path.Clean(s)
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// folders are a clean path and everything above it.
func folders(clean string) ([]string, error) {
	var all []string
	for at := clean; ; {
		if all = append(all, at); len(all) > maxSegments {
			return nil, errLongPath
		}
		up := path.Dir(at)
		if up == at || up == "." {
			return all, nil
		}
		at = up
	}
}

// transforms are the ways in which tools are known to read text differently.
// Each gives another form, or the same.
var transforms = []func(string) string{
	norm.NFKC.String,
	withoutInvisible,
	strings.TrimSpace,
	percentDecoded,
	func(s string) string { s, _, _ = strings.Cut(s, "\x00"); return s },
	withoutFileScheme,
	func(s string) string { return strings.ReplaceAll(s, `\`, "/") },
	withoutTrailingDots,
}

// readings are all forms that a text has under any order of the transforms.
func readings(text string, work *int) ([]string, error) {
	all := []string{text}
	if plain(text) {
		return all, nil
	}
	seen := map[string]bool{text: true}
	for i := 0; i < len(all); i++ {
		if *work += len(all[i]) * len(transforms); *work > maxWork {
			return nil, errReadings
		}
		for _, change := range transforms {
			other := change(all[i])
			if seen[other] {
				continue
			}
			if seen[other] = true; len(all) == maxReadings {
				return nil, errReadings
			}
			all = append(all, other)
		}
	}
	return all, nil
}

// plain reports whether no transform changes a text: the common case.
func plain(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c <= ' ' || c >= 0x7f || c == '%' || c == '\\' || c == ':' || c == '.' && (i+1 == len(s) || s[i+1] == '/') {
			return false
		}
	}
	return true
}

// withoutInvisible leaves out what nobody sees: zero-width and control characters.
func withoutInvisible(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) || unicode.IsControl(r) && r != 0 {
			return -1
		}
		return r
	}, s)
}

// percentDecoded decodes %xx, %uxxxx and the overlong forms of a dot and a
// slash, once; what is no escape stays.
func percentDecoded(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+6 <= len(s) && (s[i+1] == 'u' || s[i+1] == 'U') {
			if r, err := strconv.ParseUint(s[i+2:i+6], 16, 16); err == nil {
				b.WriteRune(rune(r))
				i += 5
				continue
			}
		}
		if i+3 <= len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte('%')
	}
	return overlong.Replace(b.String())
}

// overlong are spellings that a strict reader of UTF-8 refuses and a lax one
// takes for a dot, a slash or a backslash.
var overlong = strings.NewReplacer(
	"\xc0\xae", ".", "\xc0\xaf", "/", "\xc1\x9c", `\`, "\xe0\x80\xae", ".", "\xe0\x80\xaf", "/", "\xe0\x81\x9c", `\`,
)

// withoutFileScheme is the path of a file: URL.
func withoutFileScheme(s string) string {
	if len(s) < 5 || !strings.EqualFold(s[:5], "file:") {
		return s
	}
	rest := s[5:]
	if strings.HasPrefix(rest, "//") {
		// What follows is a host, up to the path.
		if at := strings.IndexByte(rest[2:], '/'); at >= 0 {
			rest = rest[2+at:]
		}
	}
	// /C:/x is the drive C.
	if len(rest) >= 3 && rest[0] == '/' && isLetter(rest[1]) && rest[2] == ':' {
		rest = rest[1:]
	}
	return rest
}

// withoutTrailingDots leaves out the spaces and dots at the end of each part,
// which Windows does not see.
func withoutTrailingDots(s string) string {
	if !strings.ContainsAny(s, ". ") {
		return s
	}
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == '/' || r == '\\' })
	changed := false
	for i, part := range parts {
		short := strings.TrimRight(part, " ")
		if strings.Trim(short, ".") != "" {
			short = strings.TrimRight(short, ". ")
		}
		changed = changed || short != part
		parts[i] = short
	}
	if !changed {
		return s
	}
	joined := strings.Join(parts, "/")
	if s[0] == '/' || s[0] == '\\' {
		joined = "/" + joined
	}
	return joined
}

// looksLikePath reports whether a text is a path by its looks, whatever the name
// of its argument: it starts at a root, a home or here.
func looksLikePath(s string, work *int) bool {
	if len(s) > maxPath {
		return false
	}
	// How it starts is enough, and most texts are longer.
	if s = strings.TrimSpace(withoutInvisible(s)); len(s) > maxStart {
		s = s[:maxStart]
	}
	forms, err := readings(s, work)
	if err != nil {
		return true // whoever looks closer finds the same
	}
	for _, f := range forms {
		switch {
		case f == "." || f == "..", strings.HasPrefix(f, "/"), strings.HasPrefix(f, "~"), strings.HasPrefix(f, "./"), strings.HasPrefix(f, "../"):
			return true
		case len(f) >= 3 && isLetter(f[0]) && f[1] == ':' && f[2] == '/':
			return true
		}
	}
	return false
}

// vocabulary are words in the names of arguments.
type vocabulary map[string]bool

func (v vocabulary) any(words []string) bool {
	for _, w := range words {
		if v[w] {
			return true
		}
	}
	return false
}

func words(all string) vocabulary {
	v := vocabulary{}
	for w := range strings.FieldsSeq(all) {
		v[w] = true
	}
	return v
}

var (
	pathWords = words("path paths file files filename filenames filepath filepaths dir dirs directory directories folder folders cwd root roots src dst dest source destination")
	hostWords = words("host hosts hostname hostnames domain domains url urls uri uris endpoint endpoints address site origin")
	baseWords = words("database databases db dbname dbs schema catalog keyspace")
)

// wordsOf splits the name of an argument: filePath, file_path and file-path are
// file and path.
func wordsOf(key string) []string {
	var all []string
	var word strings.Builder
	end := func() {
		if word.Len() > 0 {
			all = append(all, word.String())
			word.Reset()
		}
	}
	lower := false
	for _, r := range key {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			end()
			lower = false
			continue
		case unicode.IsUpper(r) && lower:
			end()
		}
		lower = !unicode.IsUpper(r)
		word.WriteRune(unicode.ToLower(r))
	}
	end()
	return all
}

// quote writes a name that came with a call.
func quote(s string) string { return diag.Quote(s) }
