package mcpwire

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth is how deep objects and arrays may lie in each other.
const maxDepth = 1000

// scanner walks JSON without building anything: it checks the grammar of
// RFC 8259 and tells where values end. Its methods take an offset and return
// the offset after what they read, or -1 once problem says what is wrong.
type scanner struct {
	data    []byte
	problem string
	at      int  // where the problem is
	badUTF8 bool // a string holds bytes that are not UTF-8; the scan goes on
}

func (s *scanner) fail(i int, problem string) int {
	if s.problem == "" {
		s.problem, s.at = problem, i
	}
	return -1
}

// space skips white space.
func (s *scanner) space(i int) int {
	for i < len(s.data) {
		switch s.data[i] {
		case ' ', '\t', '\n', '\r':
			i++
		default:
			return i
		}
	}
	return i
}

// byteAt is the byte at i, or 0 at the end: no JSON has a bare NUL.
func (s *scanner) byteAt(i int) byte {
	if i < len(s.data) {
		return s.data[i]
	}
	return 0
}

func (s *scanner) value(i, depth int) int {
	switch c := s.byteAt(i); c {
	case '"':
		return s.str(i)
	case '{':
		return s.object(i, depth)
	case '[':
		return s.array(i, depth)
	case 't':
		return s.literal(i, "true")
	case 'f':
		return s.literal(i, "false")
	case 'n':
		return s.literal(i, "null")
	default:
		if c == '-' || isDigit(c) {
			return s.number(i)
		}
		if i >= len(s.data) {
			return s.fail(i, "ends in the middle of a value")
		}
		return s.fail(i, "invalid JSON")
	}
}

func (s *scanner) object(i, depth int) int {
	if depth >= maxDepth {
		return s.fail(i, "nested too deeply")
	}
	i = s.space(i + 1)
	if s.byteAt(i) == '}' {
		return i + 1
	}
	for {
		if i = s.key(i); i < 0 {
			return -1
		}
		if i = s.value(i, depth+1); i < 0 {
			return -1
		}
		i = s.space(i)
		switch s.byteAt(i) {
		case ',':
			i = s.space(i + 1)
		case '}':
			return i + 1
		default:
			return s.fail(i, "invalid JSON")
		}
	}
}

// key reads a member's name, the colon and the space around it.
func (s *scanner) key(i int) int {
	if s.byteAt(i) != '"' {
		return s.fail(i, "invalid JSON")
	}
	if i = s.str(i); i < 0 {
		return -1
	}
	i = s.space(i)
	if s.byteAt(i) != ':' {
		return s.fail(i, "invalid JSON")
	}
	return s.space(i + 1)
}

func (s *scanner) array(i, depth int) int {
	if depth >= maxDepth {
		return s.fail(i, "nested too deeply")
	}
	i = s.space(i + 1)
	if s.byteAt(i) == ']' {
		return i + 1
	}
	for {
		if i = s.value(i, depth+1); i < 0 {
			return -1
		}
		i = s.space(i)
		switch s.byteAt(i) {
		case ',':
			i = s.space(i + 1)
		case ']':
			return i + 1
		default:
			return s.fail(i, "invalid JSON")
		}
	}
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// stops marks the bytes of w at which a string cannot simply go on: quotes,
// backslashes and control characters. The lowest mark is exact.
func stops(w uint64) uint64 {
	quote := w ^ ones*'"'
	slash := w ^ ones*'\\'
	return ((w-ones*0x20)&^w | (quote-ones)&^quote | (slash-ones)&^slash) & highs
}

func (s *scanner) str(i int) int {
	d := s.data
	i++
	start, seen := i, uint64(0)
	for i < len(d) {
		if i+8 <= len(d) {
			w := binary.LittleEndian.Uint64(d[i:])
			seen |= w
			m := stops(w)
			if m == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(m) / 8
		}
		switch c := d[i]; {
		case c == '"':
			if seen&highs != 0 && !utf8.Valid(d[start:i]) {
				s.badUTF8 = true
			}
			return i + 1
		case c == '\\':
			if i = s.escape(i); i < 0 {
				return -1
			}
		case c < 0x20:
			return s.fail(i, "control character in a string")
		default:
			seen |= uint64(c)
			i++
		}
	}
	return s.fail(i, "ends in the middle of a string")
}

func (s *scanner) escape(i int) int {
	switch s.byteAt(i + 1) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		for k := i + 2; k < i+6; k++ {
			if !isHex(s.byteAt(k)) {
				return s.fail(i, "invalid escape in a string")
			}
		}
		return i + 6
	default:
		return s.fail(i, "invalid escape in a string")
	}
}

func (s *scanner) number(i int) int {
	start := i
	if s.byteAt(i) == '-' {
		i++
	}
	if s.byteAt(i) == '0' {
		i++
	} else if i = s.digits(i); i < 0 {
		return s.fail(start, "invalid number")
	}
	if s.byteAt(i) == '.' {
		if i = s.digits(i + 1); i < 0 {
			return s.fail(start, "invalid number")
		}
	}
	if c := s.byteAt(i); c == 'e' || c == 'E' {
		i++
		if c := s.byteAt(i); c == '+' || c == '-' {
			i++
		}
		if i = s.digits(i); i < 0 {
			return s.fail(start, "invalid number")
		}
	}
	return i
}

// digits reads one digit or more.
func (s *scanner) digits(i int) int {
	if !isDigit(s.byteAt(i)) {
		return -1
	}
	for isDigit(s.byteAt(i)) {
		i++
	}
	return i
}

func (s *scanner) literal(i int, word string) int {
	if len(s.data)-i < len(word) || string(s.data[i:i+len(word)]) != word {
		return s.fail(i, "invalid JSON")
	}
	return i + len(word)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

// walker steps through the members of an object, or the elements of an array.
// It checks as it goes: after the last step, problem is empty exactly when
// everything stepped over was JSON and end is where the value ends.
type walker struct {
	scanner
	skims bool // the values were checked before, and are only stepped over
	from  int  // where the last value stood
	next  int
	end   int
	open  bool
}

// walk begins to step through the object or array at the start of data.
func walk(data []byte) walker {
	w := walker{scanner: scanner{data: data}}
	i := w.space(0)
	if c := w.byteAt(i); c != '{' && c != '[' {
		w.fail(i, "neither an object nor an array")
		return w
	}
	w.next, w.open = w.space(i+1), true
	if c := w.byteAt(w.next); c == data[i]+2 { // the closing bracket, in ASCII
		w.end, w.open = w.next+1, false
	}
	return w
}

// member gives the next member of an object: its name as written, with the
// quotes, and its value.
func (w *walker) member() (name, value []byte, ok bool) {
	if !w.open {
		return nil, nil, false
	}
	start := w.next
	i := w.key(start)
	if i < 0 {
		w.open = false
		return nil, nil, false
	}
	name = w.data[start:i]
	name = name[:bytes.LastIndexByte(name, '"')+1]
	value, ok = w.step(i, '}')
	return name, value, ok
}

// element gives the next element of an array.
func (w *walker) element() (value []byte, ok bool) {
	if !w.open {
		return nil, false
	}
	return w.step(w.next, ']')
}

func (w *walker) step(i int, closing byte) ([]byte, bool) {
	w.from = i
	end := 0
	if w.skims {
		end = skim(w.data, i)
	} else {
		end = w.value(i, 1)
	}
	if end < 0 {
		w.open = false
		return nil, false
	}
	next := w.space(end)
	switch w.byteAt(next) {
	case ',':
		w.next = w.space(next + 1)
	case closing:
		w.end, w.open = next+1, false
	default:
		w.open = false
		w.fail(next, "invalid JSON")
		return nil, false
	}
	return w.data[i:end:end], true
}

// skim is where the value at i ends, in JSON that was checked. It looks at little
// of what is in strings, and so costs a fraction of a check.
func skim(data []byte, i int) int {
	for depth := 0; i < len(data); {
		switch data[i] {
		case '"':
			if i = closing(data, i+1); depth == 0 {
				return i
			}
		case '{', '[':
			depth++
			i++
		case '}', ']':
			if depth == 0 {
				return i // of what the value is in
			}
			if i++; depth == 1 {
				return i
			}
			depth--
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
			i++
		default:
			i++
		}
	}
	return len(data)
}

// closing is the offset after the string whose text begins at from.
func closing(data []byte, from int) int {
	for i := from; ; {
		n := bytes.IndexByte(data[i:], '"')
		if n < 0 {
			return len(data)
		}
		i += n
		slashes := 0
		for i-slashes > from && data[i-slashes-1] == '\\' {
			slashes++
		}
		if i++; slashes%2 == 0 {
			return i
		}
	}
}

// valid reports whether data is one JSON value with nothing after it.
func valid(data []byte) bool {
	s := scanner{data: data}
	end := s.value(s.space(0), 0)
	return end >= 0 && s.space(end) == len(data) && !s.badUTF8
}

// named reports whether a name, as written, is the given one.
func named(name []byte, want string) bool {
	if len(name) == len(want)+2 && string(name[1:len(name)-1]) == want {
		return true
	}
	if bytes.IndexByte(name, '\\') < 0 {
		return false
	}
	got, err := jsontext.AppendUnquote(nil, name)
	return err == nil && string(got) == want
}

// text is the value of a JSON string; ok is false for anything else, and for a
// string that is not Unicode text.
func text(raw []byte) (value string, ok bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	b, err := jsontext.AppendUnquote(nil, raw)
	return string(b), err == nil
}

// lookup follows names into nested objects. It is for JSON that was checked.
func lookup(raw []byte, path ...string) []byte {
	for _, name := range path {
		start, end := find(raw, name)
		if start == end {
			return nil
		}
		raw = raw[start:end:end]
	}
	return raw
}

// find tells where the value of an object's member stands; start and end are
// the same if there is none.
func find(raw []byte, name string) (start, end int) {
	if len(raw) == 0 || raw[0] != '{' {
		return 0, 0
	}
	w := walk(raw)
	for k, v, ok := w.member(); ok; k, v, ok = w.member() {
		if named(k, name) {
			return w.from, w.from + len(v)
		}
	}
	return 0, 0
}

// few is how many names of an object are compared one by one.
const few = 16

// twice reports whether members of an object have the same name, of which one
// reader would take the first and another the last. There are readers that do
// not mind case, so it makes no difference here. It is for JSON that was checked.
func twice(object []byte) bool {
	var held [few][]byte
	names := held[:0]
	var many map[string]bool // by their folded names, once there are more
	w := walk(object)
	w.skims = true
	for name, _, ok := w.member(); ok; name, _, ok = w.member() {
		name = unquoted(name)
		if many == nil && len(names) < few {
			for _, n := range names {
				if bytes.EqualFold(n, name) {
					return true
				}
			}
			names = append(names, name)
			continue
		}
		if many == nil {
			many = map[string]bool{}
			for _, n := range names {
				many[folded(n)] = true
			}
		}
		if many[folded(name)] {
			return true
		}
		many[folded(name)] = true
	}
	return false
}

// unquoted is a name that was checked, as text.
func unquoted(name []byte) []byte {
	if bytes.IndexByte(name, '\\') < 0 {
		return name[1 : len(name)-1]
	}
	// What is no Unicode in it is replaced, as most readers do.
	text, _ := jsontext.AppendUnquote(nil, name)
	return text
}

func folded(name []byte) string { return strings.ToLower(strings.ToUpper(string(name))) }
