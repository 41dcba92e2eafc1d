package pii

import "strings"

// How far from a number a word still speaks for it.
const (
	ahead  = 72
	behind = 28
)

// near reports whether one of the words stands beside text[start:end], or in the
// name that the text stands under. Short words must stand alone, long ones may be
// the beginning of another.
func (s *search) near(start, end int, words []string) bool {
	if len(s.raw) > 0 {
		if s.key == "" {
			s.key = humps(s.raw)
		}
		if mentions(s.key, words) {
			return true
		}
	}
	from, to := max(s.lineStart(start), start-ahead), min(len(s.text), end+behind)
	s.low = s.low[:0]
	for _, c := range s.text[from:start] {
		s.low = append(s.low, lower(c))
	}
	if mentions(string(s.low), words) {
		return true
	}
	s.low = s.low[:0]
	for _, c := range s.text[end:to] {
		if c == '\n' || c == ';' || c == ',' {
			break
		}
		s.low = append(s.low, lower(c))
	}
	return mentions(string(s.low), words)
}

// lineStart is where the paragraph before start begins.
func (s *search) lineStart(start int) int {
	from := max(0, start-ahead)
	for i := start - 1; i > from; i-- {
		if s.text[i] == '\n' && s.text[i-1] == '\n' {
			return i
		}
	}
	return from
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	if c == '_' || c == '-' || c == '\n' || c == '\t' {
		c = ' '
	}
	return c
}

// mentions reports whether a text in lower case has one of the words.
func mentions(text string, words []string) bool {
	for _, w := range words {
		for at := 0; ; {
			i := strings.Index(text[at:], w)
			if i < 0 {
				break
			}
			i += at
			j := i + len(w)
			if (i == 0 || !alnum(text[i-1])) && (len(w) > 4 || j == len(text) || !alnum(text[j]) || text[j] == 's' && (j+1 == len(text) || !alnum(text[j+1]))) {
				return true
			}
			at = i + 1
		}
	}
	return false
}

// humps is a name in lower-case words: userSSN and user_ssn are "user ssn".
func humps(name []byte) string {
	var b strings.Builder
	b.Grow(len(name) + 4)
	for i := range len(name) {
		c := name[i]
		if 'A' <= c && c <= 'Z' && i > 0 && (name[i-1] < 'A' || name[i-1] > 'Z') {
			b.WriteByte(' ')
		}
		if c == '.' || c == '/' {
			c = ' '
		}
		b.WriteByte(lower(c))
	}
	return b.String()
}
