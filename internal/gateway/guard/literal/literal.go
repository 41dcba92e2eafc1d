// Package literal searches a text for many words in one pass.
//
// The scans in package guard use it as a prefilter: they run slow checks only where a word was found.
//
// A [Set] is an Aho-Corasick automaton in one dense table. Each byte of text needs two loads and no branch. Each load
// depends on the previous one, so [Set.Scan] splits the text into four lanes and scans them in parallel, which is
// three times as fast.
//
// The search ignores the case of ASCII letters. A caller that needs the exact case must check the text at a hit.
package literal

import "errors"

// Set is a compiled set of words. It is safe for concurrent use.
type Set struct {
	class [256]uint8
	shift uint
	// next[state|class] is the state after a byte of the given class. A state is the index at which its row begins in the
	// table, plus the bit s.hit if a word ends in the state.
	next  []uint32
	hit   uint32
	words [][]uint16 // the words that end in each state whose hit bit is set
	size  []int      // how many bytes of each word are compared
	reach int        // the maximum of size
}

// Hit is the position where a word ends. [Set.Words] returns the words that end there.
type Hit struct {
	End   int
	state uint32
}

// ErrTooMany means that the words do not fit into the table.
var ErrTooMany = errors.New("literal: too many words")

// maxStates limits the size of the table to a few megabytes.
const maxStates = 1 << 15

// New compiles a set of words. The search compares only the first maxLen bytes of each word, and even fewer if the
// table would become too large. The search treats all bytes of a group as equal.
func New(words []string, maxLen int, groups ...string) (*Set, error) {
	longest := 0
	for _, w := range words {
		longest = max(longest, len(w))
	}
	if longest == 0 {
		s, _ := build(nil, 0, nil)
		return s, nil
	}
	for maxLen = min(maxLen, longest); maxLen >= 1; maxLen-- {
		if s, ok := build(words, maxLen, groups); ok {
			return s, nil
		}
	}
	return nil, ErrTooMany
}

// build compiles the first maxLen bytes of each word. It returns false if the table would become too large.
func build(words []string, maxLen int, groups []string) (*Set, bool) {
	s := &Set{size: make([]int, len(words))}
	t, ok := s.buildTrie(s.assignClasses(words, maxLen, groups))
	if !ok {
		return nil, false
	}
	t.addTransitions()
	s.writeTable(t)
	return s, true
}

// assignClasses assigns a class to every byte that occurs in a word. Bytes that the search treats as equal have the
// same class and the same representative. The result is the list of shortened words, with each byte replaced by its
// representative.
func (s *Set) assignClasses(words []string, maxLen int, groups []string) (folded []string) {
	var canon [256]byte
	for i := range canon {
		canon[i] = byte(i)
		if 'A' <= i && i <= 'Z' {
			canon[i] += 'a' - 'A'
		}
	}
	for _, group := range groups {
		for i := range len(group) {
			canon[group[i]] = group[0]
		}
	}
	folded = make([]string, len(words))
	classes := 1
	for i, w := range words {
		w = fold(w[:min(len(w), maxLen)], &canon)
		folded[i], s.size[i] = w, len(w)
		s.reach = max(s.reach, len(w))
		for _, c := range []byte(w) {
			if s.class[c] == 0 {
				s.class[c] = uint8(classes)
				classes++
			}
		}
	}
	for c, to := range canon {
		// Apply canon twice. The first step can map a letter to lower case. The second step can then map the lower-case
		// letter to the first byte of its group.
		s.class[c] = s.class[canon[to]]
	}
	for 1<<s.shift < classes {
		s.shift++
	}
	return folded
}

// trie is the automaton under construction, with one row for each state.
type trie struct {
	shift uint
	next  []uint32
	ends  [][]uint16 // the words that end in each state
}

func (t *trie) width() int { return 1 << t.shift }

// buildTrie builds a trie of the words. It returns false if the trie has too many states.
func (s *Set) buildTrie(folded []string) (*trie, bool) {
	t := &trie{shift: s.shift, ends: [][]uint16{nil}}
	t.next = make([]uint32, t.width())
	for i, w := range folded {
		at := uint32(0)
		for _, c := range []byte(w) {
			slot := at<<t.shift | uint32(s.class[c])
			if t.next[slot] == 0 {
				if len(t.ends) == maxStates {
					return nil, false
				}
				t.next[slot] = uint32(len(t.ends))
				t.next = append(t.next, make([]uint32, t.width())...)
				t.ends = append(t.ends, nil)
			}
			at = t.next[slot]
		}
		if at != 0 {
			t.ends[at] = append(t.ends[at], uint16(i))
		}
	}
	return t, true
}

// addTransitions adds a transition for each byte that does not continue a word. After such a byte, only a suffix of the
// text read so far can be the beginning of a word. The transition leads to the state of the longest such suffix. The
// states are processed in breadth-first order, so this state is complete before it is needed.
func (t *trie) addTransitions() {
	fail := make([]uint32, len(t.ends))
	queue := make([]uint32, 0, len(t.ends))
	for _, to := range t.next[:t.width()] {
		if to != 0 {
			queue = append(queue, to)
		}
	}
	for i := 0; i < len(queue); i++ {
		at := queue[i]
		back := fail[at]
		t.ends[at] = append(t.ends[at], t.ends[back]...)
		for c := range uint32(t.width()) {
			slot := at<<t.shift | c
			if to := t.next[slot]; to != 0 {
				fail[to] = t.next[back<<t.shift|c]
				queue = append(queue, to)
			} else {
				t.next[slot] = t.next[back<<t.shift|c]
			}
		}
	}
}

// writeTable writes the final table. The states in which a word ends get the highest numbers, so that a single bit
// distinguishes them from the other states.
func (s *Set) writeTable(t *trie) {
	plain := uint32(0)
	number := make([]uint32, len(t.ends))
	for at, e := range t.ends {
		if len(e) == 0 {
			number[at] = plain
			plain++
		}
	}
	top := uint32(1)
	for top < max(plain, uint32(len(t.ends))-plain) {
		top <<= 1
	}
	next := top
	s.words = [][]uint16{}
	for at, e := range t.ends {
		if len(e) > 0 {
			number[at] = next
			next++
			s.words = append(s.words, e)
		}
	}
	s.hit = top << s.shift
	s.next = make([]uint32, next<<s.shift)
	for at := range t.ends {
		for c := range uint32(t.width()) {
			s.next[number[at]<<s.shift|c] = number[t.next[uint32(at)<<s.shift|c]] << s.shift
		}
	}
}

// fold returns s with each byte replaced by its representative.
func fold(s string, canon *[256]byte) string {
	b := []byte(s)
	for i, c := range b {
		b[i] = canon[canon[c]]
	}
	return string(b)
}

// Words returns the words that end at a hit, as indexes into the list that was passed to [New].
func (s *Set) Words(h Hit) []uint16 { return s.words[(h.state&^s.hit)>>s.shift] }

// Size returns the number of bytes that the search compares for a word.
func (s *Set) Size(word uint16) int { return s.size[word] }

// Block is the recommended number of bytes for one call of [Set.Scan]. A block of this size stays in the CPU cache.
const Block = 1 << 13

// Hits contains the hits of a scan, one list per lane. It can be reused.
type Hits [4][]Hit

// Scan finds the words that end in text[from:to] and stores the hits in h. The hits of each lane are in order. A word
// can begin before text[from].
func (s *Set) Scan(text []byte, from, to int, h *Hits) {
	for i := range h {
		h[i] = h[i][:0]
	}
	n := (to - from) / 4
	if n < 32 {
		h[0] = s.walk(text, from, to, s.stateAt(text, from), h[0])
		return
	}
	a, b, c, d := text[from:from+n], text[from+n:from+2*n], text[from+2*n:from+3*n], text[from+3*n:from+4*n]
	sa, sb := s.stateAt(text, from), s.stateAt(text, from+n)
	sc, sd := s.stateAt(text, from+2*n), s.stateAt(text, from+3*n)
	next, class, hit := s.next, &s.class, s.hit
	b, c, d = b[:len(a)], c[:len(a)], d[:len(a)]
	for i := range a {
		sa = next[sa|uint32(class[a[i]])]
		sb = next[sb|uint32(class[b[i]])]
		sc = next[sc|uint32(class[c[i]])]
		sd = next[sd|uint32(class[d[i]])]
		if (sa|sb|sc|sd)&hit != 0 {
			h.add(hit, i+1+from, n, sa, sb, sc, sd)
		}
	}
	h[3] = s.walk(text, from+4*n, to, sd, h[3])
}

//go:noinline
func (h *Hits) add(hit uint32, end, n int, a, b, c, d uint32) {
	if a&hit != 0 {
		h[0] = append(h[0], Hit{end, a})
	}
	if b&hit != 0 {
		h[1] = append(h[1], Hit{end + n, b})
	}
	if c&hit != 0 {
		h[2] = append(h[2], Hit{end + 2*n, c})
	}
	if d&hit != 0 {
		h[3] = append(h[3], Hit{end + 3*n, d})
	}
}

// stateAt returns the state of the automaton at an offset of the text. It reads only those preceding bytes that can be
// part of a word.
func (s *Set) stateAt(text []byte, at int) uint32 {
	state := uint32(0)
	for _, c := range text[max(0, at-max(s.reach-1, 0)):at] {
		state = s.next[state|uint32(s.class[c])]
	}
	return state
}

func (s *Set) walk(text []byte, from, to int, state uint32, hits []Hit) []Hit {
	for i := from; i < to; i++ {
		if state = s.next[state|uint32(s.class[text[i]])]; state&s.hit != 0 {
			hits = append(hits, Hit{i + 1, state})
		}
	}
	return hits
}

// Contains reports whether text contains any of the words.
func (s *Set) Contains(text []byte) bool {
	state := uint32(0)
	for _, c := range text {
		if state = s.next[state|uint32(s.class[c])]; state&s.hit != 0 {
			return true
		}
	}
	return false
}
