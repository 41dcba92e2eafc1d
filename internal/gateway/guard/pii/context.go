package pii

// How far from a number a word still speaks for it.
const (
	ahead  = 72
	behind = 28
)

// words are what a text may say about a number beside it, by their first byte.
type words [256][]string

func newWords(list ...string) *words {
	var w words
	for _, word := range list {
		w[word[0]] = append(w[word[0]], word)
	}
	return &w
}

// near reports whether one of the words is near text[start:end], or in the name of the
// text's member. Short words must match whole words, long ones may be a prefix.
func (s *search) near(start, end int, w *words) bool {
	if w == nil {
		return false
	}
	if len(s.raw) > 0 {
		if len(s.key) == 0 {
			s.key = humps(s.key, s.raw)
		}
		if w.in(s.key) {
			return true
		}
	}
	// Several checks ask about the same position.
	if s.low.at != start || len(s.low.text) == 0 {
		s.low.at, s.low.text = start, s.low.text[:0]
		for _, c := range s.text[max(s.lineStart(start), start-ahead):start] {
			s.low.text = append(s.low.text, lower(c))
		}
	}
	return w.in(s.low.text) || s.follows(end, w)
}

// follows reports whether one of the words follows end.
func (s *search) follows(end int, w *words) bool {
	var low [behind]byte
	n := 0
	for _, c := range s.text[end:min(len(s.text), end+behind)] {
		if c == '\n' || c == ';' || c == ',' {
			break
		}
		low[n] = lower(c)
		n++
	}
	return w.in(low[:n])
}

// lineStart returns the start of the paragraph that contains start.
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

// in reports whether a text in lower case has one of the words.
func (w *words) in(text []byte) bool {
	for i := 0; i < len(text); i++ {
		if i > 0 && alnum(text[i-1]) {
			continue
		}
		for _, word := range w[text[i]] {
			j := i + len(word)
			if j > len(text) || string(text[i:j]) != word {
				continue
			}
			if len(word) > 4 || j == len(text) || !alnum(text[j]) || text[j] == 's' && (j+1 == len(text) || !alnum(text[j+1])) {
				return true
			}
		}
	}
	return false
}

// humps is a name in lower-case words, in the space of dst: userSSN and user_ssn
// are "user ssn".
func humps(dst, name []byte) []byte {
	dst = dst[:0]
	for i := range len(name) {
		c := name[i]
		if 'A' <= c && c <= 'Z' && i > 0 && (name[i-1] < 'A' || name[i-1] > 'Z') {
			dst = append(dst, ' ')
		}
		if c == '.' || c == '/' {
			c = ' '
		}
		dst = append(dst, lower(c))
	}
	return dst
}
