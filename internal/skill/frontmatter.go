package skill

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// shape is what a field holds.
type shape uint8

const (
	asText shape = iota
	asList
	asTable
)

func (s shape) String() string { return [...]string{"a text", "a list", "names with texts"}[s] }

// field is one field of a front matter.
type field struct {
	key   string
	line  int
	shape shape
	text  string
	items []entry // of a list or a table
}

type entry struct {
	key, text string
	line      int
}

// frontmatter is what stands between the --- lines, and the rest.
type frontmatter struct {
	present bool
	fields  []field
	body    string
	line    int // on which the body starts
}

func (f *frontmatter) field(key string) *field {
	for i := range f.fields {
		if f.fields[i].key == key {
			return &f.fields[i]
		}
	}
	return nil
}

// report takes a problem at a line.
type report func(line int, warning bool, hint, message string)

// readFrontmatter splits a text. Without a first line --- all of it is body.
func readFrontmatter(all string, tell report) frontmatter {
	lines := strings.Split(all, "\n")
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
	}
	if strings.TrimRight(lines[0], " ") != "---" {
		return frontmatter{body: all, line: 1}
	}
	end := 1
	for end < len(lines) && strings.TrimRight(lines[end], " ") != "---" {
		end++
	}
	if end == len(lines) {
		tell(1, false, "end it with a line ---", "the front matter does not end")
		return frontmatter{present: true, line: len(lines)}
	}
	r := &matter{lines: lines[1:end], tell: tell}
	return frontmatter{present: true, fields: r.read(), body: strings.Join(lines[end+1:], "\n"), line: end + 2}
}

// matter reads the lines of a front matter.
type matter struct {
	lines []string
	at    int
	tell  report
}

// no reports what cannot be read, at a line of the front matter.
func (m *matter) no(at int, hint, message string) { m.tell(at+2, false, hint, message) }

func (m *matter) read() []field {
	for i, l := range m.lines {
		if strings.IndexFunc(l, odd) >= 0 {
			m.no(i, "use spaces and plain characters", "there is a tab or a character that YAML does not take")
			return nil
		}
	}
	var fields []field
	seen := map[string]bool{}
	for m.at < len(m.lines) {
		at, l := m.at, m.lines[m.at]
		m.at++
		if skipped(l) {
			continue
		}
		key, rest, ok := cutKey(l)
		if !ok {
			m.no(at, `write "key: value"`, "this line is no field")
			continue
		}
		f := field{key: key, line: at + 2}
		m.value(&f, at, rest)
		if seen[key] {
			m.no(at, "keep one of them", "there already is a field "+key)
		}
		seen[key] = true
		fields = append(fields, f)
	}
	return fields
}

// odd finds characters that YAML refuses or breaks lines at, and tabs, which
// mean other things in other places.
func odd(r rune) bool {
	return r < ' ' || r == utf8.RuneError || r >= 0x7F && r < 0xA0 || r == 0x2028 || r == 0x2029 || r == 0xFEFF || r == 0xFFFE || r == 0xFFFF
}

// skipped are lines without content.
func skipped(l string) bool {
	l = strings.Trim(l, " ")
	return l == "" || l[0] == '#'
}

// indent counts the spaces that a line starts with.
func indent(l string) int { return len(l) - len(strings.TrimLeft(l, " ")) }

// maxKey bounds a key. YAML has such a bound too.
const maxKey = 128

// cutKey cuts a line into a key and what follows its colon.
func cutKey(l string) (key, rest string, ok bool) {
	key, rest, ok = strings.Cut(l, ":")
	if !ok || key == "" || len(key) > maxKey || rest != "" && rest[0] != ' ' {
		return "", "", false
	}
	for i, c := range []byte(key) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_'
		if !letter && (i == 0 || c != '-' && c != '.' && c != '/') {
			return "", "", false
		}
	}
	return key, strings.Trim(rest, " "), true
}

// value reads the value of a field, with the lines that belong to it.
func (m *matter) value(f *field, at int, rest string) {
	switch {
	case rest == "" || rest[0] == '#':
		m.children(f)
	case f.key == "globs" && rest[0] != '[' && rest[0] != '"' && rest[0] != '\'':
		f.text = rest // patterns, which YAML would take for something else
		m.nothingBelow()
	case rest[0] == '|' || rest[0] == '>':
		f.text = m.block(at, rest)
	case rest[0] == '[':
		f.shape = asList
		f.items = m.flow(at, f.key == "globs", rest)
		m.nothingBelow()
	case rest[0] == '"' || rest[0] == '\'':
		f.text = m.quoted(at, rest)
		m.nothingBelow()
	default:
		f.text = m.plain(at, rest)
	}
}

// nothingBelow reports lines that would belong to a value that is complete.
func (m *matter) nothingBelow() {
	for m.at < len(m.lines) {
		l := m.lines[m.at]
		if !skipped(l) {
			if indent(l) == 0 {
				return
			}
			m.no(m.at, "put the value on one line, or use a block: key: |", "this line belongs to nothing")
		}
		m.at++
	}
}

// children reads the list or the table below a key.
func (m *matter) children(f *field) {
	depth := -1
	seen := map[string]bool{}
	for ; m.at < len(m.lines); m.at++ {
		l := m.lines[m.at]
		if skipped(l) {
			continue
		}
		in, content := indent(l), strings.Trim(l, " ")
		item := content == "-" || strings.HasPrefix(content, "- ")
		if in == 0 && !item {
			return
		}
		if depth < 0 {
			depth = in
			if f.shape = asTable; item {
				f.shape = asList
			}
		}
		e := entry{line: m.at + 2}
		key, rest, named := cutKey(content)
		switch {
		case in != depth:
			m.no(m.at, "start it below the line before", "this line is indented in another way than its neighbours")
			continue
		case item && f.shape == asList:
			e.text = m.scalar(m.at, strings.Trim(content[1:], " "))
		case !item && named && f.shape == asTable:
			e.key, e.text = key, m.scalar(m.at, rest)
			if seen[key] {
				m.no(m.at, "keep one of them", "there already is "+key)
			}
			seen[key] = true
		default:
			m.no(m.at, `write "- value" for each item of a list, or "key: value" for each name`, "this line is neither an item nor a name with a text")
			continue
		}
		f.items = append(f.items, e)
	}
}

// scalar reads a text that must be on one line.
func (m *matter) scalar(at int, s string) string {
	switch {
	case s == "" || s[0] == '#':
		m.no(at, "write a text, or remove the line", "there is no text")
		return ""
	case s[0] == '"' || s[0] == '\'':
		return m.quoted(at, s)
	}
	return m.plainPart(at, s, true)
}

// plain reads a text without quotes, which may go on in lines that are indented.
func (m *matter) plain(at int, first string) string {
	out := m.plainPart(at, first, true)
	for blanks := 0; m.at < len(m.lines); m.at++ {
		l := m.lines[m.at]
		content := strings.Trim(l, " ")
		switch {
		case content == "":
			blanks++
			continue
		case indent(l) == 0:
			return out
		case content[0] == '#' || m.commented(at):
			m.no(m.at, "put the text in quotes or in a block: key: |", "a comment ends the text, and this line goes on")
			continue
		}
		sep := " "
		if blanks > 0 {
			sep = strings.Repeat("\n", blanks)
		}
		out, blanks, at = out+sep+m.plainPart(m.at, content, false), 0, m.at
	}
	return out
}

// commented reports whether a line ends in a comment.
func (m *matter) commented(at int) bool { return strings.Contains(m.lines[at], " #") }

// plainPart checks one line of a text without quotes.
func (m *matter) plainPart(at int, s string, first bool) string {
	if i := strings.Index(s, " #"); i >= 0 {
		s = strings.TrimRight(s[:i], " ")
	}
	if first && (strings.IndexByte(",[]{}#&*!|>'\"%@`", s[0]) >= 0 || strings.IndexByte("-?:", s[0]) >= 0 && (len(s) == 1 || s[1] == ' ')) {
		m.no(at, "put the text in quotes", "a text without quotes cannot start with "+s[:1])
	}
	if strings.Contains(s, ": ") || strings.HasSuffix(s, ":") {
		m.tell(at+2, true, "put the text in quotes", "a text with a colon in it is not YAML without quotes, and some clients skip the file")
	}
	return s
}

// quoted reads a text in quotes, which must end on its line.
func (m *matter) quoted(at int, s string) string {
	out, rest, ok := unquote(s)
	switch rest = strings.TrimLeft(rest, " "); {
	case !ok:
		m.no(at, `end it on its line, with \" \\ \n \t and \u0000 as the only escapes`, "the text in quotes cannot be read")
	case rest != "" && (rest[0] != '#' || !strings.HasSuffix(s[:len(s)-len(rest)], " ")):
		m.no(at, "put all of it in quotes", "there is more behind the text in quotes")
	}
	return out
}

// unquote reads the quoted text that s starts with.
func unquote(s string) (out, rest string, ok bool) {
	if s[0] == '\'' {
		var b strings.Builder
		for i := 1; i < len(s); i++ {
			if s[i] == '\'' {
				if i+1 == len(s) || s[i+1] != '\'' {
					return b.String(), s[i+1:], true
				}
				i++
			}
			b.WriteByte(s[i])
		}
		return "", "", false
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		if s[i] == '"' {
			return b.String(), s[i+1:], true
		}
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		if i++; i == len(s) {
			break
		}
		switch s[i] {
		case '"', '\\', '/':
			b.WriteByte(s[i])
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'u':
			if i+5 > len(s) {
				return "", "", false
			}
			n, err := strconv.ParseUint(s[i+1:i+5], 16, 32)
			if err != nil || n >= 0xD800 && n < 0xE000 {
				return "", "", false
			}
			b.WriteRune(rune(n))
			i += 4
		default:
			return "", "", false
		}
	}
	return "", "", false
}

// flow reads [a, "b"]. Patterns may be without quotes.
func (m *matter) flow(at int, patterns bool, s string) []entry {
	var items []entry
	const hint = `write ["a", "b"] on one line`
	s = strings.TrimLeft(s[1:], " ")
	for s != "" && s[0] != ']' {
		var e entry
		e.line = at + 2
		if s[0] == '"' || s[0] == '\'' {
			var ok bool
			if e.text, s, ok = unquote(s); !ok {
				m.no(at, hint, "the text in quotes cannot be read")
				return nil
			}
		} else {
			i := strings.IndexAny(s, ",]")
			if i < 0 {
				break
			}
			e.text, s = strings.TrimRight(s[:i], " "), s[i:]
			if !patterns && (e.text == "" || strings.ContainsAny(e.text, "[{}:?#&*!|>'\"%@`") || e.text[0] == '-') {
				m.no(at, "put the items in quotes", "an item of the list cannot be read")
				return nil
			}
		}
		items = append(items, e)
		s = strings.TrimLeft(s, " ")
		if s != "" && s[0] == ',' {
			if s = strings.TrimLeft(s[1:], " "); s != "" && s[0] == ']' {
				m.no(at, "remove the last comma", "the list ends with a comma")
				return nil
			}
			continue
		}
		if s != "" && s[0] != ']' {
			break
		}
	}
	if s == "" || s[0] != ']' {
		m.no(at, hint, "the list does not end")
		return nil
	}
	if rest := s[1:]; strings.Trim(rest, " ") != "" && !strings.HasPrefix(strings.TrimLeft(rest, " "), "#") || strings.HasPrefix(rest, "#") {
		m.no(at, hint, "there is more behind the list")
	}
	return items
}

// block reads the lines of a block: | keeps them, > folds them.
func (m *matter) block(at int, head string) string {
	if head != "|" && head != ">" && head != "|-" && head != ">-" {
		m.no(at, "write | or > alone", "the head of the block is not known here")
	}
	var lines []string
	depth := 0
	for ; m.at < len(m.lines); m.at++ {
		l := m.lines[m.at]
		blank := strings.Trim(l, " ") == ""
		switch {
		case depth == 0 && blank:
			if len(l) > 0 {
				m.no(m.at, "empty the line", "a block cannot start with a line of spaces")
			}
			lines = append(lines, "")
		case blank && len(l) <= depth:
			lines = append(lines, "")
		case depth == 0 && indent(l) == 0 || depth > 0 && indent(l) < depth:
			return fold(head, lines)
		default:
			if depth == 0 {
				depth = indent(l)
			}
			lines = append(lines, l[depth:])
		}
	}
	return fold(head, lines)
}

func fold(head string, lines []string) string {
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	if head[0] == '|' {
		return strings.Join(lines, "\n")
	}
	var b strings.Builder
	blanks, kept, begun := 0, false, false
	for _, l := range lines {
		if l == "" {
			blanks++
			continue
		}
		more := l[0] == ' '
		switch {
		case !begun:
			b.WriteString(strings.Repeat("\n", blanks))
		case more || kept:
			b.WriteString(strings.Repeat("\n", blanks+1))
		case blanks == 0:
			b.WriteByte(' ')
		default:
			b.WriteString(strings.Repeat("\n", blanks))
		}
		b.WriteString(l)
		blanks, kept, begun = 0, more, true
	}
	return b.String()
}
