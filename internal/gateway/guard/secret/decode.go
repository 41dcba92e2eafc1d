package secret

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"io"
	"math/bits"
	"slices"
	"sort"
	"unicode/utf8"

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

// maxWordBytes is the maximum amount of text around an escape that is decoded together with the escape.
const maxWordBytes = 4 << 10

var (
	hexes   = bytesOf("0123456789abcdefABCDEF")
	base64s = bytesOf("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
)

// segment is a part of the decoded text. It was decoded from text[start:end].
type segment struct{ at, start, end int }

// scanRuns scans each long base64 run of a form in two ways. It tries the formats without a literal. It also decodes
// the run from base64 or hex and scans the decoded data. If the decoded data contains a secret, the whole run is the
// match. If earlier matches in the form cover the beginning of a run, scanRuns skips that part of the run.
func (s *scan) scanRuns(i int, text []byte, depth int, dst []Match) []Match {
	s.resetLayer()
	found := s.kept[s.forms[i].first:s.forms[i].last]
	l := s.nextLevel()
	l.decoded, l.segments = l.decoded[:0], l.segments[:0]
	for at := 0; ; {
		start, end := view.NextRun(text, at)
		if start < 0 {
			break
		}
		at = end
		for ; len(found) > 0 && found[0].Start <= start; found = found[1:] {
			for start = max(start, found[0].End); start < end && (text[start] == '\r' || text[start] == '\n'); start++ {
			}
		}
		if end-start < view.MinRun {
			continue
		}
		dst = s.tryRuns(text, start, end, dst)
		if s.tired(end, rateRuns) {
			return s.giveUp(text, start+1, dst)
		}
		if depth == maxDepth || s.budget < end-start {
			continue
		}
		before := len(l.decoded)
		var ok bool
		if l.decoded, ok = view.AppendRun(l.decoded, text[start:end]); !ok {
			continue
		}
		l.decoded = onlyText(s.inflate(l.decoded, before), before)
		s.budget -= len(l.decoded) - before
		l.segments = append(l.segments, segment{before, start, end})
		l.decoded = append(l.decoded, '\n')
	}
	if len(l.segments) == 0 {
		s.used--
		return dst
	}
	from := len(dst)
	decoded := s.addForm(textForm{text: l.decoded, source: i, segments: l.segments})
	dst = s.scanLayer(decoded, l, depth+1, dst)
	s.toSource(decoded, dst[from:])
	return dst
}

// segmentAt returns the segment of decoded text at an offset.
func (f *textForm) segmentAt(at int) segment {
	i := sort.Search(len(f.segments), func(i int) bool { return f.segments[i].at > at })
	return f.segments[max(0, i-1)]
}

// At most maxInflated bytes of an uncompressed run are scanned. Uncompressing a run costs as much as decoding
// inflateStart bytes plus twice the uncompressed bytes.
const (
	maxInflated  = 64 << 10
	inflateStart = 2 << 10
)

// inflater uncompresses runs and reuses its memory.
type inflater struct {
	packed bytes.Reader
	gzip   gzip.Reader
	zlib   io.ReadCloser
}

// inflate replaces data[from:] with its uncompressed form if it is compressed with gzip or zlib.
func (s *scan) inflate(data []byte, from int) []byte {
	packed := data[from:]
	isGzip := len(packed) > 18 && packed[0] == 0x1f && packed[1] == 0x8b
	isZlib := len(packed) > 8 && packed[0] == 0x78 && (uint(packed[0])<<8|uint(packed[1]))%31 == 0
	if !isGzip && !isZlib || !s.spend(inflateStart) {
		return data
	}
	r, err := s.inflater.open(packed, isGzip)
	if err != nil {
		return data
	}
	most := min(maxInflated, 4*len(packed), s.budget/3)
	size := len(data)
	data = slices.Grow(data, most)
	n, _ := io.ReadFull(r, data[size:size+most])
	s.budget -= 2 * n
	return append(data[:from], data[size:size+n]...)
}

func (i *inflater) open(packed []byte, isGzip bool) (io.Reader, error) {
	i.packed.Reset(packed)
	if isGzip {
		err := i.gzip.Reset(&i.packed)
		i.gzip.Multistream(false)
		return &i.gzip, err
	}
	if i.zlib == nil {
		var err error
		i.zlib, err = zlib.NewReader(&i.packed)
		return i.zlib, err
	}
	return i.zlib, i.zlib.(zlib.Resetter).Reset(&i.packed, nil)
}

// onlyText reduces data[from:] to the readable texts in it, unless data[from:] is already text. UTF-16 has a zero byte
// beside each ASCII character, so zero bytes are left out.
func onlyText(data []byte, from int) []byte {
	if utf8.Valid(data[from:]) && bytes.IndexByte(data[from:], 0) < 0 {
		return data
	}
	out := data[:from]
	for at := from; ; {
		start, end := view.NextText(data, at)
		if start < 0 {
			return out
		}
		for _, c := range data[start:end] {
			if c != 0 {
				out = append(out, c)
			}
		}
		out = append(out, '\n')
		at = end
	}
}

// tryRuns tries the formats without a literal at the long words in text[start:end]. In each of these formats, a
// separator precedes or follows the long part, so words without a separator are skipped.
func (s *scan) tryRuns(text []byte, start, end int, dst []Match) []Match {
	for at := start; ; at++ {
		from := at
		if from > start {
			// Skip all words that end in the next minLong bytes. Only the first word may be short.
			last := from + minLong
			if last >= end {
				return dst
			}
			for last >= from && !s.beside[text[last]] {
				last--
			}
			if last >= from {
				at = last
				continue
			}
		}
		at = min(end, at+s.beside.index(text[at:end]))
		if (at-from > minLong || from == start) && s.isBeside(text, from-1, at) {
			dst = s.tryWord(text, from, dst)
		}
		word := at
		for at < len(text) && s.beside[text[at]] && word > from && alnum[text[word-1]] && at-word <= maxLong {
			word--
		}
		if at-word > minLong && word > from {
			dst = s.tryWord(text, word, dst)
		}
		if at == end {
			return dst
		}
	}
}

// isBeside reports whether a separator is at text[before] or text[after].
func (s *scan) isBeside(text []byte, before, after int) bool {
	return before >= 0 && s.beside[text[before]] || after < len(text) && s.beside[text[after]]
}

// tryWord tries the formats without a literal at the word that begins at text[at].
func (s *scan) tryWord(text []byte, at int, dst []Match) []Match {
	e := s.Engine
	candidates := e.runFirst[text[at]]
	if at > 0 {
		candidates |= e.runLast[text[at-1]]
	}
	for ; candidates != 0; candidates &= candidates - 1 {
		f := e.runs[bits.TrailingZeros16(candidates)]
		if at >= f.lead && !isMangled(text, at-f.lead) {
			dst = s.tryFormat(text, at-f.lead, f, dst)
		}
	}
	return dst
}

// isMangled reports whether the word before text[at] is part of a mangled C++ symbol, such as _ZNSt11char_traits.
func isMangled(text []byte, at int) bool {
	return at > 0 && text[at-1] == '_' && text[at] == 'Z'
}

// keyEnd returns the end of the private key that begins at text[start], or 0 if there is no key. The END line can be
// missing.
func keyEnd(text []byte, start int) int {
	head := text[start+len("-----BEGIN"):]
	head = head[:min(len(head), 100+len("PRIVATE KEY BLOCK-----"))]
	close := bytes.Index(head, []byte("-----"))
	if close < 0 {
		return 0
	}
	if title := head[:close]; !foldHasSuffix(title, "private key") && !foldHasSuffix(title, "private key block") &&
		!foldHasSuffix(title, "static key v1") { // of OpenVPN
		return 0
	}
	body := start + len("-----BEGIN") + close + len("-----")
	next := len(text)
	for at := body; ; {
		i := bytes.Index(text[at:], []byte("-----"))
		if i < 0 {
			break
		}
		at += i
		next = min(next, at)
		if n := len("-----BEGIN"); at+n <= len(text) && bytes.EqualFold(text[at:at+n], []byte("-----BEGIN")) {
			break
		}
		before := text[:at]
		if at-body >= 64 && hasLetters(text[body:next], minBody) &&
			(foldHasSuffix(before, "key") || foldHasSuffix(before, "key block")) {
			return at + len("-----")
		}
		at += len("-----")
	}
	end := body
	for end < next && (base64s[text[end]] || pemSpace[text[end]]) {
		end++
	}
	if !hasLetters(text[body:end], 64) {
		return 0
	}
	return end
}

// minBody is the minimum number of characters of base64 in a private key. The text of a placeholder is shorter.
const minBody = 40

// hasLetters reports whether text has at least n characters of base64.
func hasLetters(text []byte, n int) bool {
	for _, c := range text {
		if base64s[c] {
			if n--; n == 0 {
				return true
			}
		}
	}
	return false
}

func foldHasSuffix(text []byte, suffix string) bool {
	return len(text) >= len(suffix) && foldHasPrefix(text[len(text)-len(suffix):], suffix)
}

var pemSpace = bytesOf(" \t\r\n=\\:,")
