package doc

import (
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// This file parses JSON strings. Most bytes of a manifest belong to strings, and most strings are plain, which means
// that they are printable ASCII without escapes. The parser therefore checks eight bytes at a time with word
// arithmetic. From the first byte that is not plain, the parser continues byte by byte.

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// loadWord returns the eight bytes s[i:i+8] as one little-endian word.
func loadWord(s string, i int) uint64 {
	s = s[i : i+8]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// markNotPlain searches eight bytes for the first backslash, quote or byte that is not printable ASCII. In the result,
// the lowest set bit is the high bit of this byte. The bits of later bytes are unreliable. If there is no such byte,
// the result is 0.
func markNotPlain(x uint64) uint64 {
	quote, slash := x^('"'*ones), x^('\\'*ones)
	odd := x | (x + ones) // 0x7F and above
	odd |= (x - 0x20*ones) &^ x
	odd |= (quote - ones) &^ quote
	odd |= (slash - ones) &^ slash
	return odd & highs
}

// str parses a string, starting at its opening quote. The first result is 0 if the content is identical to the source
// between the quotes. If the second result is true, the string is plain. If it is false, the string can still be plain.
func (p *jsonParser) str() (text int32, plain, ok bool) {
	src, i := p.src, p.pos+1
	for ; i+8 <= len(src); i += 8 {
		if marks := markNotPlain(loadWord(src, i)); marks != 0 {
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

// oddStr parses the rest of a string that is plain up to offset i.
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
			return p.t.addDecodedBytes(b), p.fail(start, i, `close the string with " (write a line break inside a string as \n)`,
				"the string is not closed on this line")
		}
		switch c := src[i]; {
		case c == '"':
			p.pos, p.text = i+1, b
			return p.t.addDecodedBytes(b), true
		case c == '\\':
			b, i = p.decodeEscape(b, i)
		case c < 0x20:
			p.fail(i, i+1, "write the character as an escape, such as \\t", "a string contains an unescaped control character")
			b = append(b, c)
			i++
		default:
			b = append(b, c)
			i++
		}
	}
}

// decodeEscape decodes the escape at offset i. The second result is the offset after the escape.
func (p *jsonParser) decodeEscape(b []byte, i int) ([]byte, int) {
	if i+1 >= len(p.src) {
		return b, i + 1
	}
	c := p.src[i+1]
	if short := strings.IndexByte(`"\/bfnrt`, c); short >= 0 {
		return append(b, "\"\\/\b\f\n\r\t"[short]), i + 2
	}
	switch c {
	case 'u':
		return p.unicodeEscape(b, i)
	case '\n', '\r':
		return b, i + 1 // the caller reports the unclosed string
	default:
		_, size := utf8.DecodeRuneInString(p.src[i+1:])
		p.fail(i, i+1+size, `write \\ for a backslash`, "%s is not a JSON escape", diag.Quote(p.src[i:i+1+size]))
		return append(b, p.src[i+1:i+1+size]...), i + 1 + size
	}
}

func (p *jsonParser) unicodeEscape(b []byte, i int) ([]byte, int) {
	r := hex4(p.src, i+2)
	if r < 0 {
		p.fail(i, min(i+6, len(p.src)), "", `\u must be followed by four hex digits`)
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
	p.r.Report(diag.LoneSurrogate, diag.Place{Start: i, End: i + 6}, "", "%s is half of a surrogate pair",
		diag.Quote(p.src[i:i+6]))
	return utf8.AppendRune(b, utf8.RuneError), i + 6
}

// hex4 parses the four hex digits at an offset. It returns -1 if there are fewer than four digits.
func hex4(s string, i int) rune {
	if i+4 > len(s) {
		return -1
	}
	r, err := strconv.ParseUint(s[i:i+4], 16, 16)
	if err != nil {
		return -1
	}
	return rune(r)
}
