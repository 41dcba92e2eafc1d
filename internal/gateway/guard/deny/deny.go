// Package deny matches text against denied patterns.
//
// A pattern is a regular expression in RE2 syntax. It ignores case and matches in linear time. The same words can be
// written in many ways, so a text is matched in several readings:
//   - as it is
//   - with runs of white space collapsed
//   - normalized, without invisible characters and look-alikes (package view)
//   - with digits and signs replaced by similar letters
//   - with spaced letters joined, such as "i g n o r e"
//   - decoded from base64, hex and percent escapes, up to two levels deep
//
// A [Hit] contains the reading in which the pattern matched.
//
// The package is optimized for text that matches nothing. For most patterns, every match contains one of a few words.
// One pass searches for the words of all patterns, and treats digits as the letters that they resemble. Only the text
// near a word is then matched against the expression. A pattern is matched against the whole text if it has no such
// words or no limit on the length of a match.
package deny

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"

	"github.com/ambit-run/ambit/internal/gateway/guard/literal"
	"github.com/ambit-run/ambit/internal/gateway/guard/view"
)

// Pattern is a regular expression and its name. Several patterns can have the same name.
type Pattern struct {
	Name, Regex string
	// Reach is the maximum length of a match in bytes. If Reach is 0, Compile derives the maximum from the
	// expression.
	Reach int
	// Unless is an expression. A match does not count if Unless matches the part of the sentence before the match. An
	// empty expression matches nothing.
	Unless string
}

// The limits on patterns.
const (
	maxPattern  = 4 << 10 // bytes of one expression
	maxProgram  = 20_000  // instructions of one expression
	maxPrograms = 200_000 // instructions of all expressions
	maxReach    = 2 << 10 // bytes of one match; a pattern with longer matches is matched against the whole text
	maxDepth    = 2
	maxWordSize = 12

	// wholeText in scan.done means that the pattern was already matched against the whole text.
	wholeText = math.MaxInt
)

// List is a compiled list of patterns. It is safe for concurrent use.
type List struct {
	patterns []*pattern
	wordless []*pattern // patterns without required words
	set      *literal.Set
	words    [][]*pattern
	scratch  sync.Pool
}

type pattern struct {
	Pattern
	regex  *regexp.Regexp
	unless *regexp.Regexp // compiled from Unless; nil if Unless is empty
	index  int
	work   int64 // units of work for each character of a text, see MaxWork
	reach  int   // the maximum length of a match; 0 means no limit
	// repeated lists the character classes that the pattern repeats without a limit. The value of reach is valid only if
	// the text has no long runs of these classes.
	repeated []*class
	// If wordFirst is set, every match begins with one of the pattern's words, and regex matches only at the start of
	// its input. If boundary is set, a word boundary must precede the match.
	wordFirst, boundary bool
	// unanchored returns the expression without the anchor. It is used if staysInReach returns false.
	unanchored func() *regexp.Regexp
	// later is a set of words. A text can match only if one of these words follows the word at the start of the match.
	// The set is nil if there are no such words.
	later *literal.Set
}

// Hit is a match.
type Hit struct {
	// Pattern is the name of the pattern. View is the form of the text in which the pattern matched, such as [Decoded].
	Pattern, View string
	// Start and End are the offsets of the match in the text. If the match is disguised, they enclose at least the part of
	// the text that was decoded.
	Start, End int
}

// The readings of a text. The package comment explains them.
const (
	AsIs       = ""
	Normalised = "normalised"
	Leet       = "leet"
	Spaced     = "spaced"
	Decoded    = "decoded"
)

// Compile compiles a list of patterns. The error lists every invalid pattern.
func Compile(patterns []Pattern) (*List, error) {
	l := &List{}
	var errs []error
	var words []string
	index := map[string]int{}
	total := 0
	for i, p := range patterns {
		tree, size, err := parse(p.Regex)
		if total += size; err == nil && total > maxPrograms {
			err = errors.New("the patterns together are too large")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.Name, err))
			continue
		}
		q := &pattern{Pattern: p, index: i, work: baseWork + int64(size), reach: p.Reach}
		if p.Reach > 0 { // a built-in pattern takes few steps for each character
			q.work = 1
		}
		if p.Unless != "" {
			q.unless = regexp.MustCompile("(?i:" + p.Unless + ")")
		}
		if longest, repeated := maxWidth(tree); q.reach == 0 && longest > 0 && longest <= maxReach && !hasAnchor(tree) {
			q.reach, q.repeated = longest, repeated
		}
		needed := requiredWords(tree)
		if first, word := firstWords(tree); q.reach > 0 && first != nil {
			needed, q.wordFirst, q.boundary = first, true, word
		}
		regex := "(?i:" + p.Regex + ")"
		if q.wordFirst {
			loose := regex
			q.unanchored = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(loose) })
			regex = `\A` + regex
			if more := laterWords(tree); more != nil {
				set, err := literal.New(more, maxWordSize, leet...)
				if err != nil {
					return nil, err
				}
				q.later = set
			}
		}
		q.regex = regexp.MustCompile(regex)
		l.patterns = append(l.patterns, q)
		if needed == nil {
			l.wordless = append(l.wordless, q)
			continue
		}
		for _, w := range needed {
			w = strings.ToLower(w)
			at, ok := index[w]
			if !ok {
				at = len(words)
				index[w] = at
				words = append(words, w)
				l.words = append(l.words, nil)
			}
			if !slices.Contains(l.words[at], q) {
				l.words[at] = append(l.words[at], q)
			}
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	set, err := literal.New(words, maxWordSize, leet...)
	if err != nil {
		return nil, err
	}
	l.set = set
	l.scratch.New = func() any { return &scan{List: l, done: make([]int, len(patterns))} }
	return l, nil
}

func parse(regex string) (*syntax.Regexp, int, error) {
	if len(regex) > maxPattern {
		return nil, 0, fmt.Errorf("the pattern has %d bytes; at most %d are allowed", len(regex), maxPattern)
	}
	tree, err := syntax.Parse("(?i:"+regex+")", syntax.Perl)
	if err != nil {
		return nil, 0, fmt.Errorf("not a regular expression: %w", err)
	}
	// Compile may later put \A before the expression. This adds a nesting level, which can exceed the parser's limit, so
	// check the longer expression too.
	if _, err := syntax.Parse(`\A(?i:`+regex+")", syntax.Perl); err != nil {
		return nil, 0, fmt.Errorf("not a regular expression: %w", err)
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, 0, err
	}
	if len(prog.Inst) > maxProgram {
		return nil, 0, fmt.Errorf("the pattern compiles to %d instructions; at most %d are allowed",
			len(prog.Inst), maxProgram)
	}
	tree, err = syntax.Parse("(?i:"+regex+")", syntax.Perl)
	return tree, len(prog.Inst), err
}

// Check returns an error if the pattern is invalid or too large.
func Check(regex string) error {
	_, _, err := parse(regex)
	return err
}

// scan holds the state and the buffers of one search.
type scan struct {
	*List
	ctx    context.Context
	work   *int64 // the work that this search may still do
	err    error
	input  input
	most   int // the search stops when it has found this many matches
	found  []Hit
	hits   literal.Hits
	done   []int
	levels [maxDepth + 1]struct {
		normal, unpercent view.View
		decoded, shown    []byte
	}
	flat, near, other, joined []byte
	// at records how matchAt last filled near.
	at struct {
		start, reach int
		changed      bool
	}
}

// maxHits is the maximum number of matches that [List.FindAll] returns.
const maxHits = 1000

// Find searches a text for all patterns, and returns the first match that it finds. It subtracts the cost of the search
// from *work, and returns [ErrWork] if the result is negative. It returns the error of ctx if ctx is cancelled.
func (l *List) Find(ctx context.Context, text []byte, work *int64) (Hit, bool, error) {
	hits, err := l.find(ctx, text, 1, work)
	if err != nil || len(hits) == 0 {
		return Hit{}, false, err
	}
	return hits[0], true, nil
}

// FindAll returns the matches of all patterns in a text, sorted by their start. It returns at most maxHits matches. If
// matches of the same pattern overlap, it returns only one of them. FindAll stops early if ctx is cancelled, and then
// returns the error of ctx.
func (l *List) FindAll(ctx context.Context, text []byte) ([]Hit, error) {
	work := int64(math.MaxInt64)
	hits, err := l.find(ctx, text, maxHits, &work)
	slices.SortStableFunc(hits, func(a, b Hit) int { return a.Start - b.Start })
	return hits, err
}

func (l *List) find(ctx context.Context, text []byte, most int, work *int64) ([]Hit, error) {
	if len(l.patterns) == 0 || len(text) == 0 {
		return nil, ctx.Err()
	}
	// Most strings are short, contain only ASCII, and contain none of the words.
	if len(text) < view.MinRun && len(l.wordless) == 0 && view.ASCII(text) && !l.set.Contains(text) &&
		bytes.IndexByte(text, '%') < 0 && nextSpaced(text, 0) < 0 {
		return nil, ctx.Err()
	}
	s := l.scratch.Get().(*scan)
	defer l.scratch.Put(s)
	s.ctx, s.most, s.work, s.found, s.err = ctx, most, work, nil, nil
	s.matchReadings(text, AsIs, 0)
	found := s.found
	s.ctx, s.found, s.input = nil, nil, input{}
	return found, s.err
}

// matchReadings matches the patterns against all readings of a text. The package comment lists the readings. The
// parameter reading is [Decoded] if the text was decoded, and [AsIs] if not. The parameter depth is the number of
// decoding steps. The result is true if the search is over.
func (s *scan) matchReadings(text []byte, reading string, depth int) (over bool) {
	if s.matchText(text, reading) {
		return true
	}
	l, original := &s.levels[depth], text
	if view.ASCII(text) || !l.normal.Normal(text) {
		return s.matchDisguised(text, original, reading, depth)
	}
	n := len(s.found)
	over = s.matchText(l.normal.Text, or(reading, Normalised)) || s.matchDisguised(l.normal.Text, original, reading, depth)
	for i := n; i < len(s.found); i++ {
		h := &s.found[i]
		h.Start, h.End = l.normal.Range(h.Start, h.End)
	}
	s.dropRepeated(n)
	return over
}

// matchDisguised matches the patterns against spaced, reversed and encoded parts of a text. The parameter original is
// the text before its normalization.
func (s *scan) matchDisguised(text, original []byte, reading string, depth int) (over bool) {
	l := &s.levels[depth]
	// within sets the offsets of s.found[n:] to start and end, which enclose the disguised part of the text.
	within := func(start, end int, over bool, n int) bool {
		for i := n; i < len(s.found); i++ {
			s.found[i].Start, s.found[i].End = start, end
		}
		s.dropRepeated(n)
		return over
	}
	for at := nextSpaced(text, 0); at >= 0; {
		start := at
		if s.joined, at = joinSpaced(s.joined[:0], text, at); len(s.joined) >= minSpaced {
			n := len(s.found)
			if within(start, at, s.matchText(s.joined, or(reading, Spaced)), n) {
				return true
			}
		}
		at = nextSpaced(text, at)
	}
	if depth == maxDepth {
		return false
	}
	if shown, ok := view.Displayed(l.shown[:0], original); ok {
		l.shown = shown
		n := len(s.found)
		if within(0, len(text), s.matchReadings(shown, or(reading, Normalised), depth+1), n) {
			return true
		}
	}
	for start, end := nextEscaped(text, 0); start >= 0; start, end = nextEscaped(text, end) {
		if l.unpercent.Unpercent(text[start:end]) {
			n := len(s.found)
			if within(start, end, s.matchReadings(l.unpercent.Text, Decoded, depth+1), n) {
				return true
			}
		}
	}
	for at := 0; ; {
		start, end := view.NextRun(text, at)
		if start < 0 {
			return false
		}
		at = end
		var ok bool
		if l.decoded, ok = view.DecodeRun(l.decoded, text[start:end]); ok {
			n := len(s.found)
			if within(start, end, s.matchReadings(l.decoded, Decoded, depth+1), n) {
				return true
			}
		}
	}
}

// dropRepeated removes each match in s.found[n:] that overlaps an earlier match of the same pattern.
func (s *scan) dropRepeated(n int) {
	kept := s.found[:n]
	for _, h := range s.found[n:] {
		if !slices.ContainsFunc(kept, h.repeats) {
			kept = append(kept, h)
		}
	}
	s.found = kept
}

func (h Hit) repeats(other Hit) bool {
	return h.Pattern == other.Pattern && h.Start < other.End && other.Start < h.End
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// nextEscaped returns the start and end of the next word that contains at least two percent escapes of printable
// characters. It returns -1 if there is no such word.
func nextEscaped(text []byte, at int) (start, end int) {
	for {
		n := bytes.IndexByte(text[at:], '%')
		if n < 0 {
			return -1, -1
		}
		start, end = at+n, at+n
		for start > at && !white[text[start-1]] {
			start--
		}
		escapes := 0
		for end < len(text) && !white[text[end]] {
			if text[end] == '%' && end+2 < len(text) && '2' <= text[end+1] && text[end+1] <= '7' {
				escapes++
			}
			end++
		}
		if escapes >= 2 {
			return start, end
		}
		at = end
	}
}

// matchText first matches the text as it is. If nothing matches, it can collapse white space and try again. Only
// patterns without required words or without a length limit need the second attempt. For other patterns, matchAround
// collapses the white space near the word.
func (s *scan) matchText(text []byte, reading string) (over bool) {
	n := len(s.found)
	near, over := s.matchOnce(text, reading)
	if over || len(s.found) > n || !near && len(s.wordless) == 0 {
		return over
	}
	var changed bool
	if s.flat, changed, _ = flatten(s.flat[:0], text, len(text)); changed {
		_, over = s.matchOnce(s.flat, or(reading, Normalised))
		for i := n; i < len(s.found); i++ {
			h := &s.found[i]
			h.Start, h.End = unflatten(text, h.Start), unflatten(text, h.End)
		}
	}
	return over
}

// matchOnce matches a text against all patterns in one pass. The first result reports whether the text contains a word
// of a pattern without a length limit. The second is true if the search is over.
func (s *scan) matchOnce(text []byte, reading string) (near, over bool) {
	for _, p := range s.wordless {
		if s.matchWith(p.regex, p, window{text, text, 0, false}, reading) {
			return true, true
		}
	}
	for i := range s.done {
		s.done[i] = -1
	}
	s.at.start = -1
	for from := 0; from < len(text); from += literal.Block {
		if s.err = s.ctx.Err(); s.err != nil {
			return near, true
		}
		s.set.Scan(text, from, min(from+literal.Block, len(text)), &s.hits)
		for _, lane := range s.hits {
			for _, hit := range lane {
				for _, w := range s.set.Words(hit) {
					for _, p := range s.words[w] {
						near = near || p.reach == 0
						if s.matchAround(p, text, hit.End, s.set.Size(w), reading) {
							return true, true
						}
					}
				}
			}
		}
	}
	return near, false
}

// staysInReach reports whether every match of a pattern in text fits within the pattern's reach. It checks how long the
// runs of the repeated classes are.
func (s *scan) staysInReach(p *pattern, text []byte) bool {
	for _, c := range p.repeated {
		if !c.hasShortRuns(text) {
			return false
		}
	}
	return true
}

// matchAround matches a pattern against the text around a word of the pattern. The search found the word, or the
// first bytes of a long word, at text[end-size:end].
func (s *scan) matchAround(p *pattern, text []byte, end, size int, reading string) (over bool) {
	if s.done[p.index] == wholeText {
		return false
	}
	if s.done[p.index] < 0 && !s.staysInReach(p, text) {
		s.done[p.index] = wholeText
		regex := p.regex
		if p.unanchored != nil {
			regex = p.unanchored()
		}
		return s.matchWith(regex, p, window{text, text, 0, false}, reading)
	}
	s.done[p.index] = max(s.done[p.index], 0)
	switch {
	case p.wordFirst:
		return s.matchAt(p, text, end-size, reading)
	case p.reach == 0:
		s.done[p.index] = wholeText
		return s.matchWith(p.regex, p, window{text, text, 0, false}, reading)
	case end <= s.done[p.index]:
		return false // the previous attempt already included this word
	}
	from := stepBack(text, end, p.reach+16)
	for n := 0; n < 32 && from > 0 && wordByte(text[from-1]); n++ {
		from--
	}
	near, changed, used := flatten(s.near[:0], text[from:], 3*p.reach+64)
	s.near, s.at.start = near, -1
	if to := from + used; to < len(text) {
		s.done[p.index] = max(end, stepBack(text, to, p.reach+16))
	} else {
		s.done[p.index] = to
	}
	if changed && s.matchWith(p.regex, p, window{text[from : from+used], text, from, false}, reading) {
		return true
	}
	return s.matchWith(p.regex, p, window{near, text, from, changed}, reading)
}

// matchAt matches a pattern against the text at offset start. It is called only if wordFirst is set and one of the
// pattern's words was found at that offset.
func (s *scan) matchAt(p *pattern, text []byte, start int, reading string) (over bool) {
	if p.boundary && start > 0 && wordByte(text[start-1]) {
		return false
	}
	if s.at.start != start || s.at.reach != p.reach { // several patterns can begin with the same word
		s.near, s.at.changed, _ = flatten(s.near[:0], text[start:], p.reach)
		s.at.start, s.at.reach = start, p.reach
	}
	changed := s.at.changed
	if p.later != nil && !p.later.Contains(s.near) {
		return false
	}
	if changed && p.Reach == 0 {
		near := text[start:min(len(text), start+p.reach)]
		if s.matchWith(p.regex, p, window{near, text, start, false}, reading) {
			return true
		}
	}
	return s.matchWith(p.regex, p, window{s.near, text, start, changed}, reading)
}

// window is a part of a text. If flat is set, runs of white space are collapsed in the part.
type window struct {
	part, text []byte
	start      int // the offset of the part in the text
	flat       bool
}

// matchWith matches a pattern against a part of a text, first unchanged and then with digits and signs replaced by
// letters.
func (s *scan) matchWith(regex *regexp.Regexp, p *pattern, w window, reading string) (over bool) {
	if s.match(regex, p, w.part) {
		return s.err != nil || s.keep(regex, p, w, w.part, reading)
	}
	for _, letters := range readings {
		var changed bool
		if s.other, changed = unleet(s.other[:0], w.part, letters); changed && s.match(regex, p, s.other) {
			return s.err != nil || s.keep(regex, p, w, s.other, or(reading, Leet))
		}
	}
	return false
}

// keep adds the matches of a pattern to s.found. The parameter part is a reading of w.part with the same offsets. The
// result is true if the search is over.
func (s *scan) keep(regex *regexp.Regexp, p *pattern, w window, part []byte, reading string) (over bool) {
	for _, at := range regex.FindAllIndex(part, s.most-len(s.found)) {
		start, end := at[0], at[1]
		if w.flat {
			start, end = unflatten(w.text[w.start:], start), unflatten(w.text[w.start:], end)
		}
		h := Hit{p.Name, reading, w.start + start, w.start + end}
		if p.unless != nil && p.unless.Match(sentenceBefore(w.text, h.Start)) || !h.outsideMarkers(w.text) ||
			slices.ContainsFunc(s.found, h.repeats) {
			continue
		}
		s.found = append(s.found, h)
	}
	return len(s.found) >= s.most
}

func wordByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_'
}

// MatchesEmpty reports whether a pattern matches the empty string, and therefore every text.
func MatchesEmpty(regex string) bool {
	re, err := regexp.Compile("(?i:" + regex + ")")
	return err == nil && re.MatchString("")
}
