package secret

import (
	"bytes"
	"slices"

	"github.com/ambit-run/ambit/internal/gateway/guard/view"
)

// hasEscapes reports whether text has backslash escapes that must be decoded.
func hasEscapes(text []byte) bool {
	for i := 0; ; {
		n := bytes.IndexByte(text[i:], '\\')
		if n < 0 || i+n+1 >= len(text) {
			return false
		}
		switch i += n + 1; text[i] {
		case 'n', 'r', 't', 'u', 'x', '"', '/':
			return true
		}
	}
}

// scanPercent finds the words of a text that contain percent escapes, decodes them, and scans the decoded text.
func (s *scan) scanPercent(text []byte, l *level, dst []Match) []Match {
	for at := 0; ; {
		n := bytes.IndexByte(text[at:], '%')
		if n < 0 || at+n+2 >= len(text) {
			return dst
		}
		at += n
		if !hexes[text[at+1]] || !hexes[text[at+2]] {
			at++
			continue
		}
		start, end := at, at
		for start > max(0, at-window) && !space[text[start-1]] {
			start--
		}
		for end < min(len(text), at+maxMatch) && !space[text[end]] {
			end++
		}
		if s.work -= end - start; s.work < 0 {
			return dst
		}
		if end-start >= view.MinRun && l.unpercent.Unpercent(text[start:end]) {
			from := len(dst)
			dst = s.scanView(&l.unpercent, dst)
			for i := range dst[from:] {
				dst[from+i].Start += start
				dst[from+i].End += start
			}
		}
		at = end
	}
}

var space = bytesOf(" \t\r\n\"'`<>")

var (
	hexes   = bytesOf("0123456789abcdefABCDEF")
	base64s = bytesOf("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
)

// scanEncoded decodes the runs of base64 and hex in a text and scans the decoded data. If the data contains a secret,
// the whole run is reported as the match.
func (s *scan) scanEncoded(text []byte, depth int, dst []Match) []Match {
	for at := 0; ; {
		start, end := view.NextRun(text, at)
		if start < 0 {
			return dst
		}
		at = end
		run := text[start:end]
		if s.work -= len(run); s.work < 0 {
			return dst
		}
		l := &s.levels[depth]
		var ok bool
		if l.decoded, ok = view.DecodeRun(l.decoded, run); !ok {
			continue
		}
		from := len(dst)
		if dst = s.scanLayer(l.decoded, depth+1, dst); len(dst) > from {
			for end < len(text) && text[end] == '=' {
				end++
			}
			best := slices.MinFunc(dst[from:], func(a, b Match) int { return a.rank - b.rank })
			dst = append(dst[:from], Match{best.Rule, start, end, best.rank})
		}
	}
}

// keyEnd returns the end of the private key that begins at offset start, or 0 if there is no key. The END line can be
// missing.
func keyEnd(text []byte, start int) int {
	head := text[start+len("-----BEGIN"):]
	head = head[:min(len(head), 100+len("PRIVATE KEY BLOCK-----"))]
	close := bytes.Index(head, []byte("-----"))
	if close < 0 {
		return 0
	}
	title := bytes.ToUpper(head[:close])
	if !bytes.HasSuffix(title, []byte("PRIVATE KEY")) && !bytes.HasSuffix(title, []byte("PRIVATE KEY BLOCK")) {
		return 0
	}
	body := start + len("-----BEGIN") + close + len("-----")
	for at := body; ; {
		i := bytes.Index(text[at:], []byte("-----"))
		if i < 0 {
			break
		}
		at += i
		if n := len("-----BEGIN"); at+n <= len(text) && bytes.EqualFold(text[at:at+n], []byte("-----BEGIN")) {
			break
		}
		before := bytes.ToUpper(text[max(body, at-9):at])
		if at-body >= 64 && (bytes.HasSuffix(before, []byte("KEY")) || bytes.HasSuffix(before, []byte("KEY BLOCK"))) {
			return at + len("-----")
		}
		at += len("-----")
	}
	end, letters := body, 0
	for end < len(text) && (base64s[text[end]] || pemSpace[text[end]]) {
		if base64s[text[end]] {
			letters++
		}
		end++
	}
	if letters < 64 {
		return 0
	}
	return end
}

var pemSpace = bytesOf(" \t\r\n=\\:,")
