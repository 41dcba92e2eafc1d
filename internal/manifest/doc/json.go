package doc

import (
	"math/bits"
	"strings"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// ParseJSON parses a JSON document, which must be valid UTF-8. The second result is false if an error stopped the
// parser. The tree then contains only the values before the error.
func ParseJSON(src *diag.Source, r *diag.Reporter) (t *Tree, ok bool) {
	p := &jsonParser{src: src.Text, r: r, t: newTree(src)}
	c := p.skipSpace()
	ok = p.value(p.t.push(none), c, 0)
	if ok {
		p.skipSpace()
		if p.pos < len(p.src) {
			p.fail(p.pos, len(p.src), "a manifest is one JSON value; remove the text after it",
				"there is text after the end of the JSON document")
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
	// text is the buffer for decoding strings with escapes.
	text []byte
}

// fail reports a syntax error in the given span. It always returns false.
func (p *jsonParser) fail(start, end int, hint, format string, args ...any) bool {
	p.r.Report(diag.BadJSON, diag.Place{Start: start, End: end}, hint, format, args...)
	return false
}

// skipSpace skips white space and comments, and reports each comment. It returns the next byte, or 0 at the end of the
// file. Because the next byte can also be 0, callers compare p.pos with the length to detect the end.
func (p *jsonParser) skipSpace() byte {
	for {
		src, i := p.src, p.pos
		for i < len(src) && (src[i] == ' ' || src[i] == '\n' || src[i] == '\t' || src[i] == '\r') {
			i++
			for i+8 <= len(src) { // skip indentation, eight spaces at a time
				if other := loadWord(src, i) ^ ' '*ones; other != 0 {
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

// newNode creates the node of the next value. The second result is false if the document has too many values. Callers
// fill in the node in place, because copying a new node would stall the CPU.
func (p *jsonParser) newNode(parent int32) (i int32, ok bool) {
	if len(p.t.nodes) >= maxValues {
		p.r.Report(diag.TooManyValues, diag.Place{Start: p.pos, End: p.pos + 1}, "", "the file contains more than %d values",
			maxValues)
		return none, false
	}
	return p.t.push(parent), true
}

// value parses the value that starts with the byte c, and stores the value in node i.
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
		return p.parseWord(i)
	}
}

func (p *jsonParser) atEnd(open int32) bool {
	if open < 0 {
		return p.fail(p.pos, p.pos, "", "the file ends before its first value")
	}
	n := &p.t.nodes[open]
	line, _ := p.t.Source.Position(int(n.start))
	what := "object"
	closing := "}"
	if n.kind == Array {
		what, closing = "list", "]"
	}
	return p.fail(p.pos, p.pos, "add the missing "+closing, "the file ends inside the %s that starts on line %d", what,
		line)
}

func (p *jsonParser) object(self int32, depth int) bool {
	p.pos++
	comma := -1          // the offset of the comma before the next member
	var maybeSeen uint64 // one hash bit for each earlier key; if the bit of a key is not set, the key is new
	for {
		c := p.skipSpace()
		if p.pos >= len(p.src) {
			return p.atEnd(self)
		}
		if c == '}' {
			p.trailing(comma)
			break
		}
		if c == ',' {
			p.fail(p.pos, p.pos+1, "remove the comma", "there is no entry before this comma")
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
		bit := uint64(1) << (tag * 0x9E3779B1 >> 26) // use the upper bits of the product, because they are well mixed
		if maybeSeen&bit != 0 || p.t.nodes[self].count > fewMembers {
			if first := p.t.members.find(p.t, self, key); first >= 0 {
				p.duplicate(Value{p.t, first}, diag.Place{Start: start, End: p.pos}, key)
			}
		}
		maybeSeen |= bit
		i, ok := p.newNode(self)
		if !ok {
			return false
		}
		n := &p.t.nodes[i]
		n.keyStart, n.keyEnd, n.key, n.keyTag = int32(start), int32(p.pos), text, tag
		if !plain {
			p.t.markOdd(i)
		}
		if p.nextIs(':') {
			p.pos++
		} else if !p.parseColon(self, key) {
			return false
		}
		if !p.value(i, p.skipSpace(), depth) {
			return false
		}
		if p.nextIs(',') {
			comma = p.pos
			p.pos++
		} else if comma, ok = p.parseComma(self, '}'); !ok {
			return false
		}
	}
	p.pos++
	p.t.nodes[self].end = int32(p.pos)
	return true
}

// nextIs reports whether the next byte is c.
func (p *jsonParser) nextIs(c byte) bool { return p.pos < len(p.src) && p.src[p.pos] == c }

// parseColon parses the colon between a key and its value. It reports any other character.
func (p *jsonParser) parseColon(object int32, key string) bool {
	switch p.skipSpace() {
	case ':':
	case '=':
		p.fail(p.pos, p.pos+1, `write ":"`, "a key and its value must be separated by a colon")
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
		c := p.skipSpace()
		if p.pos >= len(p.src) {
			return p.atEnd(self)
		}
		if c == ']' {
			p.trailing(comma)
			break
		}
		if c == ',' {
			p.fail(p.pos, p.pos+1, "remove the comma", "there is no entry before this comma")
			p.pos++
			continue
		}
		i, ok := p.newNode(self)
		if !ok || !p.value(i, c, depth) {
			return false
		}
		if p.nextIs(',') {
			comma = p.pos
			p.pos++
		} else if comma, ok = p.parseComma(self, ']'); !ok {
			return false
		}
	}
	p.pos++
	p.t.nodes[self].end = int32(p.pos)
	return true
}

// parseComma parses the comma after a member or item. The first result is the offset of the comma, or -1 if there is
// none. If the comma is missing but another member or item clearly follows, parseComma reports the missing comma and
// parsing continues.
func (p *jsonParser) parseComma(self int32, closing byte) (comma int, ok bool) {
	end := p.pos
	c := p.skipSpace()
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
		p.r.Report(diag.TrailingComma, diag.Place{Start: comma, End: comma + 1}, "",
			"the comma after the last entry is not allowed in JSON")
	}
}

func (p *jsonParser) duplicate(first Value, at diag.Place, key string) {
	at.Pointer = first.Pointer()
	line, _ := p.t.Source.Position(int(first.node().keyStart))
	p.r.Report(diag.DuplicateKey, at, "", "the key %s already appears on line %d", diag.Quote(key), line)
}

// looseKey parses a key in single quotes or without quotes, and reports that double quotes are required.
func (p *jsonParser) looseKey() (key int32, ok bool) {
	start := p.pos
	if p.src[p.pos] == '\'' {
		return p.singleQuoted()
	}
	for p.pos < len(p.src) && isWordByte(p.src[p.pos]) {
		p.pos++
	}
	word := p.src[start:p.pos]
	p.fail(start, p.pos, "write "+diag.Quote(word), "put keys in double quotes")
	return p.t.addDecoded(word), true
}

func (p *jsonParser) singleQuoted() (text int32, ok bool) {
	start := p.pos
	end := strings.IndexAny(p.src[p.pos+1:], "'\n")
	if end < 0 || p.src[p.pos+1+end] == '\n' {
		return 0, p.fail(start, start+1, "", "put strings in double quotes")
	}
	p.pos += end + 2
	p.fail(start, p.pos, "use double quotes", "put strings in double quotes, not single quotes")
	return p.t.addDecoded(p.src[start+1 : p.pos-1]), true
}

// foreignWords contains spellings of true, false and null that are common outside JSON. Each value is the JSON word.
var foreignWords = map[string]string{
	"True": "true", "False": "false", "None": "null", "nil": "null", "undefined": "null",
	"TRUE": "true", "FALSE": "false", "NULL": "null",
}

// parseWord parses true, false or null. Any other word is reported with a suggested correction.
func (p *jsonParser) parseWord(i int32) bool {
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
		hint := "put text in double quotes"
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
