package view

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
)

// Encoded runs shorter than MinRun hold nothing worth the name; runs longer than
// minFile are files, and are read whatever they begin with.
const (
	MinRun  = 24
	minFile = 512
)

var (
	hexDigits = letters("0123456789abcdefABCDEF")
	base64s   = letters("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
)

func letters(s string) *[256]bool {
	var out [256]bool
	for i := range len(s) {
		out[s[i]] = true
	}
	return &out
}

// NextRun finds the next run of at least MinRun letters of base64 from at on, or
// answers -1. It looks at one byte in many: a run that long covers one of any
// MinRun bytes.
func NextRun(text []byte, at int) (start, end int) {
	low := at // nothing before it is part of the run
	for i := at + MinRun - 1; i < len(text); i += MinRun {
		if !base64s[text[i]] {
			low = i + 1
			continue
		}
		start = i
		for start > low && base64s[text[start-1]] {
			start--
		}
		if i-start < MinRun-1 {
			// It starts later than the last look, so the next is due from there.
			low = start
			end = i + 1
			stop := min(start+MinRun, len(text))
			for end < stop && base64s[text[end]] {
				end++
			}
			if end < stop || end-start < MinRun {
				low, i = end, end-1
				continue
			}
		} else {
			end = i + 1
		}
		for end < len(text) && base64s[text[end]] {
			end++
		}
		return start, end
	}
	return -1, -1
}

// DecodeRun is what a run of base64 or hex stands for, if that looks like text or
// the run is long enough to be a file. It uses the space of dst.
func DecodeRun(dst, run []byte) ([]byte, bool) {
	if len(run)%2 == 0 && hexText(run) {
		dst, err := hex.AppendDecode(dst[:0], run)
		return dst, err == nil
	}
	// Padding is not part of a run, and one letter alone decodes to nothing.
	if len(run)%4 == 1 {
		run = run[:len(run)-1]
	}
	enc := base64.RawStdEncoding
	if bytes.IndexByte(run, '-') >= 0 || bytes.IndexByte(run, '_') >= 0 {
		enc = base64.RawURLEncoding
	}
	var head [12]byte
	if _, err := enc.Decode(head[:], run[:16]); err != nil || len(run) < minFile && !readable(head[:]) {
		return dst, false
	}
	if cap(dst) < enc.DecodedLen(len(run)) {
		dst = make([]byte, enc.DecodedLen(len(run)))
	}
	dst = dst[:cap(dst)]
	n, err := enc.Decode(dst, run)
	return dst[:n], err == nil && n > 0
}

// hexText reports whether a run is hex for printable ASCII.
func hexText(run []byte) bool {
	for i := 0; i+1 < len(run); i += 2 {
		if high := run[i]; !hexDigits[run[i+1]] || high != '0' && (high < '2' || high > '7') {
			return false
		}
	}
	return true
}

// readable reports whether bytes are printable ASCII.
func readable(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' || c > '~' {
			return false
		}
	}
	return true
}
