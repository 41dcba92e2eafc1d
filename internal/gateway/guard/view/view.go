// Package view shows a text as a reader sees it, and maps every byte back to the original text.
//
// A secret is still a secret if it contains a zero-width space or is written as \u0067hp_…. Scans therefore search a
// view, in which such tricks are undone. They map each finding back to the original text and redact it there.
package view

import (
	"bytes"
	"encoding/binary"
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
	hint int // the index of the part in which the last range began
}

// cut marks the beginning of a part of the view. The part extends to the next cut. It can begin with a unit, which
// comes from source bytes that must stay together, such as an escape.
type cut struct {
	at    int32 // the offset of the part in the view
	shift int32 // for each byte after the unit, the source offset minus the view offset
	unit  uint8 // the length of the unit in the view
	size  uint8 // the length of the unit in the source
}

func (v *View) reset(size int) {
	v.cuts, v.hint = v.cuts[:0], 0
	if cap(v.Text) < size {
		v.Text = make([]byte, 0, size+size/8)
	}
	v.Text = v.Text[:0]
}

// Reset makes the view empty.
func (v *View) Reset() { v.reset(0) }

// startAt begins a part of the view that comes from offset i of the source.
func (v *View) startAt(i int) {
	v.cuts = append(v.cuts, cut{at: int32(len(v.Text)), shift: int32(i - len(v.Text))})
}

// startAfter begins a part of the view with a unit. In the view, the unit is Text[at:]. In the source, the unit has the
// given size and ends at offset i.
func (v *View) startAfter(at, size, i int) {
	v.cuts = append(v.cuts, cut{int32(at), int32(i - len(v.Text)), uint8(len(v.Text) - at), uint8(size)})
}

// Range maps Text[start:end] to offsets in the source. The result never splits a unit of the source.
func (v *View) Range(start, end int) (int, int) {
	// last finds the last cut at or before offset i, and returns its index. Any earlier cuts at the same offset are for
	// empty parts.
	last := func(i int) int {
		// Most ranges begin soon after the range before them.
		for n := v.hint; n < min(len(v.cuts), v.hint+8); n++ {
			if int(v.cuts[n].at) <= i && (n+1 == len(v.cuts) || int(v.cuts[n+1].at) > i) {
				v.hint = n
				return n
			}
		}
		n := sort.Search(len(v.cuts), func(j int) bool { return int(v.cuts[j].at) > i }) - 1
		v.hint = max(0, n)
		return n
	}
	from, to := start, end
	if n := last(start); n >= 0 {
		c := v.cuts[n]
		from = start + int(c.shift)
		if unit := int(c.at) + int(c.unit); start < unit {
			from = unit + int(c.shift) - int(c.size)
		}
	}
	if n := last(end - 1); n >= 0 && end > start {
		c := v.cuts[n]
		to = max(end, int(c.at)+int(c.unit)) + int(c.shift)
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
		if i += done; i > done {
			v.Text = append(v.Text, src[done:i]...)
		}
		at := len(v.Text)
		r, n := decodeEscape(src[i:])
		if n == 0 || !controls && (r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7f) {
			// Keep this backslash. Either it does not begin an escape, or the escape must not be decoded.
			v.Text = append(v.Text, '\\')
			done = i + 1
		} else {
			v.Text = utf8.AppendRune(v.Text, r)
			done = i + n
			v.startAfter(at, n, done)
		}
		if i = 0; done == len(src) || src[done] != '\\' {
			i = bytes.IndexByte(src[done:], '\\')
		}
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
		v.Text = append(v.Text, byte(a<<4|b))
		done = i + 3
		v.startAfter(len(v.Text)-1, 3, done)
		i, found = i+2, true
	}
	v.Text = append(v.Text, src[done:]...)
	return found
}

// Escapes sets the view to the words of src that contain percent escapes or character references, and decodes them. An
// escaped percent sign that begins another escape is decoded too. A word ends at a blank or a quote, and at most margin
// bytes before and after an escape are copied. Escapes reports whether src has such escapes.
func (v *View) Escapes(src []byte, margin int) bool {
	found, done := false, 0      // src[:done] has been processed
	percent, reference := -1, -1 // the next percent sign and the next ampersand, if i has not passed them
	next := func(at, i int, c byte) int {
		if at >= i {
			return at
		}
		if n := bytes.IndexByte(src[i:], c); n >= 0 {
			return i + n
		}
		return len(src)
	}
	for i := 0; i < len(src); {
		if src[i] != '%' && src[i] != '&' {
			percent, reference = next(percent, i, '%'), next(reference, i, '&')
			i = min(percent, reference)
			continue
		}
		if i+1 < len(src) && !escapeSecond[src[i+1]] {
			i++
			continue
		}
		c, size := decodeWordEscape(src[i:])
		if size == 0 {
			i++
			continue
		}
		if !found {
			found = true
			v.reset(min(len(src), 4*margin))
		}
		from := i
		for from > done && i-from < margin && !ends[src[from-1]] {
			from--
		}
		if from > done || len(v.Text) == 0 {
			v.Text = append(v.Text, gap...)
			v.startAt(from)
		}
		v.Text = append(v.Text, src[from:i]...)
		v.Text = append(v.Text, c)
		i += size
		done = i
		v.startAfter(len(v.Text)-1, size, done)
		// Copy the rest of the word up to the next escape.
		for done < len(src) && done-i < margin && !ends[src[done]] && src[done] != '%' && src[done] != '&' {
			done++
		}
		v.Text = append(v.Text, src[i:done]...)
		i = done
	}
	return found
}

// escapeSecond is set for the second bytes of percent escapes and of character references.
var escapeSecond = letters("0123456789abcdefABCDEF#qlg")

var ends = letters(" \t\r\n\"'`<>")

// decodeWordEscape decodes the percent escape or character reference at the start of src. The second result is its
// length, or 0 if there is none.
func decodeWordEscape(src []byte) (byte, int) {
	if src[0] == '%' {
		if len(src) < 3 {
			return 0, 0
		}
		a, b := unhex(src[1]), unhex(src[2])
		if a < 0 || b < 0 {
			return 0, 0
		}
		c := byte(a<<4 | b)
		if c == '%' && len(src) >= 5 {
			if a, b = unhex(src[3]), unhex(src[4]); a >= 0 && b >= 0 {
				return byte(a<<4 | b), 5
			}
		}
		return c, 3
	}
	if len(src) < 4 {
		return 0, 0
	}
	if src[1] != '#' {
		for _, e := range references {
			if bytes.HasPrefix(src, e.name) {
				return e.char, len(e.name)
			}
		}
		return 0, 0
	}
	value, at, base := rune(0), 2, rune(10)
	if src[2]|0x20 == 'x' {
		at, base = 3, 16
	}
	for ; at < min(len(src), 9); at++ {
		d := unhex(src[at])
		if d < 0 || d >= base {
			break
		}
		value = value*base + d
	}
	if at == len(src) || src[at] != ';' || value >= 0x80 {
		return 0, 0
	}
	return byte(value), at + 1
}

var references = []struct {
	name []byte
	char byte
}{{[]byte("&amp;"), '&'}, {[]byte("&quot;"), '"'}, {[]byte("&lt;"), '<'}, {[]byte("&gt;"), '>'}, {[]byte("&apos;"), '\''}}

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

// gap separates the parts of a view. It is neither valid text nor an invisible character.
const gap = "\n\xff\n"

// Invisible reports whether a character is invisible to a reader: a format or control character, a variation selector
// or a filler.
func Invisible(r rune) bool {
	if r < 0x10000 {
		return invisible[r/32]>>(r%32)&1 != 0
	}
	return 0xe0000 <= r && r <= 0xe0fff || unicode.Is(unicode.Cf, r)
}

// invisible has one bit for each character below U+10000.
var invisible = func() (bits [0x10000 / 32]uint32) {
	add := func(first, last, step rune) {
		for r := first; r <= last; r += step {
			bits[r/32] |= 1 << (r % 32)
		}
	}
	for _, c := range unicode.Cf.R16 {
		add(rune(c.Lo), rune(c.Hi), rune(c.Stride))
	}
	add(0, 0x1f, 1)
	add(0x7f, 0x9f, 1)
	for _, r := range "\t\n\r" {
		bits[0] &^= 1 << r
	}
	for _, r := range []rune{0x34f, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x3164, 0xffa0} {
		add(r, r, 1)
	}
	add(0x180b, 0x180f, 1)
	add(0xfe00, 0xfe0f, 1)
	return bits
}()

// startsInvisible is set for every byte that can be the first byte of an invisible character.
var startsInvisible = [256]bool{
	0x00: true, 0x01: true, 0x02: true, 0x03: true, 0x04: true, 0x05: true, 0x06: true, 0x07: true, 0x08: true,
	0x0b: true, 0x0c: true, 0x0e: true, 0x0f: true, 0x10: true, 0x11: true, 0x12: true, 0x13: true, 0x14: true,
	0x15: true, 0x16: true, 0x17: true, 0x18: true, 0x19: true, 0x1a: true, 0x1b: true, 0x1c: true, 0x1d: true,
	0x1e: true, 0x1f: true, 0x7f: true, 0xc2: true, 0xcd: true, 0xd8: true, 0xdb: true, 0xdc: true, 0xe0: true,
	0xe1: true, 0xe2: true, 0xe3: true, 0xef: true, 0xf0: true, 0xf3: true,
}

// Classify reports whether src consists of ASCII characters, and whether it has invisible characters.
func Classify(src []byte) (ascii, invisible bool) {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	ascii = true
	for i := 0; i < len(src); {
		if i+8 <= len(src) {
			// Skip eight bytes at once if all of them are printable ASCII characters.
			w := binary.LittleEndian.Uint64(src[i:])
			if (w|(w-' '*ones)|(w+ones))&high == 0 {
				i += 8
				continue
			}
		}
		for end := min(i+8, len(src)); i < end; {
			c := src[i]
			if c < 0x80 {
				invisible = invisible || startsInvisible[c]
				i++
				continue
			}
			ascii = false
			if !startsInvisible[c] {
				i++
				continue
			}
			r, n := utf8.DecodeRune(src[i:])
			invisible = invisible || Invisible(r)
			i += n
		}
		if invisible && !ascii {
			break
		}
	}
	return ascii, invisible
}

// NextOther returns the offset of the next character other than ASCII, at or after the given offset, or the length of
// src.
func NextOther(src []byte, at int) int {
	for ; at+8 <= len(src); at += 8 {
		if binary.LittleEndian.Uint64(src[at:])&0x8080808080808080 != 0 {
			break
		}
	}
	for at < len(src) && src[at] < 0x80 {
		at++
	}
	return at
}
