package secret

import "math/bits"

// quality counts the kinds of characters in a value.
type quality struct {
	size                              int
	read                              int // the number of bytes that were read; the other numbers refer to these bytes
	lower, upper, digits, hex, blanks int
	other                             int
	distinct                          int
	pairs, common                     int // the number of pairs of letters, and how many of them are common in words
}

// sample is the maximum number of bytes of a value that are read to judge it.
const sample = 48

// Each kind of byte has a counter of eight bits in one 64-bit word. A byte adds 1 to the counter of each of its kinds.
const (
	countLower = 1 << (8 * iota)
	countUpper
	countDigit
	countHex
	countBlank
)

// An element of pairs contains two counters of eight bits each: the number of pairs, and the number of common pairs.
const (
	countPair = 1 << (8 * iota)
	countCommon
)

// kind contains the properties of a byte that measure adds up.
type kind struct {
	counts    uint64
	low, high uint64 // a bit for each byte, to count the different bytes
	letter    uint64 // the number of a letter, or 0
}

var kinds = func() (out [256]kind) {
	for c := range out {
		k := &out[c]
		switch {
		case 'a' <= c && c <= 'z':
			k.counts, k.letter = countLower, uint64(c&0x1f)
		case 'A' <= c && c <= 'Z':
			k.counts, k.letter = countUpper, uint64(c&0x1f|0x20)
		case '0' <= c && c <= '9':
			k.counts = countDigit
		case c == ' ':
			k.counts = countBlank
		}
		if hexes[c] {
			k.counts += countHex
		}
		if bit := uint64(1) << (c & 63); c&64 == 0 {
			k.low = bit
		} else {
			k.high = bit
		}
	}
	return out
}()

// pairs contains the counts of any two adjacent bytes, by the numbers of their letters. A pair is two letters. A capital
// after a small letter begins a new word, so these two are not a pair.
var pairs = func() (out [64 * 64]uint16) {
	for a := range 64 {
		for b := range 64 {
			if a&0x1f == 0 || b&0x1f == 0 || a < 32 && b >= 32 {
				continue
			}
			out[a<<6|b] = countPair + uint16(bigrams[a&0x1f]>>(b&0x1f)&1)*countCommon
		}
	}
	return out
}()

// measure reads the beginning of a value. Its loop has no branches, because the CPU would mispredict them for random
// letters.
func measure(value []byte) (q quality) {
	q.size, q.read = len(value), min(len(value), sample)
	var low, high, counts, couples, last uint64
	for _, c := range value[:q.read] {
		k := &kinds[c]
		low, high, counts = low|k.low, high|k.high, counts+k.counts
		last = (last<<6 | k.letter) & (64*64 - 1)
		couples += uint64(pairs[last])
	}
	q.lower, q.upper, q.digits = int(counts&0xff), int(counts>>8&0xff), int(counts>>16&0xff)
	q.hex, q.blanks = int(counts>>24&0xff), int(counts>>32&0xff)
	q.pairs, q.common = int(couples&0xff), int(couples>>8&0xff)
	q.other = q.read - q.lower - q.upper - q.digits - q.blanks
	q.distinct = bits.OnesCount64(low) + bits.OnesCount64(high)
	return q
}

// letters reports whether a value consists only of letters and digits.
func (q quality) letters() bool { return q.other+q.blanks == 0 && q.read == q.size }

// wordy reports whether a value consists of words.
func (q quality) wordy() bool {
	n := q.read
	if q.digits > 1 && q.lower > 0 && q.other == 0 && 8*q.pairs < 5*(q.lower+q.upper) {
		return false // digits and capitals separate the letters, and the pairs that remain look like words by chance
	}
	if q.size < 20 {
		return q.pairs >= 4 && 3*q.common > 2*q.pairs
	}
	return q.pairs > n/4 && 4*q.common > 3*q.pairs
}

// password reports whether a value can be a password.
func (q quality) password(quoted bool) bool {
	n := q.read
	if q.size < 6 || q.size > 256 || q.blanks > 0 || q.distinct < 4 {
		return false
	}
	letters := q.lower + q.upper
	switch {
	case !quoted && q.digits == 0:
		return n >= 16 && q.upper > 1 && q.lower > 1 && q.distinct >= 8 && !q.wordy()
	case !quoted:
		return n >= 8 && q.digits > 0 && letters > 0 && q.distinct >= 6 && (q.digits > 1 || q.other > 0 || !q.wordy())
	case q.digits == n:
		return true
	case q.digits > 0 && letters > 0:
		return true
	case q.other > 0 && letters > 0:
		return n >= 8 && !q.wordy()
	}
	return q.upper > 1 && q.lower > 1 && n >= 10 && !q.wordy()
}

// token reports whether the value can be a token and is not shorter than the given number of bytes.
func (q quality) token(shortest int) bool {
	n := q.read
	if q.size < shortest || q.blanks > 0 {
		return false
	}
	if q.digits == 0 {
		return n >= 12 && q.upper > 1 && q.lower > 1 && q.distinct >= 9 && 2*q.common < q.pairs && 3*q.other < n
	}
	if q.digits == n {
		return n >= 14 && q.distinct >= 5
	}
	if q.hex == n {
		return n >= 16 && q.distinct >= 6
	}
	return (q.distinct >= min(9, n-2) || q.mixed()) && !q.wordy() && 3*q.other < n
}

// mixed reports whether a value mixes capital letters, small letters and digits, as few names do.
func (q quality) mixed() bool {
	return q.read >= 10 && q.blanks == 0 && q.upper > 1 && q.lower > 1 && q.digits > 1 && q.distinct >= 7 && !q.wordy() &&
		3*q.other < q.read
}

// strong reports whether a value looks like a token even if its name does not mark it as one: it is long, mixes kinds
// of characters, and is not a hash or UUID.
func (q quality) strong() bool {
	n := q.read
	random := q.digits > 1 || q.upper > 5 && q.lower > 5
	return q.size >= 20 && q.upper > 1 && q.lower > 1 && random && q.distinct >= 14 && q.hex < n-2 &&
		4*q.common < q.pairs*2 && q.other*8 < n
}

// clear reports whether a value is so clearly a token that no operator is needed before it.
func (q quality) clear() bool {
	n := q.read
	return q.token(20) && (q.strong() || q.hex == n && q.size >= 32)
}
