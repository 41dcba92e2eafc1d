// Package literal finds many words in a text in one pass, whatever their case.
//
// It is the prefilter of every scan in the guard: an Aho-Corasick automaton as one dense
// table, so that a byte costs two loads and no branch. A single chain of such loads waits
// for the cache, so the text is split into four lanes that are scanned in parallel, which
// is three times as fast.
//
// Words are ASCII and match in any case. The caller checks the case if it matters.
package literal

import "errors"

// Set is a compiled set of words. It is safe for concurrent use.
type Set struct {
	class [256]uint8
	shift uint
	// next[state|class] is the next state. A state is the index of its row, and
	// the bit hit is set in those in which a word ends.
	next  []uint32
	hit   uint32
	words [][]uint16 // by the number of the state, without the bit
	size  []int      // bytes of each word that are looked for
	reach int        // the longest of them
}

// Hit is the end of a word. [Set.Words] returns the words of its state.
type Hit struct {
	End   int
	state uint32
}

// ErrTooMany means that the words do not fit into a table.
var ErrTooMany = errors.New("literal: too many words")

// maxStates bounds the table to some megabytes.
const maxStates = 1 << 15

// New compiles words. Only their first cut bytes are looked for, or fewer where
// the table would get too large. The bytes of each of alike count as the first of
// them.
func New(words []string, cut int, alike ...string) (*Set, error) {
	longest := 0
	for _, w := range words {
		longest = max(longest, len(w))
	}
	if longest == 0 {
		s, _ := build(nil, 0, nil)
		return s, nil
	}
	for cut = min(cut, longest); cut >= 1; cut-- {
		if s, ok := build(words, cut, alike); ok {
			return s, nil
		}
	}
	return nil, ErrTooMany
}

// build compiles the first cut bytes of words, and reports whether they fit.
func build(words []string, cut int, alike []string) (*Set, bool) {
	s := &Set{size: make([]int, len(words))}
	t, ok := s.plant(s.sort(words, cut, alike))
	if !ok {
		return nil, false
	}
	t.link()
	s.lay(t)
	return s, true
}

// sort gives every letter of the words its class, and returns the words in the
// letters that stand for all that are alike.
func (s *Set) sort(words []string, cut int, alike []string) (folded []string) {
	var canon [256]byte
	for i := range canon {
		canon[i] = byte(i)
		if 'A' <= i && i <= 'Z' {
			canon[i] += 'a' - 'A'
		}
	}
	for _, group := range alike {
		for i := range len(group) {
			canon[group[i]] = group[0]
		}
	}
	folded = make([]string, len(words))
	classes := 1
	for i, w := range words {
		w = fold(w[:min(len(w), cut)], &canon)
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
		// An upper-case letter is what its lower-case letter is.
		s.class[c] = s.class[canon[to]]
	}
	for 1<<s.shift < classes {
		s.shift++
	}
	return folded
}

// trie is the automaton while it is made, in rows of a state each.
type trie struct {
	shift uint
	next  []uint32
	ends  [][]uint16 // the words that end in a state
}

func (t *trie) width() int { return 1 << t.shift }

// plant makes the trie of words, and reports whether they fit.
func (s *Set) plant(folded []string) (*trie, bool) {
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

// link leads every letter that does not go on to where the longest ending of what
// was read does. Breadth first: a state's failure is complete before the state is.
func (t *trie) link() {
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

// lay writes the table. The states in which a word ends move up, so that a bit
// distinguishes them.
func (s *Set) lay(t *trie) {
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

// fold is s in the letters that stand for all that are alike.
func fold(s string, canon *[256]byte) string {
	b := []byte(s)
	for i, c := range b {
		b[i] = canon[canon[c]]
	}
	return string(b)
}

// Words are the words that end in a hit, as indexes into the words the set was
// made of.
func (s *Set) Words(h Hit) []uint16 { return s.words[(h.state&^s.hit)>>s.shift] }

// Size is the number of bytes of a word that were matched.
func (s *Set) Size(word uint16) int { return s.size[word] }

// Block is how much text [Set.Scan] should be given at a time: what four lanes
// can walk while their text stays in the cache.
const Block = 1 << 16

// Hits is the scratch space of a scan, to be reused.
type Hits [4][]Hit

// Scan finds the words that end in text[from:to], in order, lane by lane. Words
// may begin before from.
func (s *Set) Scan(text []byte, from, to int, h *Hits) {
	for i := range h {
		h[i] = h[i][:0]
	}
	n := (to - from) / 4
	if n < 32 {
		h[0] = s.walk(text, from, to, s.enter(text, from), h[0])
		return
	}
	a, b, c, d := text[from:from+n], text[from+n:from+2*n], text[from+2*n:from+3*n], text[from+3*n:from+4*n]
	sa, sb := s.enter(text, from), s.enter(text, from+n)
	sc, sd := s.enter(text, from+2*n), s.enter(text, from+3*n)
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

// enter is the state of a walk that arrives at a place.
func (s *Set) enter(text []byte, at int) uint32 {
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

// Contains reports whether any word is in text.
func (s *Set) Contains(text []byte) bool {
	state := uint32(0)
	for _, c := range text {
		if state = s.next[state|uint32(s.class[c])]; state&s.hit != 0 {
			return true
		}
	}
	return false
}
