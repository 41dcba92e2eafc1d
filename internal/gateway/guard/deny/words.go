package deny

import (
	"regexp/syntax"
	"strings"
	"unicode"
)

// The search looks for at most maxWords words per pattern. Each word has at least minWord bytes.
const (
	minWord  = 3
	minFirst = 2 // the minimum length of a word at the beginning of a match
	maxWords = 80
)

// requiredWords returns a list of words such that every match of the expression contains at least one of them. It
// returns nil if there is no such list.
func requiredWords(re *syntax.Regexp) []string {
	switch re.Op {
	case syntax.OpLiteral:
		return usablePart(string(re.Rune), minWord)
	case syntax.OpCapture:
		return requiredWords(re.Sub[0])
	case syntax.OpPlus:
		return requiredWords(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return requiredWords(re.Sub[0])
		}
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			words := requiredWords(sub)
			if words == nil || len(all)+len(words) > maxWords {
				return nil
			}
			all = append(all, words...)
		}
		return all
	case syntax.OpConcat:
		var best []string
		for _, words := range wordLists(re.Sub) {
			if isBetter(words, best) {
				best = words
			}
		}
		return best
	}
	return nil
}

// firstWords returns a list of words such that every match of the expression begins with one of them. It returns nil if
// there is no such list. The second result reports whether a word boundary must precede the match.
func firstWords(re *syntax.Regexp) (first []string, word bool) {
	switch re.Op {
	case syntax.OpCapture:
		return firstWords(re.Sub[0])
	case syntax.OpConcat:
		parts := re.Sub
		for len(parts) > 0 && parts[0].Op == syntax.OpWordBoundary {
			parts, word = parts[1:], true
		}
		for n := 1; n <= len(parts); n++ {
			longer := spellings(parts[:n])
			if longer == nil {
				break
			}
			first = longer
		}
		if first == nil && len(parts) > 0 && parts[0].Op == syntax.OpConcat {
			return firstWords(parts[0])
		}
	default:
		first = spellOne(re)
	}
	for i, w := range first {
		if w == "" || word && !wordByte(w[0]) {
			return nil, word // if w begins with a sign, \b matches only after a word character
		}
		// White space can be written in many ways, so search only for the part before it.
		if space := strings.IndexFunc(w, unicode.IsSpace); space >= 0 {
			w = w[:space]
		}
		u := usablePart(w, minFirst)
		if u == nil {
			return nil, word
		}
		first[i] = u[0]
	}
	return first, word
}

// laterWords returns a list of words. Every match contains one of these words after its first word. It returns nil if
// there is no such list.
func laterWords(re *syntax.Regexp) []string {
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
	// The first word can consist of several parts, so skip all parts with a fixed spelling.
	for len(parts) > 0 && spellings(parts[:1]) != nil {
		parts = parts[1:]
	}
	return requiredWords(&syntax.Regexp{Op: syntax.OpConcat, Sub: parts})
}

// wordLists returns several lists of words. Every match of the sequence contains a word from each list.
func wordLists(parts []*syntax.Regexp) [][]string {
	var out [][]string
	for i := 0; i < len(parts); i++ {
		if words := requiredWords(parts[i]); words != nil {
			out = append(out, words)
		}
		// Join a stem and its endings, as in ignor(?:e|ing). The endings alone are too short to search for. The parser
		// separates stem and endings when it factors out common prefixes.
		if exact := spellings(parts[i : i+1]); exact != nil {
			for j := i + 1; j < len(parts); j++ {
				longer := spellings(parts[i : j+1])
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

// spellings returns all strings that a sequence can match, or nil if there are too many.
func spellings(parts []*syntax.Regexp) []string {
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
		return spellings(re.Sub)
	case syntax.OpEmptyMatch, syntax.OpWordBoundary:
		return []string{""}
	case syntax.OpQuest:
		if words := spellOne(re.Sub[0]); words != nil {
			return append(words, "")
		}
		return nil
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
		u := usablePart(w, minWord)
		if u == nil {
			return nil
		}
		out = append(out, u...)
	}
	return out
}

// usablePart splits a literal at white space, which can be written in many ways, and returns the longest part. It
// returns nil if the part is shorter than minBytes or is not ASCII.
func usablePart(s string, minBytes int) []string {
	best := ""
	for _, part := range strings.Fields(s) {
		if len(part) > len(best) {
			best = part
		}
	}
	if len(best) < minBytes {
		return nil
	}
	for i := range len(best) {
		if best[i] >= 0x80 {
			return nil
		}
	}
	return []string{best}
}

// isBetter reports whether the words in list a are better to search for than those in list b. Longer words are better.
// If the lengths are equal, the list with fewer words is better.
func isBetter(a, b []string) bool {
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

// hasAnchor reports whether an expression contains an anchor, such as ^ or $.
func hasAnchor(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText:
		return true
	}
	for _, sub := range re.Sub {
		if hasAnchor(sub) {
			return true
		}
	}
	return false
}

// class is a set of bytes that a pattern repeats without a limit.
type class [256]bool

// maxRun is the length that maxWidth assumes for an unlimited repetition of a class. The method hasShortRuns checks
// that no run in a text is longer.
const maxRun = 128

// maxSpaces is the length that maxWidth assumes for an unlimited repetition of white space. Longer runs are collapsed
// before matching.
const maxSpaces = 8

// isBlank reports whether an expression matches only white space.
func isBlank(re *syntax.Regexp) bool {
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

// maxWidth returns the maximum length of a match in bytes, or -1 if there is no limit. The result is valid only for a
// text in which all runs of the returned classes are short.
func maxWidth(re *syntax.Regexp) (longest int, repeated []*class) {
	switch re.Op {
	case syntax.OpLiteral:
		return len(string(re.Rune)) + 2*len(re.Rune), nil // case folding can make a letter longer
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
		return maxWidth(re.Sub[0])
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			n, r := maxWidth(sub)
			if n < 0 {
				return -1, nil
			}
			longest, repeated = longest+n, append(repeated, r...)
		}
		return longest, repeated
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			n, r := maxWidth(sub)
			if n < 0 {
				return -1, nil
			}
			longest, repeated = max(longest, n), append(repeated, r...)
		}
		return longest, repeated
	case syntax.OpStar, syntax.OpPlus:
		if isBlank(re.Sub[0]) {
			return maxSpaces, nil
		}
		if c := classOf(re.Sub[0]); c != nil {
			return maxRun, []*class{c}
		}
		return -1, nil
	case syntax.OpRepeat:
		n, r := maxWidth(re.Sub[0])
		if re.Max < 0 || n < 0 {
			return -1, nil
		}
		return n * re.Max, r
	}
	return 0, nil
}

// classOf returns the bytes in a character class. It returns nil for a class of nearly all bytes, because such a class
// can match the whole text.
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

// hasShortRuns reports whether every run of the class in text has at most maxRun bytes. It looks for runs only around
// every maxRun-th byte of the text, because each longer run contains at least one of these bytes.
func (c *class) hasShortRuns(text []byte) bool {
	for i := maxRun - 1; i < len(text); i += maxRun {
		if !c[text[i]] {
			continue
		}
		a, b := i, i+1
		for a > 0 && c[text[a-1]] && i-a <= maxRun {
			a--
		}
		for b < len(text) && c[text[b]] && b-i <= maxRun {
			b++
		}
		if b-a > maxRun {
			return false
		}
	}
	return true
}
