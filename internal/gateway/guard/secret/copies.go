package secret

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// copies finds further copies of the values that were found. It finds copies of values of at least minCopy bytes, and
// parts of longer values. Such a part has at least minPart bytes.
type copies struct {
	arena  []byte
	values []span
	table  []window // a hash table of the windows
	// grams is a filter: it has one bit for each number that the first bits of a hash can form. The bit is set if a window
	// contains four bytes whose hash begins with that number.
	grams []uint8
	shift uint // the number of bits of a hash after those that select a byte of the filter
}

type span struct {
	start, end int
	rule       string
}

// window is eight bytes of a value.
type window struct {
	key   uint64
	value uint32 // index of the value plus 1; 0 if the slot is empty
	at    uint32 // offset in the arena
}

const (
	minCopy = 8
	minPart = 16
	stride  = 8
	// maxWindows is the maximum number of windows per value that the search looks for.
	maxWindows = 32
	maxCopy    = 1 << 20 // maximum size of all remembered values in bytes
	// minEncoded is the minimum length of a value that contains encoded text, such as a JSON Web Token.
	minEncoded = 64
	eight      = 8
	four       = 4

	// The limits of the size of the filter in bytes. A filter of the larger size fits into the CPU cache.
	minFilter = 4 << 10
	maxFilter = 64 << 10
)

func (c *copies) reset() {
	c.arena, c.values = c.arena[:0], c.values[:0]
}

// add remembers a value. It ignores a value that consists of words or of few different characters, because such text
// also occurs in harmless places. It always remembers the value of a format, even if the random letters of the value
// look like a word.
func (c *copies) add(rule string, value []byte, format bool) {
	if len(value) < minCopy || len(c.arena)+len(value) > maxCopy {
		return
	}
	head := value[:min(len(value), minPart)]
	if !varied(head) || !format && nonLetter.index(head) == len(head) && measure(head).wordy() {
		return
	}
	start := len(c.arena)
	c.arena = append(c.arena, value...)
	c.values = append(c.values, span{start, len(c.arena), rule})
}

// nonLetter contains the characters that are neither letters nor blanks.
var nonLetter = bytesOf("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ").not()

// varied reports whether a value has at least four different characters.
func varied(value []byte) bool {
	var low, high uint64
	for _, c := range value {
		low |= uint64(1) << (c & 63) &^ -uint64(c>>6&1)
		high |= uint64(1) << (c & 63) & -uint64(c>>6&1)
	}
	return bits.OnesCount64(low)+bits.OnesCount64(high) >= 4
}

// index prepares the search. It returns false if there is nothing to search for.
func (c *copies) index() bool {
	if len(c.values) == 0 {
		return false
	}
	n := 16
	for n < 2*(len(c.arena)/stride+len(c.values)) {
		n *= 2
	}
	if cap(c.table) < n {
		c.table = make([]window, n)
	}
	c.table = c.table[:n]
	clear(c.table)
	size := min(max(2*n, minFilter), maxFilter)
	if cap(c.grams) < size {
		c.grams = make([]uint8, size)
	}
	c.grams = c.grams[:size]
	clear(c.grams)
	c.shift = uint(64 - bits.Len(uint(size-1)))
	for i, v := range c.values {
		c.insert(i, v.start)
		if v.end-v.start < 20 {
			continue
		}
		step := max(stride, (v.end-v.start)/maxWindows)
		for at := v.start + step; at+eight <= v.end; at += step {
			if partial(c.arena[at:at+eight]) && (v.end-v.start < minEncoded || !encodesText(c.arena[at:v.end])) {
				c.insert(i, at)
			}
		}
	}
	return true
}

// partial reports whether a part of a value is specific enough to search for. A part without a digit may be the public
// prefix of a token, and a part with a space may be in the header of a private key. For both, partial returns false.
func partial(w []byte) bool {
	digits := 0
	for _, b := range w {
		if b == ' ' {
			return false
		}
		if '0' <= b && b <= '9' {
			digits++
		}
	}
	return digits > 0
}

// encodesText reports whether a part of a value begins with the base64 form of readable text. The payload of a JSON Web
// Token contains such parts, but so does harmless base64 data that encodes the same text.
func encodesText(part []byte) bool {
	for shift := 0; shift < 4 && shift+eight <= len(part); shift++ {
		if p := part[shift : shift+eight]; printable(p[0], p[1], p[2], p[3]) && printable(p[4], p[5], p[6], p[7]) {
			return true
		}
	}
	return false
}

// printable reports whether four characters of base64 encode printable ASCII characters.
func printable(a, b, c, d byte) bool {
	w, x, y, z := digit64[a], digit64[b], digit64[c], digit64[d]
	if (w|x|y|z)&0x80 != 0 {
		return false
	}
	first, second, third := w<<2|x>>4, x<<4|y>>2, y<<6|z
	return ' ' <= first && first <= '~' && ' ' <= second && second <= '~' && ' ' <= third && third <= '~'
}

// digit64 contains the value of each character of URL-safe base64, or 0xff for other characters.
var digit64 = func() (out [256]byte) {
	for i := range out {
		out[i] = 0xff
	}
	for i, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") {
		out[c] = byte(i)
	}
	return out
}()

// seed makes the hashes unpredictable, so that an attacker cannot write many values that share a slot of the table. An
// odd factor spreads any set of keys evenly over the first bits of the products.
var seed = rand.Uint64() | 1

func hashOf(key uint64) uint64 { return key * seed }

// slotOf returns the slot of the table for a hash.
func (c *copies) slotOf(hash uint64) int {
	return int(hash >> (64 - bits.Len(uint(len(c.table)-1))))
}

func (c *copies) insert(value, at int) {
	for i := range eight - four + 1 {
		h := hashOf(uint64(binary.LittleEndian.Uint32(c.arena[at+i:])))
		c.grams[h>>c.shift] |= 1 << (h >> (c.shift - 3) & 7)
	}
	key := binary.LittleEndian.Uint64(c.arena[at:])
	h := hashOf(key)
	for i := c.slotOf(h); ; i = (i + 1) & (len(c.table) - 1) {
		switch w := &c.table[i]; {
		case w.value == 0:
			*w = window{key, uint32(value) + 1, uint32(at)}
			return
		case w.key == key:
			return // a value with the same window is already in the table, so the search finds this value too
		}
	}
}

// hasGram reports whether a window may contain the first four bytes of text.
func (c *copies) hasGram(text []byte) bool {
	h := hashOf(uint64(binary.LittleEndian.Uint32(text)))
	return c.grams[h>>(c.shift&63)]>>(h>>((c.shift-3)&63)&7)&1 != 0
}

// find appends a match to dst for each copy and each part in text[from:to]. It looks up every fourth offset in the
// filter, because each window contains four bytes at one of these offsets.
func (c *copies) find(text []byte, from, to int, dst []Match) []Match {
	text = text[from:to]
	low := 0 // the end of the last match
	for i := 0; i+four <= len(text); i += four {
		if !c.hasGram(text[i:]) {
			continue
		}
		for at := max(low, i-four+1); at <= i && at+eight <= len(text); at++ {
			if !c.hasGram(text[at:]) || !c.hasGram(text[at+four:]) {
				continue
			}
			if start, end, rule, ok := c.copyAt(text, at); ok {
				dst = append(dst, Match{rule, from + start, from + end, rankName + 1})
				low, i = end, end-four
				break
			}
		}
	}
	return dst
}

// copyAt returns the copy or part around the window at offset i.
func (c *copies) copyAt(text []byte, i int) (start, end int, rule string, ok bool) {
	key := binary.LittleEndian.Uint64(text[i:])
	for j := c.slotOf(hashOf(key)); c.table[j].value != 0; j = (j + 1) & (len(c.table) - 1) {
		w := &c.table[j]
		if w.key != key {
			continue
		}
		v := c.values[w.value-1]
		start, at := i, int(w.at)
		for start > 0 && at > v.start && text[start-1] == c.arena[at-1] {
			start, at = start-1, at-1
		}
		end = i + eight + same(text[i+eight:], c.arena[int(w.at)+eight:v.end])
		n := end - start
		return start, end, v.rule, n == v.end-v.start && bounded(text, start, end) || n >= minPart
	}
	return 0, 0, "", false
}

// same returns the length of the common prefix of a and b.
func same(a, b []byte) int {
	n := min(len(a), len(b))
	a, b = a[:n], b[:n]
	if bytes.Equal(a, b) {
		return n
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// bounded reports whether a copy is either long or a whole word of the text.
func bounded(text []byte, start, end int) bool {
	return end-start >= minPart || (start == 0 || !alnum[text[start-1]]) && (end == len(text) || !alnum[text[end]])
}

// Values collects the values that scans have found, so that their copies in other texts can be found.
type Values struct {
	list []Match // the value is text[Start:End]
	text []byte
}

func (v *Values) add(c *copies) {
	for _, x := range c.values {
		if len(v.text)+x.end-x.start <= maxCopy {
			v.list = append(v.list, Match{Rule: x.rule, Start: len(v.text), End: len(v.text) + x.end - x.start})
			v.text = append(v.text, c.arena[x.start:x.end]...)
		}
	}
}

// AddCopies adds all copies of the values in a text to the matches in the text.
func (e *Engine) AddCopies(text []byte, v *Values, found []Match) []Match {
	s := e.scratch.Get().(*scan)
	defer func() {
		s.forms = s.forms[:0:0] // the text may be large
		e.scratch.Put(s)
	}()
	s.copies.reset()
	for _, m := range v.list {
		s.copies.add(m.Rule, v.text[m.Start:m.End], true)
	}
	if !s.copies.index() {
		return found
	}
	s.forms, s.kept = append(s.forms[:0], textForm{text: text, last: len(found)}), append(s.kept[:0], found...)
	return Merge(s.findCopies(found))
}
