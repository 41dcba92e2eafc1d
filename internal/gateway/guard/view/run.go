package view

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
)

// A run is a sequence of base64 characters. A run of fewer than MinRun bytes is too short for a secret or a denied
// phrase. A run of at least minFile bytes may be a file, so it is decoded even if it does not begin with readable text.
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

// NextRun returns the start and end of the next run in text, at or after the given offset. It returns -1 if there is no
// run. A run has at least MinRun bytes, so NextRun first checks only one of every MinRun bytes.
func NextRun(text []byte, at int) (start, end int) {
	low := at // the run cannot begin before this offset
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
			// The run has fewer than MinRun bytes up to offset i. Check whether it continues long enough.
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

// DecodeRun decodes a run of base64 or hex. It reuses the memory of dst. It returns false if the run is not valid. It
// also returns false if the run has fewer than minFile bytes and its decoded form does not begin with readable text.
func DecodeRun(dst, run []byte) ([]byte, bool) {
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

// hexText reports whether a run is the hex encoding of ASCII text.
func hexText(run []byte) bool {
	for i := 0; i+1 < len(run); i += 2 {
		if high := run[i]; !hexDigits[run[i+1]] || high != '0' && (high < '2' || high > '7') {
			return false
		}
	}
	return true
}

// readable reports whether b is ASCII text.
func readable(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' || c > '~' {
			return false
		}
	}
	return true
}
