package secret

import (
	"github.com/ambit-run/ambit/internal/gateway/guard/literal"
	"github.com/ambit-run/ambit/internal/gateway/guard/view"
)

// scan holds the state of a scan of one text.
type scan struct {
	*Engine
	hits   literal.Hits
	known  *Known
	copies copies
	// second is set during the second pass, which searches the rest of the text for copies of the values that the first
	// pass found.
	second bool
	rest   view.View
	// whole is set while the text itself is scanned, and not a view of the text.
	whole bool
	// stopped is the offset at which the last scan of a form of the text stopped because its effort reached the limit,
	// or 0. The scans of the other forms end there too.
	stopped int
	// escaped is set while the original text is scanned, before its escapes are decoded.
	escaped bool
	budget  int  // number of bytes that the scan may still decode
	steps   int  // number of bytes of runs that were read
	effort  int  // the work for the words that were found in this form of the text, in steps of about 2 ns
	cut     bool // set if a quotation mark follows the beginning of a token
	noise   int  // number of bytes that may still be compared without noise, see noise.go
	quiet   []byte
	levels  [maxDepth + 1]level

	inflater inflater
	memo     memo
	nameHits literal.Hits

	matches []Match // a buffer

	// The state of one layer of the text.
	runs    [64]run // the last run of each class
	covered int     // the end of the last match of a format
	named   int     // the end of the last match of a name
	// rejected is the last token that did not look random. A token of the same format that begins inside it cannot be
	// random either.
	rejected struct {
		format *format
		end    int
	}
	context context
}

// level contains the buffers for one level of decoding.
type level struct {
	strip, unescape, escapes, normal view.View
	decoded                          []byte
	segments                         []segment
	ascii, invisible                 bool // what the text consists of
}

// run is a part of the text in which every byte belongs to one class. If more is set, the search for its end stopped at
// a limit, and the run may continue.
type run struct {
	start, end int
	more       bool
}

// The limits of a scan. maxKept is the maximum size of a buffer of matches that the next scan can use again.
const (
	maxKept    = 1 << 15
	maxDepth   = 3
	freeDecode = 4 << 10
)

// Scan appends the secrets in text to dst, in order and without overlaps. If known is not nil, Scan also looks for the
// stored credentials.
func (e *Engine) Scan(text []byte, known *Known, dst []Match) []Match {
	dst, _ = e.scan(text, known, dst)
	return dst
}

// ScanJSON returns the secrets in a JSON text. The second result reports whether a string ends with the beginning of a
// token, so that another string can contain the rest.
func (e *Engine) ScanJSON(text []byte, known *Known) (matches []Match, cut bool) {
	return e.scan(text, known, nil)
}

func (e *Engine) scan(text []byte, known *Known, dst []Match) (_ []Match, cut bool) {
	s := e.scratch.Get().(*scan)
	defer func() {
		s.known = nil
		e.scratch.Put(s)
	}()
	s.known, s.second, s.cut = known, false, false
	s.copies.reset()
	s.budget, s.noise = freeDecode+len(text), freeDecode+len(text)/2
	found := Merge(s.scanLayer(text, 0, s.matches[:0]))
	if s.copies.index() {
		s.second = true
		s.rest.Reset()
		at, first := 0, len(found)
		for _, m := range found {
			s.rest.Append(text, at, m.Start)
			at = m.End
		}
		s.rest.Append(text, at, len(text))
		s.budget = freeDecode + len(s.rest.Text)
		found = s.scanLayer(s.rest.Text, 0, found)
		mapBack(&s.rest, found[first:])
		found = Merge(found)
	}
	if cap(found) <= maxKept {
		s.matches = found
	}
	return append(dst, found...), s.cut
}

// scanLayer scans a text and everything that can be decoded from it. If the text contains backslash escapes, scanLayer
// scans both the text without escapes and, only behind backslashes, the original. The original is needed for paths such
// as C:\npm_…, where decoding takes the first letter of a token for an escape.
func (s *scan) scanLayer(text []byte, depth int, dst []Match) []Match {
	l, from := &s.levels[depth], len(dst)
	s.whole = depth == 0
	unescaped := hasEscapes(text)
	if unescaped {
		s.escaped = true
		dst = s.scanOnce(text, dst)
		s.escaped = false
		text = s.untilStop(text)
		if unescaped = l.unescape.Unescape(text); unescaped {
			text, from = l.unescape.Text, len(dst)
		}
	}
	dst = s.scanOnce(text, dst)
	text = s.untilStop(text)
	s.whole = false
	dst = dst[:from+len(Merge(dst[from:]))]
	found := dst[from:]
	if !s.second || depth > 0 {
		l.ascii, l.invisible = view.Classify(text)
	}
	ascii, invisible := l.ascii, l.invisible // the second pass reads only a part of the text
	if invisible && s.spend(len(text)) && l.strip.Strip(text, maxStrip) {
		before := len(dst)
		dst = s.scanRuns(l.strip.Text, depth, nil, s.scanOnce(l.strip.Text, dst))
		mapBack(&l.strip, dst[before:])
	}
	if l.escapes.Escapes(text, maxWordBytes) && s.spend(len(l.escapes.Text)) {
		dst = s.scanView(&l.escapes, dst)
	}
	if !ascii && depth == 0 {
		dst = s.scanLookAlikes(text, l, dst)
	}
	dst = s.scanRuns(text, depth, found, dst)
	if unescaped {
		mapBack(&l.unescape, dst[from:])
	}
	return dst
}

// scanLookAlikes finds the words that mix ASCII and other characters, and scans them as a person reads them.
func (s *scan) scanLookAlikes(text []byte, l *level, dst []Match) []Match {
	limit := freeDecode + len(text)/16 // this scan is slow
	for at := view.NextOther(text, 0); at < len(text) && limit > 0; {
		start, end := at, at
		for start > 0 && !blanks[text[start-1]] && at-start < maxWordBytes {
			start--
		}
		ascii, letter := at-start, false
		for end < len(text) && !blanks[text[end]] && end-at < maxWordBytes {
			if text[end] < 0x80 {
				ascii++
			} else {
				letter = letter || !isSymbol(text[end:])
			}
			end++
		}
		limit -= (end - start) / 4
		if letter && ascii+(end-start-ascii)/2 >= minLookAlike {
			limit -= end - start
			if l.normal.Normal(text[start:end]) {
				from := len(dst)
				dst = s.scanView(&l.normal, dst)
				for i := range dst[from:] {
					dst[from+i].Start += start
					dst[from+i].End += start
				}
			}
		}
		at = view.NextOther(text, end)
	}
	return dst
}

// isSymbol reports whether text begins with a character that resembles no letter, such as an arrow or a line, or in the
// middle of a character. Circled letters are not symbols.
func isSymbol(text []byte) bool {
	if text[0] < 0xc0 {
		return true // a byte in the middle of a character
	}
	return text[0] == 0xe2 && len(text) > 1 && (text[1] <= 0x81 || 0x86 <= text[1] && text[1] <= 0x90 || 0x94 <= text[1] && text[1] <= 0x9b)
}

// minLookAlike is the length of the shortest word that is scanned for look-alikes.
const minLookAlike = 16

// maxStrip is the maximum amount of text that is kept on each side of an invisible character.
const maxStrip = 16 << 10

// spend subtracts n from the budget, and reports whether n more bytes may be decoded.
func (s *scan) spend(n int) bool {
	if s.budget < n {
		return false
	}
	s.budget -= n
	return true
}

// scanView scans a view and maps the matches back to the view's source.
func (s *scan) scanView(v *view.View, dst []Match) []Match {
	from := len(dst)
	dst = s.scanOnce(v.Text, dst)
	mapBack(v, dst[from:])
	return dst
}

func mapBack(v *view.View, m []Match) {
	for i := range m {
		m[i].Start, m[i].End = v.Range(m[i].Start, m[i].End)
	}
}

// scanOnce scans a text once, without decoding it.
func (s *scan) scanOnce(text []byte, dst []Match) []Match {
	if s.second {
		return s.copies.find(text, dst)
	}
	dst = s.scanWords(text, dst)
	if s.known != nil {
		dst = s.known.findValues(text, &s.hits, dst)
	}
	return dst
}

// scanWords searches text for the words of the formats and names. At each word, it tries the formats and names that
// contain the word.
func (s *scan) scanWords(text []byte, dst []Match) []Match {
	s.resetLayer()
	form := rateForm
	if s.whole && !s.escaped {
		form = rateText
	}
	for from := 0; from < len(text); from += literal.Block {
		s.set.Scan(text, from, min(from+literal.Block, len(text)), &s.hits)
		for _, lane := range s.hits {
			for _, hit := range lane {
				s.effort++
				for _, i := range s.set.Words(hit) {
					w, start := &s.words[i], hit.End-s.set.Size(i)
					if w.repeats && start > 0 && text[start-1] == text[start] {
						continue
					}
					if s.effort++; w.bounded && inWord(text, start) {
						continue
					}
					for _, f := range w.formats {
						if s.escaped && !afterBackslash(text, start-f.offset) {
							continue
						}
						if text[start] == f.word[0] && text[start+1] == f.word[1] {
							dst = s.tryFormat(text, start-f.offset, f, dst)
						}
					}
					if s.escaped && !afterBackslash(text, start) {
						continue
					}
					for _, n := range w.names {
						if foldHasPrefix(text[start:], n.word) {
							dst = n.try(s, text, start, start+len(n.word), dst)
						}
					}
				}
				if s.tired(hit.End, form) {
					return s.giveUp(text, hit.End, dst)
				}
			}
		}
	}
	return dst
}

// afterBackslash reports whether a backslash, or the beginning of a hexadecimal escape, precedes offset at.
func afterBackslash(text []byte, at int) bool {
	return at > 0 && (text[at-1] == '\\' || at > 1 && text[at-1] == 'x' && text[at-2] == '\\')
}

// resetLayer discards all state about the previous text.
func (s *scan) resetLayer() {
	clear(s.runs[:len(s.classes.sets)])
	s.covered, s.named, s.context, s.rejected.end, s.effort = 0, 0, context{}, 0, 0
	s.stopped = 0
}

// runEnd returns the end of the run of a class at offset at. It does not look further than offset limit.
func (s *scan) runEnd(text []byte, k class, at, limit int) int {
	r := &s.runs[k]
	limit = min(limit, len(text))
	if at < r.start {
		// The token begins before the word that was found. Keep the last run, and extend it if it continues to the left.
		if end := s.span(text, k, at, min(limit, r.start)); end < r.start {
			return end
		}
		r.start = at
	}
	end := at
	switch {
	case at >= r.end:
		r.start = at
	case !r.more || r.end >= limit:
		return r.end
	default:
		end = r.end
	}
	end = s.span(text, k, end, limit)
	r.end, r.more = end, end == limit && end < len(text)
	return end
}

// span returns the end of the bytes of a class in text[at:limit].
func (s *scan) span(text []byte, k class, at, limit int) int {
	member, bit, end := &s.classes.member, uint64(1)<<k, at
	for end+4 <= limit && member[text[end]]&member[text[end+1]]&member[text[end+2]]&member[text[end+3]]&bit != 0 {
		end += 4
	}
	for end < limit && member[text[end]]&bit != 0 {
		end++
	}
	s.steps += end - at
	return end
}

// tryFormat appends a match to dst if the text at offset start has a format.
func (s *scan) tryFormat(text []byte, start int, f *format, dst []Match) []Match {
	if start < 0 || !f.inner && inWord(text, start) {
		return dst
	}
	s.effort += 3
	if start < s.rejected.end && f == s.rejected.format {
		return dst
	}
	at, random := start, start
	for i := range f.parts {
		p := &f.parts[i]
		if p.text != "" {
			if at+len(p.text) > len(text) || string(text[at:at+len(p.text)]) != p.text {
				return dst
			}
			if at += len(p.text); i == 0 {
				random = at
			}
			continue
		}
		last := i == len(f.parts)-1
		limit := len(text)
		if p.max > 0 {
			limit = at + p.max + 1
		}
		end := s.runEnd(text, p.class, at, limit)
		s.effort += 3
		n := end - at
		switch {
		case n < p.min:
			s.cut = s.cut || end < len(text) && text[end] == '"' && n >= minCut && i == 1 && f.loud()
			if i == 1 && !f.named && skipNoise(text, end) > end {
				return s.tryNoisy(text, start, f, dst)
			}
			return dst
		case p.max > 0 && n > p.max:
			if last || p.min != p.max {
				return dst
			}
			n = p.max
		}
		at += n
	}
	if last := f.parts[len(f.parts)-1]; last.text != "" && at < len(text) && alnum[text[at-1]] && alnum[text[at]] {
		return dst
	}
	if at <= s.covered {
		return dst
	}
	s.effort += judgeEffort(at - random)
	if !f.named && !looksRandom(text[random:at], random-start >= minWeak) {
		s.rejected.format, s.rejected.end = f, at
		return dst
	}
	if f.wide && start > 0 && text[start-1] == '.' && isHash(text[random:at]) {
		return dst // the name of a file, such as favicon.ico-d41d8cd9….png
	}
	if f.id == "gcp-api-key" && isPublished(text[start:at]) || f.weak && inBlob(text, start, at) {
		return dst
	}
	return s.found(text, start, at, f.id, f.rank, dst)
}

// minBlob is the minimum number of base64 characters around a text that is part of encoded data, such as a font or an
// image. The parts of a path are shorter.
const minBlob = 256

// inBlob reports whether text[start:end] is a part of a long base64 text.
func inBlob(text []byte, start, end int) bool {
	from, to := start, end
	for from > 0 && start-from < minBlob && base64s[text[from-1]] {
		from--
	}
	for to < len(text) && to-end < minBlob && base64s[text[to]] {
		to++
	}
	around := start - from + to - end
	return around >= minBlob && measure(text[from:start]).other+measure(text[end:to]).other < around/8
}

// inWord reports whether offset at is in the middle of a word. The letter of an escape such as \n is not part of a word.
func inWord(text []byte, at int) bool {
	if at == 0 || !alnum[text[at-1]] || !alnum[text[at]] {
		return false
	}
	c := text[at-1]
	return at == 1 || text[at-2] != '\\' || c != 'n' && c != 'r' && c != 't'
}

// found appends a match to dst.
func (s *scan) found(text []byte, start, end int, rule string, rank int, dst []Match) []Match {
	last := &s.covered
	if rank >= rankName {
		if last = &s.named; end <= s.covered {
			return dst
		}
	}
	if end <= *last {
		return dst
	}
	s.effort += foundEffort
	s.copies.add(rule, text[max(start, *last):end], rank < rankName)
	*last = end
	return append(dst, Match{rule, start, end, rank})
}

// tryAssigned tries a format at the value of the name that contains text[start:end].
func (f *format) tryAssigned(s *scan, text []byte, start, end int, dst []Match) []Match {
	a, ok := s.assignmentAt(text, start, end)
	if !ok {
		return dst
	}
	s.context.judged = 0 // for the same value, another word in the name can have other rules
	return s.tryFormat(text, a.start, f, dst)
}

// minCut is the minimum number of bytes of an incomplete token at the end of a string. If the string ends with fewer
// bytes of a token, the rest of the token is not searched for in other strings.
const minCut = 8

// minWeak is the length of a prefix that is unlikely to occur by chance.
const minWeak = 3

// looksRandom reports whether the variable part of a token looks random: it is not an example, does not consist of
// words, and is not repetitive. If the token has no distinctive prefix, a value with one or two digits can still
// consist of words.
func looksRandom(value []byte, prefixed bool) bool {
	q := measure(value)
	words := q.size >= 12 && q.wordy() && (q.digits == 0 || q.digits < 3 && !prefixed)
	if words && prefixed && q.size < 24 && q.upper >= 6 && q.lower >= 4 {
		words = false // words have fewer capitals; a few random letters can look like words by chance
	}
	return q.distinct >= min(6, q.read/2) && !words && !isPlaceholder(value) && (prefixed || !isTypeName(value))
}

var alnum = bytesOf("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
