package secret

import (
	"regexp/syntax"
	"slices"
	"strings"
)

// shape describes the first bytes of a rule's matches: for each position, it has a set of possible bytes. Some
// positions form a literal, which a prefilter searches for. Where the literal is found, a few table lookups exclude
// most candidates. Only the remaining candidates are matched against the regular expression.
type shape struct {
	sets []*set
	// If word is set, a word boundary must precede the match. If begin is set, the match must be at the start of the
	// text.
	word, begin bool
	literal     string
	offset      int // offset of the literal in the match
}

type set [256]bool

// These are the maximum numbers: positions in a shape, shapes for a rule, and bytes in a literal.
const (
	maxPlaces = 48
	maxShapes = 96
	maxWord   = 8
)

// seq is a shape under construction. If open is set, a match can continue after the last set, but the shape does not
// describe the rest, because the rest varies too much or a limit is reached.
type seq struct {
	sets        []*set
	word, begin bool
	open        bool
}

// maker builds shapes. It stores each distinct set only once, because the rules share many sets.
type maker struct {
	known   map[set]*set
	letters map[*set]byte // maps each set with only one letter to that letter
}

func newMaker() *maker { return &maker{map[set]*set{}, map[*set]byte{}} }

func (m *maker) intern(s set) *set {
	if p := m.known[s]; p != nil {
		return p
	}
	p := &s
	m.known[s] = p
	if c, ok := s.onlyLetter(); ok {
		m.letters[p] = c
	}
	return p
}

// shapes returns the shapes of the texts that a rule matches. It returns nil if one of the shapes has no literal to
// search for.
func (m *maker) shapes(re *syntax.Regexp) []shape {
	var out []shape
	for _, q := range m.extendAll(re, []seq{{}}) {
		s := shape{sets: q.sets, word: q.word, begin: q.begin}
		s.literal, s.offset = m.longestLiteral(q.sets)
		if len(s.literal) < 2 && len(s.sets) < 16 || s.literal == "" {
			return nil
		}
		if !slices.ContainsFunc(out, func(o shape) bool { return same(o, s) }) {
			out = append(out, s)
		}
	}
	// A two-letter literal is too common. Replace it with longer literals, one for each letter that can follow it.
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

// longestLiteral returns the longest literal in a sequence of sets, and its offset. Each position of a literal has only
// one possible letter.
func (m *maker) longestLiteral(sets []*set) (string, int) {
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

// onlyLetter returns the only character in a set, in lower case. It returns false if the set has several characters.
// The upper and lower case of a letter are treated as one character.
func (s *set) onlyLetter() (byte, bool) {
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

// splitLetters returns one set for each letter in s, if s has two or three letters. Otherwise it returns nil.
func (s *set) splitLetters() []set {
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

// extendAll extends every sequence by the text that re can match. If this results in too many sequences, extendAll
// marks the old sequences as open instead.
func (m *maker) extendAll(re *syntax.Regexp, in []seq) []seq {
	var out []seq
	for _, q := range in {
		if q.open || len(q.sets) >= maxPlaces {
			q.open = true
			out = append(out, q)
			continue
		}
		out = append(out, m.extend(re, q)...)
	}
	if len(out) > maxShapes {
		for i := range in {
			in[i].open = true
		}
		return in
	}
	return out
}

// extend extends one sequence by the text that re can match.
func (m *maker) extend(re *syntax.Regexp, q seq) []seq {
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
		return m.addLiteral(re, q)
	case syntax.OpCharClass:
		return m.addClass(re, q)
	case syntax.OpCapture:
		return m.extendAll(re.Sub[0], []seq{q})
	case syntax.OpConcat:
		out := []seq{q}
		for _, sub := range re.Sub {
			out = m.extendAll(sub, out)
		}
		return out
	case syntax.OpAlternate:
		var out []seq
		for _, sub := range re.Sub {
			out = append(out, m.extendAll(sub, []seq{q})...)
		}
		return out
	case syntax.OpQuest:
		return append(m.extendAll(re.Sub[0], []seq{q}), q)
	case syntax.OpPlus:
		return open(m.extendAll(re.Sub[0], []seq{q}))
	case syntax.OpRepeat:
		return m.addRepeat(re, q)
	default:
		return open([]seq{q})
	}
}

// addLiteral extends a sequence by a literal. It stops at the first non-ASCII character and marks the sequence as open.
func (m *maker) addLiteral(re *syntax.Regexp, q seq) []seq {
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

// addClass extends a sequence by a character class.
func (m *maker) addClass(re *syntax.Regexp, q seq) []seq {
	var s set
	for i := 0; i < len(re.Rune); i += 2 {
		for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
			if r >= 0x80 {
				// Case folding adds the long s and the Kelvin sign, which no token contains.
				if r == 0x17f || r == 0x212a {
					continue
				}
				return open([]seq{q})
			}
			s[r] = true
		}
	}
	// Create a separate sequence for each letter of a small class. Otherwise a class in the middle of a literal would
	// split the literal.
	if parts := s.splitLetters(); len(q.sets) < maxWord && parts != nil {
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

// addRepeat extends a sequence by a repetition. If the number of repetitions can vary by more than two, addRepeat marks
// the sequence as open.
func (m *maker) addRepeat(re *syntax.Regexp, q seq) []seq {
	out := []seq{q}
	for range min(re.Min, maxPlaces) {
		out = m.extendAll(re.Sub[0], out)
	}
	switch {
	case re.Min < re.Max && re.Max <= re.Min+2 && re.Min > 0:
		last := out
		for range re.Max - re.Min {
			last = m.extendAll(re.Sub[0], slices.Clone(last))
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

// dropPrefix removes the optional start of a rule's expression. In some rules, this start matches up to fifty
// characters of a name before the keyword. These characters are not part of the secret. Without them, a match begins
// with the keyword.
func dropPrefix(re *syntax.Regexp) {
	switch re.Op {
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			dropPrefix(sub)
		}
	case syntax.OpCapture:
		dropPrefix(re.Sub[0])
	case syntax.OpConcat:
		for len(re.Sub) > 1 && re.Sub[0].Op == syntax.OpRepeat && re.Sub[0].Min == 0 &&
			re.Sub[0].Flags&syntax.NonGreedy != 0 {
			re.Sub = re.Sub[1:]
		}
		dropPrefix(re.Sub[0])
	}
}

// matchSize returns the minimum and the maximum length of a match of re. A maximum of -1 means no limit. matchSize also
// adds every byte that can occur in a match to *letters.
func matchSize(re *syntax.Regexp, letters *set) (shortest, longest int) {
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
		return matchSize(re.Sub[0], letters)
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			a, b := matchSize(sub, letters)
			shortest, longest = shortest+a, plus(longest, b)
		}
		return shortest, longest
	case syntax.OpAlternate:
		for i, sub := range re.Sub {
			a, b := matchSize(sub, letters)
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
		_, b := matchSize(re.Sub[0], letters)
		return 0, b
	case syntax.OpStar:
		matchSize(re.Sub[0], letters)
		return 0, -1
	case syntax.OpPlus:
		a, _ := matchSize(re.Sub[0], letters)
		return a, -1
	case syntax.OpRepeat:
		a, b := matchSize(re.Sub[0], letters)
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

// Most rules describe assignments, which consist of a name, an operator and a value. These are the expressions that
// gitleaks uses for the operator and for the end of the value.
const (
	operator = `(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)[\x60'"\s=]{0,5}`
	ending   = `(?:[\x60'"\s;]|\\[nr]|$)`
)

// value describes the values that an assignment rule matches: the possible bytes, and the minimum and maximum length.
type value struct {
	letters       set
	shortest, max int
}

// valueOf returns a description of an assignment rule's values, or nil if the rule is not for assignments.
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
	v.shortest, v.max = matchSize(re, &v.letters)
	for c, is := range ends {
		if is && v.letters[c] {
			return nil // c can be part of a value, so canFollow could not find the end of the value
		}
	}
	return v
}

// These are the bytes that can occur in an assignment: between the name and the operator, in the operator, before the
// value, and directly after the value.
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

// canFollow reports whether an operator and a value of this kind can follow a name that ends at offset i.
func (v *value) canFollow(text []byte, i int) bool {
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
			return true // too long to check here, so leave it to the expression
		}
		i++
	}
	return i-first >= v.shortest && (i == len(text) || ends[text[i]])
}
