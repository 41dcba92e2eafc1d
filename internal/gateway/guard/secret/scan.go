package secret

import (
	"bytes"

	"github.com/ambit-run/ambit/internal/gateway/guard/literal"
	"github.com/ambit-run/ambit/internal/gateway/guard/view"
)

// scan holds the state of a scan of one text.
type scan struct {
	*Engine
	hits   literal.Hits
	known  *Known
	copies copies
	// forms are the text and everything that was derived from it. At the end, they are searched again for copies of the
	// values that were found.
	forms []textForm
	kept  []Match // the matches in all forms
	// whole is set while the text itself is scanned, after its escapes are decoded. It is not set for views of the
	// text.
	whole bool
	// escaped is set while the original text is scanned, before its escapes are decoded.
	escaped bool
	budget  int  // number of bytes that the scan may still decode
	steps   int  // number of bytes of runs that were read
	effort  int  // the work for the words that were found in this form of the text, in steps of about 10 ns
	cut     bool // set if a quotation mark follows the beginning of a token
	slash   int  // where nextBlock continues to look for backslashes
	noise   int  // number of bytes that may still be compared without noise, see noise.go
	quiet   []byte
	levels  []*level
	used    int // how many of the levels are in use

	inflater inflater
	memo     memo
	nameHits literal.Hits

	matches []Match // a buffer

	// The state of one layer of the text.
	runs    [64]run // the last run of each class
	covered int     // the end of the last match of a format
	named   int     // the end of the last match of a name
	value   int     // the start of the last match of a name
	// rejected is the last token that did not look random. A token of the same format that begins inside it cannot be
	// random either.
	rejected struct {
		format *format
		end    int
	}
	context context
}

// level contains the buffers for a text that was decoded, and for its views.
type level struct {
	strip, unescape, escapes, normal view.View
	decoded                          []byte
	segments                         []segment
}

// textForm is the text itself, a view of it, or text that was decoded from it.
type textForm struct {
	text        []byte     // nil if a view contains the same text
	source      int        // the index of the form from which this form was derived
	view        *view.View // maps offsets to the source, or nil
	segments    []segment  // map offsets in decoded text to the source
	first, last int        // kept[first:last] are the matches in this form, in order
}

// run is a part of the text in which every byte belongs to one class. If more is set, the search for its end stopped at
// a limit, and the run may continue.
type run struct {
	start, end int
	more       bool
}

// The limits of a scan. A buffer of at most maxKept matches is kept for the next scan.
const (
	maxKept    = 1 << 15
	maxDepth   = 3
	freeDecode = 4 << 10
)

// Scan appends the secrets in text to dst, in order and without overlaps. If known is not nil, Scan also looks for the
// stored credentials.
func (e *Engine) Scan(text []byte, known *Known, dst []Match) []Match {
	dst, _ = e.scan(text, known, dst, nil)
	return dst
}

// ScanJSON returns the secrets in a JSON text. The second result reports whether a string ends with the beginning of a
// token, so that another string can contain the rest. If v is not nil, ScanJSON adds the values to it.
func (e *Engine) ScanJSON(text []byte, known *Known, v *Values) (matches []Match, cut bool) {
	return e.scan(text, known, nil, v)
}

func (e *Engine) scan(text []byte, known *Known, dst []Match, v *Values) (_ []Match, cut bool) {
	s := e.scratch.Get().(*scan)
	defer func() {
		s.known = nil
		e.scratch.Put(s)
	}()
	s.known, s.cut = known, false
	s.copies.reset()
	s.budget, s.noise = freeDecode+len(text), freeDecode+len(text)/2
	found := s.scanText(text, s.matches[:0])
	if v != nil {
		v.add(&s.copies)
	}
	found = Merge(s.findCopies(found))
	if cap(found) <= maxKept {
		s.matches = found
	}
	if cap(s.kept) > maxKept {
		s.kept = nil
	}
	return append(dst, found...), s.cut
}

// scanText scans a text and everything that can be decoded from it.
func (s *scan) scanText(text []byte, dst []Match) []Match {
	s.forms, s.kept, s.used = s.forms[:0], s.kept[:0], 0
	return Merge(s.scanLayer(s.addForm(textForm{text: text}), s.nextLevel(), 0, dst))
}

// nextLevel returns a level that is not in use.
func (s *scan) nextLevel() *level {
	if s.used == len(s.levels) {
		s.levels = append(s.levels, new(level))
	}
	s.used++
	return s.levels[s.used-1]
}

// addForm adds a form and returns its index.
func (s *scan) addForm(f textForm) int {
	s.forms = append(s.forms, f)
	return len(s.forms) - 1
}

// scanLayer scans a form and everything that can be decoded from it. If the form contains backslash escapes, scanLayer
// scans the text without escapes. It also scans the original, but only behind backslashes. The original is needed for
// paths such as C:\npm_…, where decoding mistakes the first letter of a token for an escape.
func (s *scan) scanLayer(i int, l *level, depth int, dst []Match) []Match {
	text := s.forms[i].text
	if !hasEscapes(text) {
		return s.scanViews(i, l, depth, dst)
	}
	from := len(dst)
	s.escaped = true
	dst = s.scanOnce(text, dst)
	s.escaped = false
	l.unescape.Unescape(untilStop(text, dst[from:]))
	s.forms[i].text = nil
	from = len(dst)
	view := s.addForm(textForm{text: l.unescape.Text, source: i, view: &l.unescape})
	dst = s.scanViews(view, l, depth, dst)
	s.toSource(view, dst[from:])
	return dst
}

// scanViews scans a form without escapes, its views, and the texts in its runs of base64 and hex. It scans the views
// first. If the scan of a view stops early, the scan of the form ends shortly after the same place.
func (s *scan) scanViews(i int, l *level, depth int, dst []Match) []Match {
	text := s.forms[i].text
	add := func(v *view.View, runs bool) {
		from := len(dst)
		view := s.addForm(textForm{text: v.Text, source: i, view: v})
		dst = s.scanForm(view, dst)
		if runs {
			dst = s.scanRuns(view, s.forms[view].text, depth, dst)
		}
		s.toSource(view, dst[from:])
		text = untilStop(text, dst[from:])
	}
	ascii, invisible := view.Classify(text)
	if invisible && s.spend(len(text)) && l.strip.Strip(text, maxStrip) {
		add(&l.strip, true)
	}
	if l.escapes.Escapes(text, maxWordBytes) && s.spend(len(l.escapes.Text)) {
		add(&l.escapes, false)
	}
	if !ascii && depth == 0 && readLookAlikes(text, &l.normal) {
		add(&l.normal, false)
	}
	s.whole = depth == 0
	s.forms[i].text = text
	dst = s.scanForm(i, dst)
	s.whole = false
	return s.scanRuns(i, s.forms[i].text, depth, dst)
}

// scanForm scans a form once. If the scan stops, the form ends there.
func (s *scan) scanForm(i int, dst []Match) []Match {
	f, from := &s.forms[i], len(dst)
	dst = s.scanOnce(f.text, dst)
	dst = dst[:from+len(Merge(dst[from:]))]
	f.text = untilStop(f.text, dst[from:])
	f.first = len(s.kept)
	s.kept = append(s.kept, dst[from:]...)
	f.last = len(s.kept)
	return dst
}

// toSource maps matches in a form to its source.
func (s *scan) toSource(i int, m []Match) {
	f := &s.forms[i]
	if f.view != nil {
		mapBack(f.view, m)
		return
	}
	for i := range m {
		m := &m[i]
		first := f.segmentAt(m.Start)
		m.Start, m.End = first.start, f.segmentAt(max(m.Start, m.End-1)).end
		m.End = padding.skip(s.forms[f.source].text, m.End, 2)
	}
}

func mapBack(v *view.View, m []Match) {
	for i := range m {
		m[i].Start, m[i].End = v.Range(m[i].Start, m[i].End)
	}
}

// readLookAlikes finds the words that mix ASCII and other characters. It sets the view to these words as a person reads
// them. It reports whether there are such words.
func readLookAlikes(text []byte, v *view.View) bool {
	v.Reset()
	limit := freeDecode + len(text)/16 // this is slow
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
			v.AppendNormal(text, start, end)
		}
		at = view.NextOther(text, end)
	}
	return len(v.Text) > 0
}

// isSymbol reports whether text begins with a character that resembles no letter, such as an arrow or a line. Circled
// letters are not symbols. isSymbol also returns true if text begins in the middle of a character.
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

// scanOnce scans a text once, without decoding it.
func (s *scan) scanOnce(text []byte, dst []Match) []Match {
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
	if s.whole {
		form = rateText
	}
	for from, to := s.nextBlock(text, 0); from < to; from, to = s.nextBlock(text, to) {
		s.set.Scan(text, from, to, &s.hits)
		for _, lane := range s.hits {
			for _, hit := range lane {
				for _, i := range s.set.Words(hit) {
					w, start := &s.words[i], hit.End-s.set.Size(i)
					if w.repeats && start > 0 && text[start-1] == text[start] {
						continue
					}
					if s.effort += 2; w.bounded && inWord(text, start) {
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

// nextBlock returns the next part of the text to search for words. In the original of a text with escapes, only the
// text shortly after certain backslashes is searched. After these backslashes, decoding can mistake the first letter of
// a token for part of an escape.
func (s *scan) nextBlock(text []byte, at int) (from, to int) {
	if !s.escaped {
		return at, min(at+literal.Block, len(text))
	}
	from, to = at, at
	slash := s.slash
	for ; slash < len(text)-1 && to-from < literal.Block; slash++ {
		if text[slash] != '\\' {
			if slash < to {
				continue // IndexByte is slow if the next backslash is near
			}
			n := bytes.IndexByte(text[slash:len(text)-1], '\\')
			if n < 0 {
				slash = len(text)
				break
			}
			slash += n
		}
		if !takesLetter[text[slash+1]] {
			continue
		}
		word := s.lead.skip(text, slash+1, s.reach+1)
		switch end := min(len(text), word+maxWord); {
		case end <= at:
		case to == at:
			from, to = max(at, slash), end
		case slash <= to+near:
			to = max(to, end)
		default:
			s.slash = slash
			return from, to
		}
		slash = word - 1 // no backslash is in the word
	}
	s.slash = slash
	return from, to
}

// near is the maximum distance between two parts of the text that are searched together.
const near = 32

// takesLetter contains the characters that can both follow the backslash of an escape and begin a token.
var takesLetter = bytesOf("nrtux")

// afterBackslash reports whether a backslash, or the beginning of a hexadecimal escape, precedes text[at].
func afterBackslash(text []byte, at int) bool {
	return at > 0 && (text[at-1] == '\\' || at > 1 && text[at-1] == 'x' && text[at-2] == '\\')
}

// resetLayer discards all state about the previous text.
func (s *scan) resetLayer() {
	clear(s.runs[:len(s.classes.sets)])
	s.covered, s.named, s.value, s.context, s.rejected.end, s.effort, s.slash = 0, 0, 0, context{}, 0, 0, 0
}

// runEnd returns the end of the run of class k that begins at text[at]. It stops at text[limit].
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

// span returns the end of the bytes of class k that begin at text[at]. It stops at text[limit].
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

// tryFormat appends a match to dst if the text at offset start matches the format f.
func (s *scan) tryFormat(text []byte, start int, f *format, dst []Match) []Match {
	if start < 0 || !f.inner && inWord(text, start) {
		return dst
	}
	s.effort += 2
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
		s.effort += 2
		n := end - at
		switch {
		case n < p.min:
			s.cut = s.cut || end < len(text) && text[end] == '"' && n >= minCut && i == 1 && f.loud()
			if i == 1 && !f.named && skipNoise(text, end) > end {
				return s.tryNoisy(text, start, end, f, dst)
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
	inValue := s.value <= start && at <= s.named // it is in a value that was found by its name, so it looks random
	if !f.named && !inValue {
		s.effort += judgeEffort(at - random)
		if !looksRandom(text[random:at], random-start >= minWeak) {
			s.rejected.format, s.rejected.end = f, at
			return dst
		}
	}
	if f.wide && start > 0 && text[start-1] == '.' && isHash(text[random:at]) {
		return dst // the name of a file, such as favicon.ico-d41d8cd9….png
	}
	if f.id == "gcp-api-key" && isPublished(text[start:at]) || f.weak && s.inBlob(text, start, at) {
		return dst
	}
	return s.found(text, start, at, f.id, f.rank, dst)
}

// minBlob is the minimum number of base64 characters around a text that is part of encoded data, such as a font or an
// image. The parts of a path are shorter.
const minBlob = 256

// inBlob reports whether text[start:end] is a part of a long base64 text.
func (s *scan) inBlob(text []byte, start, end int) bool {
	from, to := start, end
	for from > 0 && start-from < minBlob && base64s[text[from-1]] {
		from--
	}
	for to < len(text) && to-end < minBlob && base64s[text[to]] {
		to++
	}
	around := start - from + to - end
	s.effort += around / 32
	return around >= minBlob && measure(text[from:start]).other+measure(text[end:to]).other < around/8
}

// inWord reports whether text[at] is in the middle of a word. The letter of an escape such as \n is not part of a word.
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
		if last, s.value = &s.named, start; end <= s.covered {
			return dst
		}
	}
	if end <= *last {
		return dst
	}
	if start >= max(s.covered, s.named) { // it is not a part of the last match
		s.effort += foundEffort(end - start)
	}
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
	s.context.judged = 0 // another word in the name can have other rules for the same value
	return s.tryFormat(text, a.start, f, dst)
}

// minCut is the minimum number of bytes of an incomplete token at the end of a string. If the string ends with fewer
// bytes of a token, the rest of the token is not searched for in other strings.
const minCut = 8

// minWeak is the length of a prefix that is unlikely to occur by chance.
const minWeak = 3

// looksRandom reports whether the variable part of a token looks random: it is not an example, does not consist of
// words, and is not repetitive. Without a distinctive prefix, even a value with one or two digits can count as words.
func looksRandom(value []byte, prefixed bool) bool {
	q := measure(value)
	words := q.size >= 12 && q.wordy() && (q.digits == 0 || q.digits < 3 && !prefixed)
	if words && prefixed && q.size < 24 && q.upper >= 6 && q.lower >= 4 {
		words = false // words have fewer capitals; a few random letters can look like words by chance
	}
	return q.distinct >= min(6, q.read/2) && !words && !isPlaceholder(value) && (prefixed || !isTypeName(value))
}

var alnum = bytesOf("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
