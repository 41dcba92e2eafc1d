package pii

import "strings"

// The maximum distance, in bytes, between a number and a word that describes the number.
const (
	maxBefore = 72 // for a word before the number
	maxAfter  = 28 // for a word after the number
)

// words contains words that describe a nearby number. They are grouped by their first byte.
type words [256][]string

func newWords(list string) *words {
	var w words
	for word := range strings.SplitSeq(list, ", ") {
		w[word[0]] = append(w[word[0]], word)
	}
	return &w
}

// wordNear reports whether one of the words is near text[start:end] or in the name of the JSON member. A word of up
// to four letters must match a whole word. A longer word can also match the beginning of a word.
func (s *search) wordNear(start, end int, w *words) bool {
	if w == nil {
		return false
	}
	if len(s.raw) > 0 {
		if len(s.key) == 0 {
			s.key = splitName(s.key, s.raw)
		}
		if w.foundIn(s.key) {
			return true
		}
	}
	// Several checks use the same position, so cache the lower-case text before it.
	if s.low.at != start || len(s.low.text) == 0 {
		s.low.at, s.low.text = start, s.low.text[:0]
		for _, c := range s.text[max(s.paragraphStart(start), start-maxBefore):start] {
			s.low.text = append(s.low.text, lower(c))
		}
	}
	return w.foundIn(s.low.text) || s.wordAfter(end, w)
}

// wordAfter reports whether one of the words occurs shortly after an offset of the text.
func (s *search) wordAfter(end int, w *words) bool {
	var low [maxAfter]byte
	n := 0
	for _, c := range s.text[end:min(len(s.text), end+maxAfter)] {
		if c == '\n' || c == ';' || c == ',' {
			break
		}
		low[n] = lower(c)
		n++
	}
	return w.foundIn(low[:n])
}

// paragraphStart returns the start of the paragraph that contains an offset of the text. It looks back at most
// maxBefore bytes.
func (s *search) paragraphStart(start int) int {
	from := max(0, start-maxBefore)
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

// foundIn reports whether a lower-case text contains one of the words.
func (w *words) foundIn(text []byte) bool {
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

// splitName splits a name into lower-case words. For example, userSSN and user_ssn become "user ssn". The result reuses
// the memory of dst.
func splitName(dst, name []byte) []byte {
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
