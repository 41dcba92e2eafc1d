// Package deny matches texts against denied patterns.
//
// A pattern is a regular expression in RE2's syntax, which matches in linear time, and
// ignores case. The same words can be written in many ways, so a text is matched in
// several readings: as it is, with collapsed white space, normalised (package view), with
// digits replaced by similar letters, with spaced letters joined, and decoded from
// base64, hex and percent escapes, two levels deep. A hit names its reading.
//
// The common case, a text that matches nothing, is fast. Every match of a pattern
// contains one of a few words; one pass searches for the words of all patterns, and only
// the text near a word is matched with the expression. The pass reads digits as letters
// too. A pattern without such words, or without a bound on its length, is matched against
// the whole text.
package deny

import (
	"bytes"
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

// Pattern is one expression and what to call it. Several may have one name.
type Pattern struct {
	Name, Regex string
	// Reach is how many bytes a match may have; 0 leaves it to the expression.
	Reach int
}

// Bounds of what patterns may cost.
const (
	maxPattern  = 4 << 10 // bytes of one expression
	maxProgram  = 20_000  // instructions of one
	maxPrograms = 200_000 // and of all
	maxReach    = 2 << 10 // bytes of a match that is looked for in a neighbourhood
	maxDepth    = 2
	maxWordSize = 12

	// everything marks a pattern that was matched against a whole text.
	everything = math.MaxInt
)

// List is a compiled list of patterns. It is safe for concurrent use.
type List struct {
	patterns []*pattern
	whole    []*pattern // those that no word announces
	set      *literal.Set
	words    [][]*pattern
	scratch  sync.Pool
}

type pattern struct {
	Pattern
	regex *regexp.Regexp
	index int
	reach int // the longest match, or 0 for no bound
	// repeated are the classes whose runs must be short for reach to be right.
	repeated []*class
	// first is set if a match begins with its word, and word if the word begins there.
	// The expression is then anchored.
	first, word bool
	// whole is the expression without the anchor, for texts that need it.
	whole func() *regexp.Regexp
	// also are words of which a match has one as well, after the first.
	also *literal.Set
}

// Hit is a match: of which pattern, and in which reading of the text.
type Hit struct{ Pattern, View string }

// The readings of a text.
const (
	AsIs       = ""
	Normalised = "normalised"
	Leet       = "leet"
	Spaced     = "spaced"
	Decoded    = "decoded"
)

// Compile compiles a list. The error reports every invalid pattern.
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
		q := &pattern{Pattern: p, index: i, reach: p.Reach}
		if longest, repeated := width(tree); q.reach == 0 && longest > 0 && longest <= maxReach && !anchored(tree) {
			q.reach, q.repeated = longest, repeated
		}
		needed := required(tree)
		if first, word := beginning(tree); q.reach > 0 && first != nil {
			needed, q.first, q.word = first, true, word
		}
		regex := "(?i:" + p.Regex + ")"
		if q.first {
			loose := regex
			q.whole = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(loose) })
			regex = `\A` + regex
			if more := following(tree); more != nil {
				set, err := literal.New(more, maxWordSize, leet...)
				if err != nil {
					return nil, err
				}
				q.also = set
			}
		}
		q.regex = regexp.MustCompile(regex)
		l.patterns = append(l.patterns, q)
		if needed == nil {
			l.whole = append(l.whole, q)
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
	// It is also used like this, which is one level deeper.
	if _, err := syntax.Parse(`\A(?i:`+regex+")", syntax.Perl); err != nil {
		return nil, 0, fmt.Errorf("not a regular expression: %w", err)
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, 0, err
	}
	if len(prog.Inst) > maxProgram {
		return nil, 0, fmt.Errorf("the pattern compiles to %d instructions; at most %d are allowed", len(prog.Inst), maxProgram)
	}
	tree, err = syntax.Parse("(?i:"+regex+")", syntax.Perl)
	return tree, len(prog.Inst), err
}

// Check reports what is wrong with a pattern, or nil.
func Check(regex string) error {
	_, _, err := parse(regex)
	return err
}

// scan is the scratch space of one search.
type scan struct {
	*List
	hits   literal.Hits
	done   []int
	levels [maxDepth + 1]struct {
		normal, unpercent view.View
		decoded           []byte
	}
	flat, near, other, joined []byte
}

// Find looks for the first match of any pattern in a text.
func (l *List) Find(text []byte) (Hit, bool) {
	if len(l.patterns) == 0 || len(text) == 0 {
		return Hit{}, false
	}
	// Most strings are short and plain, and have none of the words.
	if len(text) < view.MinRun && len(l.whole) == 0 && view.ASCII(text) && !l.set.Contains(text) && bytes.IndexByte(text, '%') < 0 && nextSpaced(text, 0) < 0 {
		return Hit{}, false
	}
	s := l.scratch.Get().(*scan)
	defer l.scratch.Put(s)
	return s.read(text, AsIs, 0)
}

// read looks at a text in every reading.
func (s *scan) read(text []byte, as string, depth int) (Hit, bool) {
	if h, ok := s.look(text, as); ok {
		return h, true
	}
	l := &s.levels[depth]
	if !view.ASCII(text) && l.normal.Normal(text) {
		text = l.normal.Text
		if h, ok := s.look(text, or(as, Normalised)); ok {
			return h, true
		}
	}
	for at := nextSpaced(text, 0); at >= 0; at = nextSpaced(text, at) {
		if s.joined, at = join(s.joined[:0], text, at); len(s.joined) >= minSpaced {
			if h, ok := s.look(s.joined, or(as, Spaced)); ok {
				return h, true
			}
		}
	}
	if depth == maxDepth {
		return Hit{}, false
	}
	for start, end := nextEscaped(text, 0); start >= 0; start, end = nextEscaped(text, end) {
		if l.unpercent.Unpercent(text[start:end]) {
			if h, ok := s.read(l.unpercent.Text, Decoded, depth+1); ok {
				return h, true
			}
		}
	}
	for at := 0; ; {
		start, end := view.NextRun(text, at)
		if start < 0 {
			return Hit{}, false
		}
		at = end
		var ok bool
		if l.decoded, ok = view.DecodeRun(l.decoded, text[start:end]); ok {
			if h, ok := s.read(l.decoded, Decoded, depth+1); ok {
				return h, true
			}
		}
	}
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// nextEscaped is the next word with percent escapes for something printable, at
// least two of them, or -1.
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

// look matches one reading: first what it says as it is, then with its white
// space collapsed. Only patterns that are matched against all of it need the
// second look.
func (s *scan) look(text []byte, as string) (Hit, bool) {
	h, near, ok := s.match(text, as)
	if ok || !near && len(s.whole) == 0 {
		return h, ok
	}
	var changed bool
	if s.flat, changed, _ = flatten(s.flat[:0], text, len(text)); changed {
		h, _, ok = s.match(s.flat, or(as, Normalised))
	}
	return h, ok
}

// match is one pass over a text. It also reports whether a pattern had to be
// matched against all of it.
func (s *scan) match(text []byte, as string) (h Hit, near, ok bool) {
	for _, p := range s.whole {
		if p.regex.Match(text) {
			return Hit{p.Name, as}, true, true
		}
	}
	for i := range s.done {
		s.done[i] = -1
	}
	for from := 0; from < len(text); from += literal.Block {
		s.set.Scan(text, from, min(from+literal.Block, len(text)), &s.hits)
		for _, lane := range s.hits {
			for _, hit := range lane {
				for _, w := range s.set.Words(hit) {
					for _, p := range s.words[w] {
						near = near || p.reach == 0
						if h, ok := s.around(p, text, hit.End, s.set.Size(w), as); ok {
							return h, true, true
						}
					}
				}
			}
		}
	}
	return Hit{}, near, false
}

// short reports whether the runs of a text are as short as a pattern's reach
// takes them to be.
func (s *scan) short(p *pattern, text []byte) bool {
	for _, c := range p.repeated {
		if !c.fits(text) {
			return false
		}
	}
	return true
}

// around matches a pattern where one of its words ends.
func (s *scan) around(p *pattern, text []byte, end, size int, as string) (Hit, bool) {
	if s.done[p.index] == everything {
		return Hit{}, false
	}
	if s.done[p.index] < 0 && !s.short(p, text) {
		s.done[p.index] = everything
		if p.whole == nil {
			return s.try(p, text, as)
		}
		return s.tryWith(p.whole(), p, text, as)
	}
	s.done[p.index] = max(s.done[p.index], 0)
	switch {
	case p.first:
		return s.from(p, text, end-size, as)
	case p.reach == 0:
		s.done[p.index] = everything
		return s.try(p, text, as)
	case end <= s.done[p.index]:
		return Hit{}, false // the last match attempt covered it
	}
	from := back(text, end, p.reach+16)
	for n := 0; n < 32 && from > 0 && wordByte(text[from-1]); n++ {
		from--
	}
	near, changed, used := flatten(s.near[:0], text[from:], 3*p.reach+64)
	s.near = near
	if to := from + used; to < len(text) {
		s.done[p.index] = max(end, back(text, to, p.reach+16))
	} else {
		s.done[p.index] = to
	}
	if changed {
		if h, ok := s.try(p, text[from:from+used], as); ok {
			return h, true
		}
	}
	return s.try(p, near, as)
}

// from matches a pattern that begins with its word, at a position.
func (s *scan) from(p *pattern, text []byte, at int, as string) (Hit, bool) {
	if p.word && at > 0 && wordByte(text[at-1]) {
		return Hit{}, false
	}
	var changed bool
	if s.near, changed, _ = flatten(s.near[:0], text[at:], p.reach); p.also != nil && !p.also.Contains(s.near) {
		return Hit{}, false
	}
	if changed && p.Reach == 0 {
		if h, ok := s.try(p, text[at:min(len(text), at+p.reach)], as); ok {
			return h, true
		}
	}
	return s.try(p, s.near, as)
}

// try matches a pattern against a part of a text, as it is and out of leet.
func (s *scan) try(p *pattern, near []byte, as string) (Hit, bool) {
	return s.tryWith(p.regex, p, near, as)
}

func (s *scan) tryWith(regex *regexp.Regexp, p *pattern, near []byte, as string) (Hit, bool) {
	if regex.Match(near) {
		return Hit{p.Name, as}, true
	}
	for _, letters := range readings {
		var changed bool
		if s.other, changed = unleet(s.other[:0], near, letters); changed && regex.Match(s.other) {
			return Hit{p.Name, or(as, Leet)}, true
		}
	}
	return Hit{}, false
}

func wordByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_'
}

// MatchesEmpty reports whether a pattern matches every text there is.
func MatchesEmpty(regex string) bool {
	re, err := regexp.Compile("(?i:" + regex + ")")
	return err == nil && re.MatchString("")
}
