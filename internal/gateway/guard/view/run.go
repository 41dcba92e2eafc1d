package view

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"slices"
)

// A run is a sequence of base64 characters that can contain line breaks. A run of fewer than MinRun bytes is too short
// for a secret or a denied phrase. A run of at least minFile bytes may be a file, so it is decoded even if it does not
// begin with readable text.
const (
	MinRun  = 24
	minFile = 512
)

var (
	hexDigits = letters("0123456789abcdefABCDEF")
	base64s   = letters("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
	wrapped   = letters("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_\r\n")
	// plain contains the characters of a text in a binary file. It includes the zero byte, because UTF-16 has one
	// beside each ASCII character.
	plain = func() *set {
		out := unchanged
		out[0] = true
		return &out
	}()
)

// set is a set of bytes.
type set [256]bool

// span returns how many bytes at the beginning of text are in the set.
func (s *set) span(text []byte) int {
	n := 0
	for len(text)-n >= 4 && s[text[n]] && s[text[n+1]] && s[text[n+2]] && s[text[n+3]] {
		n += 4
	}
	for n < len(text) && s[text[n]] {
		n++
	}
	return n
}

func letters(s string) *set {
	var out set
	for i := range len(s) {
		out[s[i]] = true
	}
	return &out
}

// NextRun returns the start and end of the next run in text, at or after the given offset. It returns -1 if there is no
// run. A run can span several lines if the text is wrapped: all lines but the last have the same length.
func NextRun(text []byte, at int) (int, int) {
	for {
		start := wrapped.next(text, at, MinRun)
		if start < 0 {
			return -1, -1
		}
		for start < len(text) && wrapped[text[start]] {
			start = skipBreaks(text, start)
			at = start + base64s.span(text[start:])
			for width := at - start; ; {
				next := skipBreaks(text, at)
				to := next + base64s.span(text[next:])
				if to == next || next == at || to-next > width {
					break
				}
				if at = to; to-next < width {
					break
				}
			}
			if at-start >= MinRun {
				return start, at
			}
			start = at
		}
		at = start
	}
}

func skipBreaks(text []byte, at int) int {
	for at < len(text) && (text[at] == '\r' || text[at] == '\n') {
		at++
	}
	return at
}

// minText is the minimum length of a text in a binary file.
const minText = 12

// NextText returns the start and end of the next text in a binary file, at or after the given offset. It returns -1 if
// there is none.
func NextText(data []byte, at int) (int, int) {
	start := plain.next(data, at, minText)
	if start < 0 {
		return -1, -1
	}
	return start, start + plain.span(data[start:])
}

// next returns the start of the next n bytes in a row that are in the set, or -1. To be fast, it first checks only
// every n-th byte.
func (s *set) next(text []byte, at, n int) int {
	low := at // a run of n bytes cannot begin before this offset
	for i := at + n - 1; i < len(text); i += n {
		if !s[text[i]] {
			low = i + 1
			continue
		}
		start := i
		for start > low && s[text[start-1]] {
			start--
		}
		if i-start >= n-1 {
			return start
		}
		// Fewer than n bytes of this run precede offset i. Check whether enough bytes follow.
		end := i + 1
		for end < len(text) && end-start < n && s[text[end]] {
			end++
		}
		if end-start == n {
			return start
		}
		low, i = end, end-1
	}
	return -1
}

// AppendRun decodes a run like DecodeRun and appends the result to dst.
func AppendRun(dst, run []byte) ([]byte, bool) {
	at := len(dst)
	dst = slices.Grow(dst, len(run))
	out, ok := DecodeRun(dst[at:], run)
	if !ok {
		return dst, false
	}
	return append(dst, out...), true
}

// DecodeRun decodes a run of base64 or hex. It reuses the memory of dst. It returns false if the run is not valid. It
// also returns false if the run has fewer than minFile bytes and its decoded form begins with neither readable text nor
// the signature of a compressed file.
func DecodeRun(dst, run []byte) ([]byte, bool) {
	if len(run) < minFile && !startsHex(run) && !startsReadable(run) {
		return dst, false
	}
	if bytes.IndexByte(run, '\n') >= 0 || bytes.IndexByte(run, '\r') >= 0 {
		lines := make([]byte, 0, len(run))
		for _, c := range run {
			if c != '\n' && c != '\r' {
				lines = append(lines, c)
			}
		}
		if run = lines; len(run) < MinRun {
			return dst, false
		}
	}
	if len(run)%2 == 0 && hexText(run) {
		dst, err := hex.AppendDecode(dst[:0], run)
		return dst, err == nil
	}
	// A run contains no padding. If a single character remains after the last group of four, it encodes nothing.
	if len(run)%4 == 1 {
		run = run[:len(run)-1]
	}
	enc := base64.RawStdEncoding
	if bytes.IndexByte(run, '-') >= 0 || bytes.IndexByte(run, '_') >= 0 {
		enc = base64.RawURLEncoding
	}
	var head [12]byte
	if _, err := enc.Decode(head[:], run[:16]); err != nil || len(run) < minFile && !readable(head[:]) && !compressed(head[:]) {
		return dst, false
	}
	if cap(dst) < enc.DecodedLen(len(run)) {
		dst = make([]byte, enc.DecodedLen(len(run)))
	}
	dst = dst[:cap(dst)]
	n, err := enc.Decode(dst, run)
	return dst[:n], err == nil && n > 0
}

// startsHex reports whether a run begins with eight hex digits.
func startsHex(run []byte) bool {
	read := 0
	for _, c := range run {
		if c == '\r' || c == '\n' {
			continue
		}
		if !hexDigits[c] {
			return false
		}
		if read++; read == 8 {
			break
		}
	}
	return true
}

// startsReadable reports whether a run can begin with readable text or the signature of a compressed file. It reads only
// the beginning of the run, because most runs are names.
func startsReadable(run []byte) bool {
	value, read := uint32(0), 0
	for _, c := range run {
		if c == '\r' || c == '\n' {
			continue
		}
		value = value<<6 | uint32(digits64[c])
		if read++; read%4 != 0 {
			continue
		}
		group := []byte{byte(value >> 16), byte(value >> 8), byte(value)}
		if read == 4 && compressed(group) {
			return true
		}
		if !readable(group) {
			return false
		}
		if read == 16 {
			break
		}
	}
	return true
}

// digits64 contains the values of the characters of both alphabets of base64.
var digits64 = func() (out [256]byte) {
	for i, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") {
		out[c] = byte(i)
	}
	out['-'], out['_'] = out['+'], out['/']
	return out
}()

// hexText reports whether a run is the hex encoding of ASCII text.
func hexText(run []byte) bool {
	for i := 0; i+1 < len(run); i += 2 {
		if high := run[i]; !hexDigits[run[i+1]] || high != '0' && (high < '2' || high > '7') {
			return false
		}
	}
	return true
}

// compressed reports whether b begins like a gzip or zlib file.
func compressed(b []byte) bool {
	return b[0] == 0x1f && b[1] == 0x8b || b[0] == 0x78 && (int(b[0])<<8|int(b[1]))%31 == 0
}

// readable reports whether b is ASCII text. In UTF-16, zeros are between the letters.
func readable(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != 0 && c != '\n' && c != '\r' && c != '\t' || c > '~' {
			return false
		}
	}
	return true
}
