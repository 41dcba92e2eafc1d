package doc

import (
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ambit-run/ambit/manifest/diag"
)

// ParseJSON reads a JSON document, which must be valid UTF-8. The tree is complete if ok; otherwise a
// syntax error stopped the reader and the tree holds what came before it.
func ParseJSON(src *diag.Source, r *diag.Reporter) (t *Tree, ok bool) {
	p := &jsonParser{src: src.Text, r: r, t: newTree(src)}
	c := p.space()
	ok = p.value(p.t.push(none), c, 0)
	if ok {
		p.space()
		if p.pos < len(p.src) {
			p.fail(p.pos, len(p.src), "a manifest is one JSON value; remove what follows it", "something follows the end of the JSON document")
			ok = false
		}
	}
	return p.t, ok
}

type jsonParser struct {
	src string
	pos int
	r   *diag.Reporter
	t   *Tree
	// text is where a string with escapes is put together.
	text []byte
}

// fail reports a syntax error between two offsets.
func (p *jsonParser) fail(start, end int, hint, format string, args ...any) bool {
	p.r.Report(diag.BadJSON, diag.Place{Start: start, End: end}, hint, format, args...)
	return false
}

// space skips white space, and comments after reporting them. It returns the
// byte that follows; at the end of the file that is 0, which p.pos tells from
// a byte 0 in the file.
func (p *jsonParser) space() byte {
	for {
		src, i := p.src, p.pos
		for i < len(src) && (src[i] == ' ' || src[i] == '\n' || src[i] == '\t' || src[i] == '\r') {
			i++
			for i+8 <= len(src) { // indentation
				if other := eight(src, i) ^ ' '*ones; other != 0 {
					i += bits.TrailingZeros64(other) / 8
					break
				}
				i += 8
			}
		}
		p.pos = i
		if i == len(src) {
			return 0
		}
		if src[i] != '/' || !p.comment() {
			return src[i]
		}
	}
}

func (p *jsonParser) comment() bool {
	start, rest := p.pos, p.src[p.pos:]
	switch {
	case strings.HasPrefix(rest, "//"):
		if i := strings.IndexByte(rest, '\n'); i >= 0 {
			p.pos += i
		} else {
			p.pos = len(p.src)
		}
	case strings.HasPrefix(rest, "/*"):
		i := strings.Index(rest[2:], "*/")
		if i < 0 {
			return false
		}
		p.pos += i + 4
	default:
		return false
	}
	p.r.Report(diag.Comment, diag.Place{Start: start, End: p.pos}, "", "comments are not allowed in a manifest")
	return true
}

// push makes the node of the value that comes next; ok unless there are too
// many. Nodes are filled in place: copying one that was just written stalls.
func (p *jsonParser) push(parent int32) (i int32, ok bool) {
	if len(p.t.nodes) >= maxValues {
		p.r.Report(diag.TooManyValues, diag.Place{Start: p.pos, End: p.pos + 1}, "", "the file holds more than %d values", maxValues)
		return none, false
	}
	return p.t.push(parent), true
}

// value reads the value that starts with c into node i.
func (p *jsonParser) value(i int32, c byte, depth int) bool {
	n := &p.t.nodes[i]
	n.start = int32(p.pos)
	switch {
	case c == '"':
		text, plain, ok := p.str()
		n.kind, n.text, n.end = String, text, int32(p.pos)
		if !plain {
			p.t.markOdd(i)
		}
		return ok
	case c == '{' || c == '[':
		if depth >= maxDepth {
			p.r.Report(diag.TooDeep, diag.Place{Start: p.pos, End: p.pos + 1}, "", "nested more than %d levels deep", maxDepth)
			return false
		}
		if c == '{' {
			n.kind = Object
			return p.object(i, depth+1)
		}
		n.kind = Array
		return p.array(i, depth+1)
	case c == '-' || '0' <= c && c <= '9':
		n.kind, n.text = Number, p.number()
		n.end = int32(p.pos)
		return true
	case p.pos >= len(p.src):
		return p.atEnd(n.parent)
	default:
		return p.word(i)
	}
}

func (p *jsonParser) atEnd(open int32) bool {
	if open < 0 {
		return p.fail(p.pos, p.pos, "", "the file ends before there is a value")
	}
	n := &p.t.nodes[open]
	line, _ := p.t.Source.Position(int(n.start))
	what := "object"
	closing := "}"
	if n.kind == Array {
		what, closing = "list", "]"
	}
	return p.fail(p.pos, p.pos, "add the missing "+closing, "the file ends inside the %s that starts on line %d", what, line)
}

func (p *jsonParser) object(self int32, depth int) bool {
	p.pos++
	comma := -1          // offset of the comma before what comes now
	var maybeSeen uint64 // a bit for the tag of each key so far; two may share one
	for {
		c := p.space()
		if p.pos >= len(p.src) {
			return p.atEnd(self)
		}
		if c == '}' {
			p.trailing(comma)
			break
		}
		if c == ',' {
			p.fail(p.pos, p.pos+1, "remove the comma", "a comma with nothing before it")
			p.pos++
			continue
		}
		start, text, plain, ok := p.pos, int32(0), false, true
		switch {
		case c == '"':
			text, plain, ok = p.str()
		case c == '\'' || isWordByte(c):
			text, ok = p.looseKey()
		default:
			ok = p.fail(p.pos, p.pos+1, "", "expected a key in double quotes, found %s", p.show())
		}
		if !ok {
			return false
		}
		key := p.t.spanOr(text, start+1, p.pos-1)
		tag := tagOf(key)
		bit := uint64(1) << (tag * 0x9E3779B1 >> 26) // the upper bits are well mixed
		if maybeSeen&bit != 0 || p.t.nodes[self].count > fewMembers {
			if first := p.t.members.find(p.t, self, key); first >= 0 {
				p.duplicate(Value{p.t, first}, diag.Place{Start: start, End: p.pos}, key)
			}
		}
		maybeSeen |= bit
		i, ok := p.push(self)
		if !ok {
			return false
		}
		n := &p.t.nodes[i]
		n.keyStart, n.keyEnd, n.key, n.keyTag = int32(start), int32(p.pos), text, tag
		if !plain {
			p.t.markOdd(i)
		}
		if p.at(':') {
			p.pos++
		} else if !p.colon(self, key) {
			return false
		}
		if !p.value(i, p.space(), depth) {
			return false
		}
		if p.at(',') {
			comma = p.pos
			p.pos++
		} else if comma, ok = p.separator(self, '}'); !ok {
			return false
		}
	}
	p.pos++
	p.t.nodes[self].end = int32(p.pos)
	return true
}

// at reports whether the next byte is c.
func (p *jsonParser) at(c byte) bool { return p.pos < len(p.src) && p.src[p.pos] == c }

// colon reads what stands between a key and its value.
func (p *jsonParser) colon(object int32, key string) bool {
	switch p.space() {
	case ':':
	case '=':
		p.fail(p.pos, p.pos+1, `write ":"`, "a key and its value are separated by a colon")
	default:
		if p.pos >= len(p.src) {
			return p.atEnd(object)
		}
		return p.fail(p.pos, p.pos+1, "", "expected a colon after the key %s, found %s", diag.Quote(key), p.show())
	}
	p.pos++
	return true
}

func (p *jsonParser) array(self int32, depth int) bool {
	p.pos++
	comma := -1
	for {
		c := p.space()
		if p.pos >= len(p.src) {
			return p.atEnd(self)
		}
		if c == ']' {
			p.trailing(comma)
			break
		}
		if c == ',' {
			p.fail(p.pos, p.pos+1, "remove the comma", "a comma with nothing before it")
			p.pos++
			continue
		}
		i, ok := p.push(self)
		if !ok || !p.value(i, c, depth) {
			return false
		}
		if p.at(',') {
			comma = p.pos
			p.pos++
		} else if comma, ok = p.separator(self, ']'); !ok {
			return false
		}
	}
	p.pos++
	p.t.nodes[self].end = int32(p.pos)
	return true
}

// separator reads the comma after a member or item. Where it was forgotten and
// another one clearly follows, it says so and goes on.
func (p *jsonParser) separator(self int32, closing byte) (comma int, ok bool) {
	end := p.pos
	c := p.space()
	if p.pos >= len(p.src) {
		return -1, p.atEnd(self)
	}
	switch {
	case c == ',':
		p.pos++
		return p.pos - 1, true
	case c == closing:
		return -1, true
	case c == '"' || closing == ']' && (c == '{' || c == '['):
		return -1, !p.fail(end, end+1, "add a comma here", "a comma is missing here")
	default:
		return -1, p.fail(p.pos, p.pos+1, "", "expected a comma or %c, found %s", closing, p.show())
	}
}

func (p *jsonParser) trailing(comma int) {
	if comma >= 0 {
		p.r.Report(diag.TrailingComma, diag.Place{Start: comma, End: comma + 1}, "", "the comma after the last entry is not allowed in JSON")
	}
}

func (p *jsonParser) duplicate(first Value, at diag.Place, key string) {
	at.Pointer = first.Pointer()
	line, _ := p.t.Source.Position(int(first.node().keyStart))
	p.r.Report(diag.DuplicateKey, at, "", "the key %s is already there on line %d", diag.Quote(key), line)
}

// looseKey reads a key that is unquoted or in single quotes, after saying so.
func (p *jsonParser) looseKey() (key int32, ok bool) {
	start := p.pos
	if p.src[p.pos] == '\'' {
		return p.singleQuoted()
	}
	for p.pos < len(p.src) && isWordByte(p.src[p.pos]) {
		p.pos++
	}
	word := p.src[start:p.pos]
	p.fail(start, p.pos, "write "+diag.Quote(word), "keys stand in double quotes")
	return p.t.keep(word), true
}

func (p *jsonParser) singleQuoted() (text int32, ok bool) {
	start := p.pos
	end := strings.IndexAny(p.src[p.pos+1:], "'\n")
	if end < 0 || p.src[p.pos+1+end] == '\n' {
		return 0, p.fail(start, start+1, "", "strings stand in double quotes")
	}
	p.pos += end + 2
	p.fail(start, p.pos, "use double quotes", "strings stand in double quotes, not single ones")
	return p.t.keep(p.src[start+1 : p.pos-1]), true
}

// Words that other languages use for JSON's three.
var foreignWords = map[string]string{
	"True": "true", "False": "false", "None": "null", "nil": "null", "undefined": "null",
	"TRUE": "true", "FALSE": "false", "NULL": "null",
}

// word reads true, false or null, and names what was meant by other words.
func (p *jsonParser) word(i int32) bool {
	n := &p.t.nodes[i]
	start := p.pos
	switch c := p.src[p.pos]; c {
	case '\'':
		text, ok := p.singleQuoted()
		if ok {
			n.kind, n.text, n.end = String, text, int32(p.pos)
			p.t.markOdd(i)
		}
		return ok
	case '+', '.':
		p.pos++
		text := p.number()
		if p.pos == start+1 {
			return p.fail(start, start+1, "", "expected a value, found %s", diag.Quote(string(c)))
		}
		p.fail(start, p.pos, "", "%s is not a JSON number", diag.Quote(p.src[start:p.pos]))
		n.kind, n.text, n.end = Number, text, int32(p.pos)
		return true
	}
	for p.pos < len(p.src) && isWordByte(p.src[p.pos]) {
		p.pos++
	}
	word := p.src[start:p.pos]
	n.end = int32(p.pos)
	switch word {
	case "true", "false":
		n.kind = Bool
	case "null":
		n.kind = Null
	case "":
		return p.fail(start, min(start+1, len(p.src)), "", "expected a value, found %s", p.show())
	default:
		hint := "put text into double quotes"
		if known := foreignWords[word]; known != "" {
			hint = "write " + known
		} else if word == "NaN" || word == "Infinity" {
			hint = "JSON numbers are finite"
		}
		p.fail(start, p.pos, hint, "%s is not a JSON value", diag.Quote(word))
		n.kind = Null
	}
	return true
}

func isWordByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '$' || c == '-'
}

func (p *jsonParser) show() string {
	r, size := utf8.DecodeRuneInString(p.src[p.pos:])
	if size == 0 {
		return "the end of the file"
	}
	return diag.Quote(string(r))
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// eight is eight bytes of s from i, as one word.
func eight(s string, i int) uint64 {
	s = s[i : i+8]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// notPlain marks, by its high bit, the first of eight bytes that does not stand
// for itself in a string or is not printable ASCII. Bytes behind that one may
// be marked wrongly.
func notPlain(x uint64) uint64 {
	quote, slash := x^('"'*ones), x^('\\'*ones)
	odd := x | (x + ones) // 0x7F and above
	odd |= (x - 0x20*ones) &^ x
	odd |= (quote - ones) &^ quote
	odd |= (slash - ones) &^ slash
	return odd & highs
}

// str reads a string, from its opening quote. Its text is 0 if the text is
// what stands between the quotes. A string that is not said to be plain may
// still be.
func (p *jsonParser) str() (text int32, plain, ok bool) {
	src, i := p.src, p.pos+1
	for ; i+8 <= len(src); i += 8 {
		if marks := notPlain(eight(src, i)); marks != 0 {
			i += bits.TrailingZeros64(marks) / 8
			if src[i] == '"' {
				p.pos = i + 1
				return 0, true, true
			}
			break
		}
	}
	text, ok = p.oddStr(i)
	return text, false, ok
}

// oddStr reads a string that is plain up to i.
func (p *jsonParser) oddStr(i int) (text int32, ok bool) {
	start := p.pos
	src := p.src
	for i < len(src) && src[i] >= 0x20 && src[i] != '"' && src[i] != '\\' {
		i++
	}
	if i < len(src) && src[i] == '"' {
		p.pos = i + 1
		return 0, true
	}
	b := append(p.text[:0], src[start+1:i]...)
	for {
		if i >= len(src) || src[i] == '\n' || src[i] == '\r' {
			p.pos = min(i, len(src))
			return p.t.keepBytes(b), p.fail(start, i, `close it with " (a line break inside a string is written \n)`, "the string is not closed on this line")
		}
		switch c := src[i]; {
		case c == '"':
			p.pos, p.text = i+1, b
			return p.t.keepBytes(b), true
		case c == '\\':
			b, i = p.escape(b, i)
		case c < 0x20:
			p.fail(i, i+1, "write it as an escape, such as \\t", "a control character stands unescaped in a string")
			b = append(b, c)
			i++
		default:
			b = append(b, c)
			i++
		}
	}
}

// escape reads the escape at i and returns what follows it.
func (p *jsonParser) escape(b []byte, i int) ([]byte, int) {
	if i+1 >= len(p.src) {
		return b, i + 1
	}
	switch c := p.src[i+1]; c {
	case '"', '\\', '/':
		return append(b, c), i + 2
	case 'b':
		return append(b, '\b'), i + 2
	case 'f':
		return append(b, '\f'), i + 2
	case 'n':
		return append(b, '\n'), i + 2
	case 'r':
		return append(b, '\r'), i + 2
	case 't':
		return append(b, '\t'), i + 2
	case 'u':
		return p.unicodeEscape(b, i)
	case '\n', '\r':
		return b, i + 1 // the caller reports the open string
	default:
		_, size := utf8.DecodeRuneInString(p.src[i+1:])
		p.fail(i, i+1+size, `write \\ for a backslash`, "%s is not an escape that JSON knows", diag.Quote(p.src[i:i+1+size]))
		return append(b, p.src[i+1:i+1+size]...), i + 1 + size
	}
}

func (p *jsonParser) unicodeEscape(b []byte, i int) ([]byte, int) {
	r := hex4(p.src, i+2)
	if r < 0 {
		p.fail(i, min(i+6, len(p.src)), "", `\u is followed by four hex digits`)
		return b, i + 2
	}
	if !utf16.IsSurrogate(r) {
		return utf8.AppendRune(b, r), i + 6
	}
	if strings.HasPrefix(p.src[i+6:], `\u`) {
		if pair := utf16.DecodeRune(r, hex4(p.src, i+8)); pair != utf8.RuneError {
			return utf8.AppendRune(b, pair), i + 12
		}
	}
	p.r.Report(diag.LoneSurrogate, diag.Place{Start: i, End: i + 6}, "", "%s is half of a surrogate pair", diag.Quote(p.src[i:i+6]))
	return utf8.AppendRune(b, utf8.RuneError), i + 6
}

// hex4 reads four hex digits; -1 if there are none.
func hex4(s string, i int) (r rune) {
	if i+4 > len(s) {
		return -1
	}
	for _, c := range []byte(s[i : i+4]) {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return -1
		}
	}
	return r
}

// number reads a number and reports it if it is not one of JSON's, or not exact.
func (p *jsonParser) number() (text int32) {
	start := p.pos
	i := start
	for i < len(p.src) && '0' <= p.src[i] && p.src[i] <= '9' {
		i++
	}
	short := i-start <= 15 && (i-start == 1 || i > start && p.src[start] != '0')
	if short && i < len(p.src) && !isNumberByte(p.src[i]) {
		p.pos = i
		return 0 // digits, and few: most numbers are no more
	}
	for i < len(p.src) && isNumberByte(p.src[i]) {
		i++
	}
	p.pos = i
	lexeme := p.src[start:i]
	at := diag.Place{Start: start, End: i}
	if !isJSONNumber(lexeme) {
		p.r.Report(diag.BadJSON, at, "", "%s is not a JSON number", diag.Quote(lexeme))
		return p.t.keep("0")
	}
	reportInexact(p.r, at, lexeme)
	return 0
}

func isNumberByte(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '.' || c == '-' || c == '+' || c == '_'
}

// isJSONNumber reports whether s is a number by RFC 8259.
func isJSONNumber(s string) bool {
	s = strings.TrimPrefix(s, "-")
	digits := func() int {
		n := 0
		for n < len(s) && '0' <= s[n] && s[n] <= '9' {
			n++
		}
		return n
	}
	n := digits()
	if n == 0 || n > 1 && s[0] == '0' {
		return false
	}
	s = s[n:]
	if strings.HasPrefix(s, ".") {
		s = s[1:]
		if n = digits(); n == 0 {
			return false
		}
		s = s[n:]
	}
	if s != "" && (s[0] == 'e' || s[0] == 'E') {
		s = s[1:]
		if s != "" && (s[0] == '+' || s[0] == '-') {
			s = s[1:]
		}
		if n = digits(); n == 0 {
			return false
		}
		s = s[n:]
	}
	return s == ""
}

const maxExact = 1 << 53

// changes reports whether a double says something else than the digits that
// were written: 1.0000000000000001, 1e-400.
func changes(lexeme string, f float64) bool {
	shortest := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa := func(s string) string {
		s, _, _ = strings.Cut(strings.ToLower(strings.TrimPrefix(s, "-")), "e")
		return strings.Trim(strings.Replace(s, ".", "", 1), "0")
	}
	return mantissa(lexeme) != mantissa(shortest)
}

// reportInexact reports a number that a double cannot hold exactly enough to
// print it again.
func reportInexact(r *diag.Reporter, at diag.Place, lexeme string) {
	if len(lexeme) <= 15 && !strings.ContainsAny(lexeme, "eE") {
		return
	}
	if n, err := strconv.ParseInt(lexeme, 10, 64); err == nil && n <= maxExact && n >= -maxExact {
		return
	}
	f, err := strconv.ParseFloat(lexeme, 64)
	digits := 0
	for i := range len(lexeme) {
		if c := lexeme[i]; c == 'e' || c == 'E' {
			break
		} else if '0' <= c && c <= '9' {
			digits++
		}
	}
	if err != nil || f >= maxExact || f <= -maxExact || digits > 17 || changes(lexeme, f) {
		r.Report(diag.InexactNumber, at, "", "%s cannot be held exactly by every JSON reader", diag.Quote(lexeme))
	}
}
