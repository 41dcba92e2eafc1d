package rawjson

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// MaxDepth is the maximum nesting depth of objects and arrays.
const MaxDepth = 1000

const tooDeep = "nested too deeply"

// scanner checks JSON against the grammar of RFC 8259. Each method takes the offset of a value and returns the offset
// after it. At a syntax error, the methods set problem and return -1.
type scanner struct {
	data    []byte
	problem string
	badUTF8 bool // a string contains invalid UTF-8; scanning continues
}

func (s *scanner) fail(problem string) int {
	if s.problem == "" {
		s.problem = problem
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

// byteAt returns the byte at offset i, or 0 at the end of the data. Valid JSON contains no NUL byte.
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
			return s.fail("ends inside a value")
		}
		return s.fail("invalid JSON")
	}
}

func (s *scanner) object(i, depth int) int {
	if depth >= MaxDepth {
		return s.fail(tooDeep)
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
			return s.fail("invalid JSON")
		}
	}
}

// key reads the name of a member, the colon, and the white space after each of them.
func (s *scanner) key(i int) int {
	if s.byteAt(i) != '"' {
		return s.fail("invalid JSON")
	}
	if i = s.str(i); i < 0 {
		return -1
	}
	i = s.space(i)
	if s.byteAt(i) != ':' {
		return s.fail("invalid JSON")
	}
	return s.space(i + 1)
}

func (s *scanner) array(i, depth int) int {
	if depth >= MaxDepth {
		return s.fail(tooDeep)
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
			return s.fail("invalid JSON")
		}
	}
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// stopMask returns a mask with the high bit set for each quote, backslash and control character among the eight bytes
// of w. Only the lowest set bit is reliable, because a subtraction can borrow from the next byte.
func stopMask(w uint64) uint64 {
	quote := w ^ ones*'"'
	slash := w ^ ones*'\\'
	return ((w-ones*0x20)&^w | (quote-ones)&^quote | (slash-ones)&^slash) & highs
}

func (s *scanner) str(i int) int {
	d := s.data
	i++
	start, seen := i, uint64(0)
	for i < len(d) {
		for i+16 <= len(d) { // it is faster to check two machine words at once
			v, w := binary.LittleEndian.Uint64(d[i:]), binary.LittleEndian.Uint64(d[i+8:])
			if stopMask(v)|stopMask(w) != 0 {
				break
			}
			seen |= v | w
			i += 16
		}
		if i == len(d) {
			break
		}
		if i+8 <= len(d) {
			w := binary.LittleEndian.Uint64(d[i:])
			seen |= w
			m := stopMask(w)
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
			return s.fail("control character in a string")
		default:
			seen |= uint64(c)
			i++
		}
	}
	return s.fail("ends inside a string")
}

func (s *scanner) escape(i int) int {
	switch s.byteAt(i + 1) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		for k := i + 2; k < i+6; k++ {
			if !isHex(s.byteAt(k)) {
				return s.fail("invalid escape in a string")
			}
		}
		return i + 6
	default:
		return s.fail("invalid escape in a string")
	}
}

func (s *scanner) number(i int) int {
	if s.byteAt(i) == '-' {
		i++
	}
	if s.byteAt(i) == '0' {
		i++
	} else if i = s.digits(i); i < 0 {
		return s.fail("invalid number")
	}
	if s.byteAt(i) == '.' {
		if i = s.digits(i + 1); i < 0 {
			return s.fail("invalid number")
		}
	}
	if c := s.byteAt(i); c == 'e' || c == 'E' {
		i++
		if c := s.byteAt(i); c == '+' || c == '-' {
			i++
		}
		if i = s.digits(i); i < 0 {
			return s.fail("invalid number")
		}
	}
	return i
}

// digits reads one or more digits.
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
		return s.fail("invalid JSON")
	}
	return i + len(word)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }
