// Package view shows a text as a reader sees it, and maps every byte back to the original text.
//
// A secret is still a secret if it contains a zero-width space or is written as \u0067hp_…. Scans therefore search a
// view, in which such tricks are undone. They map each finding back to the original text and redact it there.
package view

import (
	"bytes"
	"sort"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// View is a text that was derived from another text, which is called its source. The zero View is ready for use. A View
// can be reused.
type View struct {
	Text []byte
	cuts []cut
}

// cut marks the beginning of a part of the view. The part extends to the next cut. For each byte of the part, the
// source offset is the view offset plus shift. If isUnit is set, the part comes from one unit of the source, such as an
// escape.
type cut struct {
	at, shift int32
	isUnit    bool
}

func (v *View) reset(size int) {
	v.cuts = v.cuts[:0]
	if cap(v.Text) < size {
		v.Text = make([]byte, 0, size+size/8)
	}
	v.Text = v.Text[:0]
}

// startAt begins a part of the view that comes from offset i of the source.
func (v *View) startAt(i int) {
	v.cuts = append(v.cuts, cut{int32(len(v.Text)), int32(i - len(v.Text)), false})
}

// startUnit begins a part of the view that comes from a single unit at offset i of the source. The unit extends to the
// beginning of the next part.
func (v *View) startUnit(i int) {
	v.cuts = append(v.cuts, cut{int32(len(v.Text)), int32(i - len(v.Text)), true})
}

// Range maps Text[start:end] to offsets in the source. The result never splits a unit of the source.
func (v *View) Range(start, end int) (int, int) {
	// last finds the last cut at or before offset i, and returns its index. Any earlier cuts at the same offset are for
	// empty parts.
	last := func(i int) int {
		return sort.Search(len(v.cuts), func(j int) bool { return int(v.cuts[j].at) > i }) - 1
	}
	from, to := start, end
	if n := last(start); n >= 0 {
		c := v.cuts[n]
		from = start + int(c.shift)
		if c.isUnit {
			from = int(c.at + c.shift)
		}
	}
	if n := last(end - 1); n >= 0 && end > start {
		c := v.cuts[n]
		to = end + int(c.shift)
		if c.isUnit {
			next := v.cuts[n+1]
			to = int(next.at + next.shift)
		}
	} else {
		to = max(to, from)
	}
	return from, to
}

// JSON copies the JSON text src to the view and decodes its escapes. If src has no backslash, JSON returns false and
// does not set the view.
func (v *View) JSON(src []byte) bool { return v.unescape(src, true) }

// Unescape copies src to the view and decodes its escapes. It does not decode the escapes of control characters other
// than tab, newline and carriage return. Such escapes are common in source code and hide nothing. If src has no
// backslash, Unescape returns false and does not set the view.
func (v *View) Unescape(src []byte) bool { return v.unescape(src, false) }

func (v *View) unescape(src []byte, controls bool) bool {
	i := bytes.IndexByte(src, '\\')
	if i < 0 {
		return false
	}
	v.reset(len(src))
	done := 0
	for i >= 0 {
		i += done
		v.Text = append(v.Text, src[done:i]...)
		r, n := decodeEscape(src[i:])
		if n == 0 || !controls && (r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7f) {
			// Keep this backslash. Either it does not begin an escape, or the escape must not be decoded.
			v.Text = append(v.Text, '\\')
			done = i + 1
		} else {
			v.startUnit(i)
			v.Text = utf8.AppendRune(v.Text, r)
			done = i + n
			v.startAt(done)
		}
		i = bytes.IndexByte(src[done:], '\\')
	}
	v.Text = append(v.Text, src[done:]...)
	return true
}

// decodeEscape decodes the escape at the start of src. The second result is the length of the escape, or 0 if there is
// none.
func decodeEscape(src []byte) (rune, int) {
	if len(src) < 2 {
		return 0, 0
	}
	switch src[1] {
	case '"', '\\', '/', '\'':
		return rune(src[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'x':
		if len(src) >= 4 {
			if a, b := unhex(src[2]), unhex(src[3]); a >= 0 && b >= 0 {
				return a<<4 | b, 4
			}
		}
	case 'u':
		r := hex4(src)
		if r < 0 {
			return 0, 0
		}
		if utf16.IsSurrogate(r) && len(src) >= 12 && src[6] == '\\' {
			if full := utf16.DecodeRune(r, hex4(src[6:])); full != unicode.ReplacementChar {
				return full, 12
			}
		}
		return r, 6
	}
	return 0, 0
}

func hex4(src []byte) rune {
	if len(src) < 6 || src[1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range src[2:6] {
		d := unhex(c)
		if d < 0 {
			return -1
		}
		r = r<<4 | d
	}
	return r
}

func unhex(c byte) rune {
	switch {
	case '0' <= c && c <= '9':
		return rune(c - '0')
	case 'a' <= c && c <= 'f':
		return rune(c - 'a' + 10)
	case 'A' <= c && c <= 'F':
		return rune(c - 'A' + 10)
	}
	return -1
}

// Unpercent sets the view to src with its percent escapes decoded. It reports whether src has percent escapes.
func (v *View) Unpercent(src []byte) bool {
	v.reset(len(src))
	done, found := 0, false
	for i := 0; i+2 < len(src); i++ {
		if src[i] != '%' {
			continue
		}
		a, b := unhex(src[i+1]), unhex(src[i+2])
		if a < 0 || b < 0 {
			continue
		}
		v.Text = append(v.Text, src[done:i]...)
		v.startUnit(i)
		v.Text = append(v.Text, byte(a<<4|b))
		done = i + 3
		v.startAt(done)
		i, found = i+2, true
	}
	v.Text = append(v.Text, src[done:]...)
	return found
}

// Strip copies the text around every invisible character of src to the view, but not the character itself. It copies at
// most margin bytes before and after each invisible character. If it skips text between two of these characters, it
// writes a separator that no secret contains. Strip reports whether src has invisible characters.
func (v *View) Strip(src []byte, margin int) bool {
	found, done := false, 0 // src[:done] has been processed
	for i := 0; i < len(src); {
		if !startsInvisible[src[i]] {
			i++
			continue
		}
		r, n := utf8.DecodeRune(src[i:])
		if !Invisible(r) {
			i += n
			continue
		}
		from := done
		if !found {
			found = true
			v.reset(min(len(src), 4*margin))
			if from = max(0, i-margin); from > 0 {
				v.startAt(from)
			}
		} else if i-done > 2*margin {
			v.Text = append(v.Text, src[done:done+margin]...)
			v.Text = append(v.Text, gap...)
			from = i - margin
			v.startAt(from)
		}
		v.Text = append(v.Text, src[from:i]...)
		i += n
		done = i
		v.startAt(done)
	}
	if found {
		v.Text = append(v.Text, src[done:min(len(src), done+margin)]...)
	}
	return found
}

const gap = "\n\x00\n"

// Invisible reports whether a character is invisible to a reader: a format or control character, a variation selector
// or a filler.
func Invisible(r rune) bool {
	switch {
	case r == '\t' || r == '\n' || r == '\r':
		return false
	case r < 0x20 || 0x7f <= r && r < 0xa0:
		return true
	case r < 0xad:
		return false
	}
	switch r {
	case 0x34f, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x3164, 0xffa0:
		return true
	}
	return 0xfe00 <= r && r <= 0xfe0f || 0xe0000 <= r && r <= 0xe0fff || unicode.Is(unicode.Cf, r) ||
		0x180b <= r && r <= 0x180f
}

// startsInvisible is set for every byte that can be the first byte of an invisible character.
var startsInvisible = [256]bool{
	0x00: true, 0x01: true, 0x02: true, 0x03: true, 0x04: true, 0x05: true, 0x06: true, 0x07: true, 0x08: true,
	0x0b: true, 0x0c: true, 0x0e: true, 0x0f: true, 0x10: true, 0x11: true, 0x12: true, 0x13: true, 0x14: true,
	0x15: true, 0x16: true, 0x17: true, 0x18: true, 0x19: true, 0x1a: true, 0x1b: true, 0x1c: true, 0x1d: true,
	0x1e: true, 0x1f: true, 0x7f: true, 0xc2: true, 0xcd: true, 0xd8: true, 0xdb: true, 0xdc: true, 0xe0: true,
	0xe1: true, 0xe2: true, 0xe3: true, 0xef: true, 0xf0: true, 0xf3: true,
}

// Signals returns words for a prefilter that detects invisible characters, and groups of bytes that the prefilter must
// treat as equal. A text that contains none of the words has no invisible characters. Some visible characters also
// contain a word, so the caller must check each match.
func Signals() (words, groups []string) {
	span := func(from, to byte) (s []byte) {
		for c := int(from); c <= int(to); c++ {
			s = append(s, byte(c))
		}
		return s
	}
	control := append(append(append(span(0x00, 0x08), 0x0b, 0x0c, 0x7f), span(0x0e, 0x1f)...),
		"\xcd\xd8\xdb\xdc\xe0\xe1\xe3\xef\xf0\xf3"...)
	low, high := span(0x82, 0x8a), span(0x90, 0x9f)
	first := append(span(0x8b, 0x8f), span(0xaa, 0xae)...)
	second := append(span(0xa0, 0xa9), 0xaf)
	words = []string{
		"\x00", "\xe2\x80\x8b", "\xe2\x81\x8b", "\xe2\x81\xa0", "\xc2\x80", "\xc2\x81", "\xc2\x82",
		"\xc2\x8b", "\xc2\x90",
	}
	return words, []string{string(control), string(low), string(high), string(first), string(second)}
}
