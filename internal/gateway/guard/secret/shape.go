package secret

import (
	"regexp/syntax"
	"slices"
	"strings"
)

// A shape is what every match of a rule looks like at its beginning: a set of
// bytes for each place, and among them a literal that a prefilter can look for.
// It costs a few table look-ups to see that a text is not of a shape, and only
// what is gets to the regular expression.
type shape struct {
	sets []*set
	// word requires a word boundary before the match, begin the start of the text.
	word, begin bool
	literal     string
	offset      int // of the literal in the match
}

type set [256]bool

// Bounds of what a shape may become.
const (
	maxPlaces = 48
	maxShapes = 96
	maxWord   = 8
)

// seq is a shape in the making. An open one cannot be continued.
type seq struct {
	sets        []*set
	word, begin bool
	open        bool
}

// maker makes sets once: a rule has few different ones.
type maker struct {
	known   map[set]*set
	letters map[*set]byte // the one letter of those that have only one
}

func newMaker() *maker { return &maker{map[set]*set{}, map[*set]byte{}} }

func (m *maker) intern(s set) *set {
	if p := m.known[s]; p != nil {
		return p
	}
	p := &s
	m.known[s] = p
	if c, ok := s.letter(); ok {
		m.letters[p] = c
	}
	return p
}

// shapes are those of a rule's matches, or nil where there is no literal to
// look for.
func (m *maker) shapes(re *syntax.Regexp) []shape {
	var out []shape
	for _, q := range m.expand(re, []seq{{}}) {
		s := shape{sets: q.sets, word: q.word, begin: q.begin}
		s.literal, s.offset = m.longest(q.sets)
		if len(s.literal) < 2 && len(s.sets) < 16 || s.literal == "" {
			return nil
		}
		// Shapes that differ only where they end are one.
		if !slices.ContainsFunc(out, func(o shape) bool { return same(o, s) }) {
			out = append(out, s)
		}
	}
	// Two letters are everywhere; with each that can follow they are not.
	var longer []shape
	for _, s := range out {
		next := s.offset + len(s.literal)
		if len(s.literal) != 2 || next == len(s.sets) {
			longer = append(longer, s)
			continue
		}
		pair := s.literal
		for c := range s.sets[next] {
			if s.sets[next][c] && lower(byte(c)) == byte(c) || s.sets[next][upper(byte(c))] && upper(byte(c)) != byte(c) {
				s.literal = pair + string(rune(c))
				longer = append(longer, s)
			}
		}
	}
	return longer
}

func same(a, b shape) bool {
	return a.word == b.word && a.begin == b.begin && slices.Equal(a.sets, b.sets)
}

// longest finds the longest run of places that only one letter fits.
func (m *maker) longest(sets []*set) (string, int) {
	best, at := "", 0
	var run []byte
	for i, s := range sets {
		c, ok := m.letters[s]
		if !ok || len(run) == maxWord {
			run = run[:0]
		}
		if ok {
			run = append(run, c)
		}
		if len(run) > len(best) {
			best, at = string(run), i-len(run)+1
		}
	}
	return best, at
}

// letter is the one letter of a set, lower-cased, if it has only one.
func (s *set) letter() (byte, bool) {
	found, c := false, byte(0)
	for i, in := range s {
		if !in {
			continue
		}
		low := byte(i)
		if 'A' <= low && low <= 'Z' {
			low += 'a' - 'A'
		}
		if found && low != c {
			return 0, false
		}
		found, c = true, low
	}
	return c, found
}

// split is a set of two or three letters, each on its own.
func (s *set) split() []set {
	var out []set
	for c := range s {
		low := lower(byte(c))
		if low != byte(c) || !s[c] && !s[upper(low)] {
			continue
		}
		if len(out) == 3 {
			return nil
		}
		var part set
		part[low], part[upper(low)] = s[low], s[upper(low)]
		out = append(out, part)
	}
	if len(out) < 2 {
		return nil
	}
	return out
}

// expand continues every sequence with what re can match.
func (m *maker) expand(re *syntax.Regexp, in []seq) []seq {
	var out []seq
	for _, q := range in {
		if q.open || len(q.sets) >= maxPlaces {
			q.open = true
			out = append(out, q)
			continue
		}
		out = append(out, m.step(re, q)...)
	}
	if len(out) > maxShapes {
		for i := range in {
			in[i].open = true
		}
		return in
	}
	return out
}

// step continues one sequence with what re can match.
func (m *maker) step(re *syntax.Regexp, q seq) []seq {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpNoWordBoundary, syntax.OpEndLine, syntax.OpEndText:
		return []seq{q}
	case syntax.OpWordBoundary:
		if len(q.sets) == 0 {
			q.word = true
		}
		return []seq{q}
	case syntax.OpBeginText, syntax.OpBeginLine:
		if len(q.sets) == 0 {
			q.begin = true
		}
		return []seq{q}
	case syntax.OpLiteral:
		return m.spell(re, q)
	case syntax.OpCharClass:
		return m.choose(re, q)
	case syntax.OpCapture:
		return m.expand(re.Sub[0], []seq{q})
	case syntax.OpConcat:
		out := []seq{q}
		for _, sub := range re.Sub {
			out = m.expand(sub, out)
		}
		return out
	case syntax.OpAlternate:
		var out []seq
		for _, sub := range re.Sub {
			out = append(out, m.expand(sub, []seq{q})...)
		}
		return out
	case syntax.OpQuest:
		return append(m.expand(re.Sub[0], []seq{q}), q)
	case syntax.OpPlus:
		return open(m.expand(re.Sub[0], []seq{q}))
	case syntax.OpRepeat:
		return m.repeat(re, q)
	default:
		return open([]seq{q})
	}
}

// spell continues a sequence with a literal. It stays open at the first letter
// that is not ASCII.
func (m *maker) spell(re *syntax.Regexp, q seq) []seq {
	for _, r := range re.Rune {
		var s set
		if r >= 0x80 {
			return open([]seq{q})
		}
		s[r] = true
		if re.Flags&syntax.FoldCase != 0 {
			s[upper(byte(r))], s[lower(byte(r))] = true, true
		}
		q.sets = append(slices.Clip(q.sets), m.intern(s))
	}
	return []seq{q}
}

// choose continues a sequence with a choice of letters.
func (m *maker) choose(re *syntax.Regexp, q seq) []seq {
	var s set
	for i := 0; i < len(re.Rune); i += 2 {
		for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
			if r >= 0x80 {
				// Folding adds the long s and the Kelvin sign, which no token has.
				if r == 0x17f || r == 0x212a {
					continue
				}
				return open([]seq{q})
			}
			s[r] = true
		}
	}
	// A choice of a few letters is better followed up each by each: it may stand
	// in the middle of the literal.
	if parts := s.split(); len(q.sets) < maxWord && parts != nil {
		var out []seq
		for _, part := range parts {
			next := q
			next.sets = append(slices.Clip(q.sets), m.intern(part))
			out = append(out, next)
		}
		return out
	}
	q.sets = append(slices.Clip(q.sets), m.intern(s))
	return []seq{q}
}

// repeat continues a sequence with what stands several times. A count that can
// vary by more than two stays open.
func (m *maker) repeat(re *syntax.Regexp, q seq) []seq {
	out := []seq{q}
	for range min(re.Min, maxPlaces) {
		out = m.expand(re.Sub[0], out)
	}
	switch {
	case re.Min < re.Max && re.Max <= re.Min+2 && re.Min > 0:
		last := out
		for range re.Max - re.Min {
			last = m.expand(re.Sub[0], slices.Clone(last))
			out = append(out, last...)
		}
	case re.Max != re.Min:
		out = open(out)
	}
	return out
}

func open(in []seq) []seq {
	for i := range in {
		in[i].open = true
	}
	return in
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

func upper(c byte) byte {
	if 'a' <= c && c <= 'z' {
		c -= 'a' - 'A'
	}
	return c
}

// unfill drops the filler that some rules begin with, up to fifty characters of
// a name before the word that matters. It only ever widens the match, not the
// secret, and without it a match begins with its literal.
func unfill(re *syntax.Regexp) {
	switch re.Op {
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			unfill(sub)
		}
	case syntax.OpCapture:
		unfill(re.Sub[0])
	case syntax.OpConcat:
		for len(re.Sub) > 1 && re.Sub[0].Op == syntax.OpRepeat && re.Sub[0].Min == 0 && re.Sub[0].Flags&syntax.NonGreedy != 0 {
			re.Sub = re.Sub[1:]
		}
		unfill(re.Sub[0])
	}
}

// size is the length of the shortest and the longest match, where -1 is no
// bound, and letters all bytes that it can have.
func size(re *syntax.Regexp, letters *set) (shortest, longest int) {
	switch re.Op {
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			add(letters, r, r, re.Flags&syntax.FoldCase != 0)
			shortest += len(string(r))
		}
		return shortest, shortest
	case syntax.OpCharClass:
		for i := 0; i < len(re.Rune); i += 2 {
			add(letters, re.Rune[i], re.Rune[i+1], false)
			if hi := re.Rune[i+1]; hi >= 0x80 && hi != 0x17f && hi != 0x212a {
				longest = 4
			}
		}
		return 1, max(1, longest)
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		add(letters, 0, 0x10ffff, false)
		return 1, 4
	case syntax.OpCapture:
		return size(re.Sub[0], letters)
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			a, b := size(sub, letters)
			shortest, longest = shortest+a, plus(longest, b)
		}
		return shortest, longest
	case syntax.OpAlternate:
		for i, sub := range re.Sub {
			a, b := size(sub, letters)
			if i == 0 {
				shortest, longest = a, b
				continue
			}
			shortest = min(shortest, a)
			if b < 0 || longest < 0 {
				longest = -1
			} else {
				longest = max(longest, b)
			}
		}
		return shortest, longest
	case syntax.OpQuest:
		_, b := size(re.Sub[0], letters)
		return 0, b
	case syntax.OpStar:
		size(re.Sub[0], letters)
		return 0, -1
	case syntax.OpPlus:
		a, _ := size(re.Sub[0], letters)
		return a, -1
	case syntax.OpRepeat:
		a, b := size(re.Sub[0], letters)
		if b < 0 || re.Max < 0 {
			return a * re.Min, -1
		}
		return a * re.Min, b * re.Max
	}
	return 0, 0
}

func plus(a, b int) int {
	if a < 0 || b < 0 {
		return -1
	}
	return a + b
}

func add(s *set, lo, hi rune, fold bool) {
	for r := lo; r <= min(hi, 0xff); r++ {
		if r < 0x80 {
			s[r] = true
			if fold {
				s[lower(byte(r))], s[upper(byte(r))] = true, true
			}
		}
	}
	if hi >= 0x80 && hi != 0x17f && hi != 0x212a {
		for i := 0x80; i < 0x100; i++ {
			s[i] = true
		}
	}
}

// Most rules are of one form: a name, an operator, and a value that ends at a
// quote or a space. These are the parts of that form as gitleaks writes them.
const (
	operator = `(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)[\x60'"\s=]{0,5}`
	ending   = `(?:[\x60'"\s;]|\\[nr]|$)`
)

// value is the value of such a rule: its letters, and how many there can be.
type value struct {
	letters       set
	shortest, max int
}

// valueOf reads the value out of a rule of that form, or answers nil.
func valueOf(regex string) *value {
	_, rest, ok := strings.Cut(regex, operator)
	if !ok || !strings.HasSuffix(rest, ending) || strings.Contains(rest, operator) {
		return nil
	}
	re, err := syntax.Parse("(?i)"+strings.TrimSuffix(rest, ending), syntax.Perl)
	if err != nil {
		return nil
	}
	v := &value{}
	v.shortest, v.max = size(re, &v.letters)
	for c, is := range ends {
		if is && v.letters[c] {
			return nil // the end of the value is not where its letters end
		}
	}
	return v
}

// The bytes of that form: between name and operator, operator and what stands
// between it and the value, and what ends the value.
var (
	between   = bytesOf(" \t\n\v\f\r'\".-_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	operators = bytesOf("=>:|?,")
	before    = bytesOf("=>:|?,`'\" \t\n\v\f\r")
	ends      = bytesOf("`'\" \t\n\v\f\r;\\")
)

func bytesOf(s string) *set {
	var out set
	for i := range len(s) {
		out[s[i]] = true
	}
	return &out
}

// follows reports whether an operator and such a value can follow a name that
// ends at i.
func (v *value) follows(text []byte, i int) bool {
	for n := 0; ; n++ {
		if i == len(text) || n > 24 {
			return false
		}
		if operators[text[i]] {
			break
		}
		if !between[text[i]] {
			return false
		}
		i++
	}
	first := i + 1
	for n := 0; i < len(text) && n < 9 && before[text[i]]; n++ {
		i++
	}
	start := i
	for i < len(text) && v.letters[text[i]] {
		if i-start > v.max && v.max >= 0 {
			return false
		}
		if i-start == window {
			return true // longer than it pays to look here
		}
		i++
	}
	return i-first >= v.shortest && (i == len(text) || ends[text[i]])
}
