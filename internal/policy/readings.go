package policy

import (
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// transforms are the ways in which tools are known to read text differently.
// Each gives another form, or the same. [plain] knows which texts none of them
// changes.
var transforms = []func(string) string{
	norm.NFKC.String,
	withoutInvisible,
	bare,
	percentDecoded,
	beforeNUL,
	withoutQuery,
	withoutScheme,
	slashed,
	withoutTrailingDots,
	withoutHome,
	withoutOtherRoot,
}

// spelt is a text of a call.
type spelt struct {
	text string
	base string // the folder that it is read from as a path, if that is known
	work *int   // what was spent on all texts of the call

	read, level, start found // by readings, levels and starts
}

// found are texts that are looked for once.
type found struct {
	done  bool
	texts []string
	err   error
}

func (f *found) get(look func() ([]string, error)) ([]string, error) {
	if !f.done {
		f.texts, f.err = look()
		f.done = true
	}
	return f.texts, f.err
}

// part is a text that stands in this one.
func (t *spelt) part(text string) *spelt {
	return &spelt{text: text, base: t.base, work: t.work}
}

// readings are all forms that the text has under any order of the transforms.
func (t *spelt) readings() ([]string, error) {
	return t.read.get(func() ([]string, error) { return readings(t.text, t.work) })
}

// starts are the forms of how it starts at any level, which is enough to see what
// it looks like, and most texts are longer.
func (t *spelt) starts() ([]string, error) {
	if len(t.text) <= maxStart {
		return t.readings()
	}
	return t.start.get(func() ([]string, error) {
		levels, err := t.levels()
		if err != nil {
			return nil, err
		}
		var all []string
		for _, level := range levels {
			if slices.Contains(all, level) {
				continue // and so are its forms
			}
			forms, err := readings(level, t.work)
			if err != nil {
				return nil, err
			}
			for _, form := range forms {
				if !slices.Contains(all, form) {
					all = append(all, form)
				}
			}
		}
		return all, nil
	})
}

// spend counts bytes that are looked at.
func spend(work *int, n int) error {
	if *work += n; *work > maxWork {
		return errReadings
	}
	return nil
}

func readings(text string, work *int) ([]string, error) {
	all := []string{text}
	if plain(text) {
		return all, nil
	}
	for i := 0; i < len(all); i++ {
		if err := spend(work, len(all[i])*len(transforms)); err != nil {
			return nil, err
		}
		for _, change := range transforms {
			other := change(all[i])
			if slices.Contains(all, other) {
				continue
			}
			if len(all) == maxReadings {
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
		if c <= ' ' || c >= 0x7f || strings.IndexByte("%\\:\"'`<>~$", c) >= 0 || c == '.' && (i+1 == len(s) || s[i+1] == '/') {
			return false
		}
	}
	return !otherRoot(s)
}

// bare is a text without what people and programs put around one.
func bare(s string) string {
	s = strings.TrimSpace(s)
	for _, around := range []string{"url:", "jar:", "view-source:", "jdbc:"} {
		if len(s) > len(around) && strings.EqualFold(s[:len(around)], around) {
			s = s[len(around):]
		}
	}
	s = strings.TrimLeft(s, "\"'`<")
	return strings.TrimSpace(strings.TrimRight(s, "\"'`>"))
}

// beforeNUL is what a program in C sees of a text.
func beforeNUL(s string) string {
	s, _, _ = strings.Cut(s, "\x00")
	return s
}

// slashed is a text with plain slashes.
func slashed(s string) string {
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' || s[i] >= 0x80 {
			return slashes.Replace(s)
		}
	}
	return s
}

// slashes are what some systems take for one.
var slashes = strings.NewReplacer(`\`, "/", "\u2044", "/", "\u2215", "/", "\u29f8", "/", "\u29f5", "/", "\u00a5", "/", "\u20a9", "/")

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
	return withoutOverlong(b.String())
}

func withoutOverlong(s string) string {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c == 0xc0 || c == 0xc1 || c == 0xe0 {
			return overlong.Replace(s)
		}
	}
	return s
}

// overlong are spellings that a strict reader of UTF-8 refuses and a lax one
// takes for a dot, a slash or a backslash.
var overlong = strings.NewReplacer(
	"\xc0\xae", ".", "\xc0\xaf", "/", "\xc1\x9c", `\`, "\xe0\x80\xae", ".", "\xe0\x80\xaf", "/", "\xe0\x81\x9c", `\`,
)

// fileSchemes are URLs whose path is one of the file system.
var fileSchemes = words("file sqlite sqlite3 duckdb")

func isFileURL(s string) (rest string, ok bool) {
	scheme, rest, ok := strings.Cut(s, ":")
	return rest, ok && len(scheme) <= 8 && fileSchemes[strings.ToLower(scheme)]
}

// withoutQuery is a file's URL up to where its path ends.
func withoutQuery(s string) string {
	if _, ok := isFileURL(s); !ok {
		return s
	}
	if at := strings.IndexAny(s, "?#"); at >= 0 {
		s = s[:at]
	}
	return s
}

// withoutScheme is the path of a file's URL.
func withoutScheme(s string) string {
	rest, ok := isFileURL(s)
	if !ok {
		return s
	}
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

// withoutHome is a path below a home in full: many tools read ~ so. Those of other
// people are where they usually are.
func withoutHome(s string) string {
	own := ""
	for _, name := range []string{"$HOME", "${HOME}", "~"} {
		if rest, ok := strings.CutPrefix(s, name); ok && (rest == "" || rest[0] == '/') {
			own = rest + "/"
			break
		}
	}
	if own != "" {
		if dir, err := os.UserHomeDir(); err == nil {
			return path.Clean(strings.ReplaceAll(dir, `\`, "/") + own)
		}
		return s
	}
	rest, ok := strings.CutPrefix(s, "~")
	if !ok || rest == "" || rest[0] == '/' {
		return s
	}
	if who, below, _ := strings.Cut(rest, "/"); who == "root" {
		return path.Clean("/root/" + below)
	}
	return path.Clean("/home/" + rest)
}

// otherRoot reports whether a path starts where the whole tree may be found once
// more: /proc/self/root on Linux, /private and the data volume on macOS.
func otherRoot(s string) bool {
	s = strings.TrimLeft(s, "/")
	return strings.HasPrefix(s, "proc/") || strings.HasPrefix(s, "private/") || strings.HasPrefix(s, "System/")
}

// withoutOtherRoot is such a path as seen from the root itself.
func withoutOtherRoot(s string) string {
	clean := fromRoot(path.Clean(s))
	if !strings.HasPrefix(clean, "/") || !otherRoot(clean) {
		return s
	}
	parts := strings.Split(clean, "/")[1:]
	switch {
	case parts[0] == "private":
		parts = parts[1:]
	case len(parts) > 2 && parts[0] == "System" && parts[1] == "Volumes" && parts[2] == "Data":
		parts = parts[3:]
	case len(parts) > 2 && parts[0] == "proc" && parts[2] == "root":
		parts = parts[3:]
	case len(parts) > 4 && parts[0] == "proc" && parts[2] == "task" && parts[4] == "root":
		parts = parts[5:]
	default:
		return s
	}
	return "/" + strings.Join(parts, "/")
}

// withoutTrailingDots leaves out the spaces and dots at the end of each part,
// which Windows does not see.
func withoutTrailingDots(s string) string {
	ends := false
	for i := 0; i < len(s); i++ {
		if s[i] == '.' || s[i] == ' ' {
			ends = ends || i+1 == len(s) || s[i+1] == '/' || s[i+1] == '\\'
		}
	}
	if !ends {
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
