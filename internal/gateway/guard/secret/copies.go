package secret

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"sort"
)

// copies finds further copies of the values that were found. It finds copies of values of at least minCopy bytes, and
// parts of longer values. Such a part has at least minPart bytes.
type copies struct {
	arena  []byte
	values []span
	table  []uint32 // a hash table of the windows: the offset of a window in the arena plus 1, or 0
	// grams contains the groups of four bytes in the windows.
	grams filter
	// gaps contains the groups of four bytes in the text between the matches, if this text is short compared with the
	// values, as in a list of secrets. Most windows do not occur in it and are left out. Otherwise, gaps is not used.
	gaps filter
}

// filter is a set of hashes of four bytes. It has one bit for each number that the first bits of a hash can form.
type filter struct {
	bits  []uint8
	shift uint // the number of bits of a hash after those that select a byte of the filter
}

// reset empties the filter. Its new size is a power of two near size bytes.
func (f *filter) reset(size int) {
	n := minFilter
	for n < min(size, maxFilter) {
		n *= 2
	}
	if cap(f.bits) < n {
		f.bits = make([]uint8, n)
	}
	f.bits = f.bits[:n]
	clear(f.bits)
	f.shift = uint(64 - bits.Len(uint(n-1)))
}

func (f *filter) add(text []byte) {
	h := hashOf(uint64(binary.LittleEndian.Uint32(text)))
	f.bits[h>>(f.shift&63)] |= 1 << (h >> ((f.shift - 3) & 63) & 7)
}

// has reports whether the filter may contain the first four bytes of text.
func (f *filter) has(text []byte) bool {
	h := hashOf(uint64(binary.LittleEndian.Uint32(text)))
	return f.bits[h>>(f.shift&63)]>>(h>>((f.shift-3)&63)&7)&1 != 0
}

type span struct {
	start, end int
	rule       string
}

const (
	minCopy = 8
	minPart = 16
	stride  = 8
	// The search looks for windows of eight bytes of each value, at most maxWindows of them.
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
	c.arena, c.values, c.gaps.bits = c.arena[:0], c.values[:0], c.gaps.bits[:0]
}

// add remembers a value. It ignores a value that consists of words or of few different characters, because such text
// also occurs in harmless places. It always remembers the value of a format, even if the random letters of the value
// look like a word.
func (c *copies) add(rule string, value []byte, format bool) {
	if len(value) < minCopy || len(c.arena)+len(value) > maxCopy || c.isLast(value) {
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

// isLast reports whether a value is the one that was added last. A value is often found both by its name and by its
// format.
func (c *copies) isLast(value []byte) bool {
	n := len(c.values)
	return n > 0 && bytes.Equal(c.arena[c.values[n-1].start:], value)
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

// addGap adds a part of the text between the matches to the filter of gaps.
func (c *copies) addGap(text []byte) {
	for i := 0; i+four <= len(text); i++ {
		c.gaps.add(text[i:])
	}
}

// index prepares the search.
func (c *copies) index() {
	n := 16
	for n < 2*(len(c.arena)/stride+len(c.values)) {
		n *= 2
	}
	if cap(c.table) < n {
		c.table = make([]uint32, n)
	}
	c.table = c.table[:n]
	clear(c.table)
	c.grams.reset(2 * n)
	for _, v := range c.values {
		if c.inGap(v.start) {
			c.insert(v.start)
		}
		if v.end-v.start < 20 {
			continue
		}
		step := max(stride, (v.end-v.start)/maxWindows)
		for at := v.start + step; at+eight <= v.end; at += step {
			if c.inGap(at) && partial(c.arena[at:at+eight]) && (v.end-v.start < minEncoded || !encodesText(c.arena[at:v.end])) {
				c.insert(at)
			}
		}
	}
}

// inGap reports whether the window at an offset of the arena may occur between the matches.
func (c *copies) inGap(at int) bool {
	return len(c.gaps.bits) == 0 || c.gaps.has(c.arena[at:]) && c.gaps.has(c.arena[at+four:])
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

// slotOf returns the slot of the table for a window.
func (c *copies) slotOf(key uint64) int {
	return int(hashOf(key) >> (64 - bits.Len(uint(len(c.table)-1))))
}

func (c *copies) insert(at int) {
	for i := range eight - four + 1 {
		c.grams.add(c.arena[at+i:])
	}
	key := binary.LittleEndian.Uint64(c.arena[at:])
	i := c.slotOf(key)
	for ; c.table[i] != 0; i = (i + 1) & (len(c.table) - 1) {
		if c.keyAt(i) == key {
			return // a value with the same window is already in the table, so the search finds this value too
		}
	}
	c.table[i] = uint32(at) + 1
}

// keyAt returns the window in a slot of the table.
func (c *copies) keyAt(slot int) uint64 { return binary.LittleEndian.Uint64(c.arena[c.table[slot]-1:]) }

// findCopies appends further copies of the values that were found.
func (s *scan) findCopies(dst []Match) []Match {
	if len(s.copies.values) == 0 {
		return dst
	}
	size := 0
	s.eachGap(func(_ int, from, to int) bool {
		size += to - from
		return true
	})
	if size < 2*len(s.copies.arena) {
		s.copies.gaps.reset(size)
		s.eachGap(func(i, from, to int) bool {
			s.copies.addGap(s.forms[i].text[from:to])
			return true
		})
	}
	s.copies.index()
	last := -1
	s.eachGap(func(i, from, to int) (ok bool) {
		first := len(dst)
		if i != last {
			s.effort, last = 0, i
		}
		dst, ok = s.findCopiesIn(s.forms[i].text, from, to, dst)
		for ; i > 0 && first < len(dst); i = s.forms[i].source {
			s.toSource(i, dst[first:])
		}
		return ok
	})
	return dst
}

// eachGap calls a callback with each part of a form between its matches, if the part is long enough for a copy. If the
// callback returns false, eachGap skips the rest of the form.
func (s *scan) eachGap(do func(form, from, to int) bool) {
	for i := range s.forms {
		f, at := &s.forms[i], 0
		more := true
		for _, m := range s.kept[f.first:f.last] {
			if m.Start-at >= minCopy && more {
				more = do(i, at, m.Start)
			}
			at = m.End
		}
		if len(f.text)-at >= minCopy && more {
			do(i, at, len(f.text))
		}
	}
}

// findCopiesIn appends a match to dst for each copy and each part in text[from:to]. It looks up every fourth offset in the
// filter, because each window contains four bytes at one of these offsets. If the effort reaches the limit, the rest of
// the text becomes one match, and findCopiesIn returns false.
func (s *scan) findCopiesIn(text []byte, from, to int, dst []Match) ([]Match, bool) {
	c, whole := &s.copies, text
	text = text[from:to]
	low := 0 // the end of the last match
	for i := 0; i+four <= len(text); i += four {
		if !c.grams.has(text[i:]) {
			continue
		}
		for at := max(low, i-four+1); at <= i && at+eight <= len(text); at++ {
			if !c.grams.has(text[at:]) || !c.grams.has(text[at+four:]) {
				continue
			}
			if s.effort += copyEffort; s.tired(from+at, rateForm) {
				return s.giveUp(whole, from+at+1, dst), false
			}
			if start, end, rule, ok := c.copyAt(text, at); ok {
				dst = append(dst, Match{rule, from + start, from + end, rankName + 1})
				low, i = end, end-four
				break
			}
		}
	}
	return dst, true
}

// copyAt returns the copy or part around the window at offset i.
func (c *copies) copyAt(text []byte, i int) (start, end int, rule string, ok bool) {
	key := binary.LittleEndian.Uint64(text[i:])
	for j := c.slotOf(key); c.table[j] != 0; j = (j + 1) & (len(c.table) - 1) {
		if c.keyAt(j) != key {
			continue
		}
		window := int(c.table[j]) - 1
		v := c.values[sort.Search(len(c.values), func(k int) bool { return c.values[k].end > window })]
		start, at := i, window
		for start > 0 && at > v.start && text[start-1] == c.arena[at-1] {
			start, at = start-1, at-1
		}
		end = i + eight + same(text[i+eight:], c.arena[window+eight:v.end])
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
	s.forms, s.kept = append(s.forms[:0], textForm{text: text, last: len(found)}), append(s.kept[:0], found...)
	return Merge(s.findCopies(found))
}
