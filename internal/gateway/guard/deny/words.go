package deny

import (
	"regexp/syntax"
	"strings"
	"unicode"
)

// Words that announce a pattern are at least so long, and at most so many.
const (
	minWord  = 3
	maxWords = 80
)

// required are words of which every match has at least one, or nil if there are
// no such words.
func required(re *syntax.Regexp) []string {
	switch re.Op {
	case syntax.OpLiteral:
		return usable(string(re.Rune))
	case syntax.OpCapture:
		return required(re.Sub[0])
	case syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			words := required(sub)
			if words == nil || len(all)+len(words) > maxWords {
				return nil
			}
			all = append(all, words...)
		}
		return all
	case syntax.OpConcat:
		var best []string
		for _, words := range runs(re.Sub) {
			if better(words, best) {
				best = words
			}
		}
		return best
	}
	return nil
}

// beginning are the words of which every match begins with one, or nil, and
// whether a match begins with a word.
func beginning(re *syntax.Regexp) (first []string, word bool) {
	switch re.Op {
	case syntax.OpCapture:
		return beginning(re.Sub[0])
	case syntax.OpConcat:
		parts := re.Sub
		for len(parts) > 0 && parts[0].Op == syntax.OpWordBoundary {
			parts, word = parts[1:], true
		}
		for n := 1; n <= len(parts); n++ {
			longer := spell(parts[:n])
			if longer == nil {
				break
			}
			first = longer
		}
		if first == nil && len(parts) > 0 && parts[0].Op == syntax.OpConcat {
			return beginning(parts[0])
		}
	default:
		first = spellOne(re)
	}
	for i, w := range first {
		if w == "" || word && !wordByte(w[0]) {
			return nil, word // the boundary before a sign is the end of a word
		}
		// Only its head, up to white space of any kind, is sure to be written like this.
		if space := strings.IndexFunc(w, unicode.IsSpace); space >= 0 {
			w = w[:space]
		}
		u := usable(w)
		if u == nil {
			return nil, word
		}
		first[i] = u[0]
	}
	return first, word
}

// following are words of which every match has one after its first part.
func following(re *syntax.Regexp) []string {
	for re.Op == syntax.OpCapture {
		re = re.Sub[0]
	}
	if re.Op != syntax.OpConcat {
		return nil
	}
	parts := re.Sub
	for len(parts) > 0 && parts[0].Op == syntax.OpWordBoundary {
		parts = parts[1:]
	}
	// The first word may be in several parts; what is exact is left out.
	for len(parts) > 0 && spell(parts[:1]) != nil {
		parts = parts[1:]
	}
	return required(&syntax.Regexp{Op: syntax.OpConcat, Sub: parts})
}

// runs are the words that each part of a sequence requires. Parts that are single
// letters or choices of endings join their neighbours.
func runs(parts []*syntax.Regexp) [][]string {
	var out [][]string
	for i := 0; i < len(parts); i++ {
		if words := required(parts[i]); words != nil {
			out = append(out, words)
		}
		// A stem and its endings: ignor(?:e|ing). The parser factors what words have
		// in common, which is too short to look for.
		if exact := spell(parts[i : i+1]); exact != nil {
			for j := i + 1; j < len(parts); j++ {
				longer := spell(parts[i : j+1])
				if longer == nil {
					break
				}
				exact = longer
			}
			if words := allUsable(exact); words != nil {
				out = append(out, words)
			}
		}
	}
	return out
}

// spell is everything that a sequence can be, if that is a few words.
func spell(parts []*syntax.Regexp) []string {
	out := []string{""}
	for _, p := range parts {
		var next []string
		for _, tail := range spellOne(p) {
			for _, head := range out {
				next = append(next, head+tail)
			}
		}
		if len(next) == 0 || len(next) > maxWords/2 {
			return nil
		}
		out = next
	}
	return out
}

func spellOne(re *syntax.Regexp) []string {
	switch re.Op {
	case syntax.OpLiteral:
		return []string{string(re.Rune)}
	case syntax.OpCapture:
		return spellOne(re.Sub[0])
	case syntax.OpConcat:
		return spell(re.Sub)
	case syntax.OpEmptyMatch, syntax.OpWordBoundary:
		return []string{""}
	case syntax.OpQuest:
		return append(spellOne(re.Sub[0]), "")
	case syntax.OpCharClass:
		var out []string
		seen := map[string]bool{}
		for i := 0; i < len(re.Rune); i += 2 {
			for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
				if r == 0x17f || r == 0x212a {
					continue
				}
				if s := strings.ToLower(string(r)); !seen[s] {
					seen[s] = true
					out = append(out, s)
				}
				if len(out) > 4 {
					return nil
				}
			}
		}
		return out
	case syntax.OpAlternate:
		var out []string
		for _, sub := range re.Sub {
			words := spellOne(sub)
			if words == nil || len(out)+len(words) > maxWords {
				return nil
			}
			out = append(out, words...)
		}
		return out
	}
	return nil
}

func allUsable(words []string) []string {
	var out []string
	for _, w := range words {
		u := usable(w)
		if u == nil {
			return nil
		}
		out = append(out, u...)
	}
	return out
}

// usable is the longest part of a literal that has no white space, which may be
// written in many ways, and no other than ASCII.
func usable(s string) []string {
	best := ""
	for _, part := range strings.Fields(s) {
		if len(part) > len(best) {
			best = part
		}
	}
	if len(best) < minWord {
		return nil
	}
	for i := range len(best) {
		if best[i] >= 0x80 {
			return nil
		}
	}
	return []string{best}
}

// better prefers long words, then few.
func better(a, b []string) bool {
	if b == nil || a == nil {
		return a != nil
	}
	if x, y := min(shortest(a), 6), min(shortest(b), 6); x != y {
		return x > y
	}
	return len(a) < len(b)
}

func shortest(words []string) int {
	n := len(words[0])
	for _, w := range words {
		n = min(n, len(w))
	}
	return n
}

// anchored reports whether a pattern asks for the start or end of the text or of
// a line.
func anchored(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText:
		return true
	}
	for _, sub := range re.Sub {
		if anchored(sub) {
			return true
		}
	}
	return false
}

// class is a set of bytes that a pattern repeats without a bound.
type class [256]bool

// assumed is how long such a repetition is taken to be. It is exact as long as
// no run of the class in a text is longer, and that is checked.
const assumed = 128

// spaces is how long white space without a bound is taken to be: where there is
// more, the reading with white space collapsed has one.
const spaces = 8

// blank reports whether an expression is white space and nothing else.
func blank(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpLiteral:
		return strings.TrimSpace(string(re.Rune)) == ""
	case syntax.OpCharClass:
		for i := 0; i < len(re.Rune); i += 2 {
			if lo, hi := re.Rune[i], re.Rune[i+1]; hi-lo > 8 || strings.TrimSpace(string(lo)+string(hi)) != "" {
				return false
			}
		}
		return true
	}
	return false
}

// width is the length of the longest match in bytes, or -1 for no bound, and the
// classes that it repeats as long as assumed.
func width(re *syntax.Regexp) (longest int, repeated []*class) {
	switch re.Op {
	case syntax.OpLiteral:
		return len(string(re.Rune)) + 2*len(re.Rune), nil // folding can make a letter longer
	case syntax.OpCharClass:
		for i := 1; i < len(re.Rune); i += 2 {
			if hi := re.Rune[i]; hi >= 0x80 && hi != 0x17f && hi != 0x212a {
				return 4, nil
			}
		}
		return 1, nil
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 4, nil
	case syntax.OpCapture, syntax.OpQuest:
		return width(re.Sub[0])
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			n, r := width(sub)
			if n < 0 {
				return -1, nil
			}
			longest, repeated = longest+n, append(repeated, r...)
		}
		return longest, repeated
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			n, r := width(sub)
			if n < 0 {
				return -1, nil
			}
			longest, repeated = max(longest, n), append(repeated, r...)
		}
		return longest, repeated
	case syntax.OpStar, syntax.OpPlus:
		if blank(re.Sub[0]) {
			return spaces, nil
		}
		if c := classOf(re.Sub[0]); c != nil {
			return assumed, []*class{c}
		}
		return -1, nil
	case syntax.OpRepeat:
		n, r := width(re.Sub[0])
		if re.Max < 0 || n < 0 {
			return -1, nil
		}
		return n * re.Max, r
	}
	return 0, nil
}

// classOf is the bytes of a class of characters. A class that has nearly all of
// them is none: its runs are as long as the text.
func classOf(re *syntax.Regexp) *class {
	if re.Op != syntax.OpCharClass {
		return nil
	}
	var c class
	n := 0
	for i := 0; i < len(re.Rune); i += 2 {
		for r := re.Rune[i]; r <= min(re.Rune[i+1], 0x7f); r++ {
			c[r] = true
			n++
		}
		if hi := re.Rune[i+1]; hi >= 0x80 && hi != 0x17f && hi != 0x212a {
			for b := 0x80; b < 0x100; b++ {
				c[b] = true
			}
		}
	}
	if n > 100 {
		return nil
	}
	return &c
}

// fits reports whether no run of the class in a text is longer than assumed. It
// looks at one byte in many.
func (c *class) fits(text []byte) bool {
	for i := assumed - 1; i < len(text); i += assumed {
		if !c[text[i]] {
			continue
		}
		a, b := i, i+1
		for a > 0 && c[text[a-1]] && i-a <= assumed {
			a--
		}
		for b < len(text) && c[text[b]] && b-i <= assumed {
			b++
		}
		if b-a > assumed {
			return false
		}
	}
	return true
}
