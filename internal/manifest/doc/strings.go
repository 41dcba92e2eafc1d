package doc

import (
	"math/bits"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// This file parses JSON strings. Most are plain: printable ASCII without escapes.
// Plain bytes are checked eight at a time with word arithmetic, because most of a
// manifest is strings. At the first other byte the parser continues byte by byte.

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// eight returns eight bytes of s from i as one word.
func eight(s string, i int) uint64 {
	s = s[i : i+8]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// notPlain marks, by its high bit, the first of eight bytes that is an escape, a quote
// or not printable ASCII. Later bytes may be marked wrongly.
func notPlain(x uint64) uint64 {
	quote, slash := x^('"'*ones), x^('\\'*ones)
	odd := x | (x + ones) // 0x7F and above
	odd |= (x - 0x20*ones) &^ x
	odd |= (quote - ones) &^ quote
	odd |= (slash - ones) &^ slash
	return odd & highs
}

// str parses a string from its opening quote. text is 0 if the content is exactly the
// source between the quotes. plain may be false for a plain string.
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

// oddStr parses a string that is plain up to i.
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
			p.fail(i, i+1, "write it as an escape, such as \\t", "a string contains an unescaped control character")
			b = append(b, c)
			i++
		default:
			b = append(b, c)
			i++
		}
	}
}

// escape decodes the escape at i and returns the offset after it.
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
		p.fail(i, i+1+size, `write \\ for a backslash`, "%s is not a JSON escape", diag.Quote(p.src[i:i+1+size]))
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

// hex4 parses four hex digits; -1 if there are none.
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
