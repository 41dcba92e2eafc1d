package flow

import (
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"math/bits"
	"sort"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/gateway/guard/view"
)

// The limits of a block and its tokens, in bytes. Positions and offsets in a block fit into 16 bits.
const (
	maxBlock = 32 << 10
	minBlock = 1 << 10
	maxToken = 128
	// overlap is the number of tokens at the end of a full block that the next block repeats. A value near the end of a
	// block therefore appears together with its surrounding text in at least one of the two blocks.
	overlap = 48
)

// block is running text, split into tokens, with an index of the tokens. A token is a run of letters and digits. A
// character of a script without spaces between words is a token of its own. The text of a block consists of the tokens,
// each with one space after it.
type block struct {
	text    []byte
	starts  []uint16 // the offset of each token
	prev    []uint16 // for each position, the previous position in the same bucket, plus 1; 0 if there is none
	heads   []uint16 // for each bucket of token hashes, the last position plus 1; the length is a power of two
	pairs   []uint64 // a Bloom filter of each two adjacent tokens; the length is a power of two
	last    uint32   // the hash of the last token
	sources []span
	origins int // the number of calls in sources
	// parts has a bit for each token, which is set if isPart is true for the token.
	parts []uint64
	// deleting contains the first position of each token that can start a verb of the family deleting.
	deleting []uint16
}

// span is one text in a block. It begins at the position first and ends where the next span begins.
type span struct {
	first int
	*Source
}

// newBlock returns a block for a text of at most the given size.
func newBlock(size int) *block {
	size = min(max(size+maxToken+1, minBlock), maxBlock)
	buckets := 1 << bits.Len(uint(size/4-1))
	return &block{
		text: make([]byte, 0, size), starts: make([]uint16, 0, size/5), prev: make([]uint16, 0, size/5),
		heads: make([]uint16, buckets), pairs: make([]uint64, buckets/8), parts: make([]uint64, size/5/64+1),
	}
}

func (b *block) size() int {
	return cap(b.text) + 2*(cap(b.starts)+cap(b.prev)+len(b.heads)+cap(b.deleting)) + 8*(len(b.pairs)+cap(b.parts)) + 16*cap(b.sources) + 200*b.origins
}

func (b *block) time() time.Time { return b.sources[len(b.sources)-1].Time }

// source returns the source of the token at a position.
func (b *block) source(at int) Source {
	return *b.sources[b.spanAt(at)].Source
}

// spanAt returns the index of the span that contains a position.
func (b *block) spanAt(at int) int {
	return max(0, sort.Search(len(b.sources), func(i int) bool { return b.sources[i].first > at })-1)
}

// bounds returns the limits of the text that contains a position: the position of its first token, and the position
// after its last.
func (b *block) bounds(at int) (first, end int) {
	i := b.spanAt(at)
	if i+1 < len(b.sources) {
		return b.sources[i].first, b.sources[i+1].first
	}
	return b.sources[i].first, len(b.starts)
}

func (b *block) token(at int) []byte {
	end := len(b.text)
	if at+1 < len(b.starts) {
		end = int(b.starts[at+1])
	}
	return b.text[b.starts[at] : end-1]
}

// startsWith reports whether the block contains the given text at a position. The given text has one space after each
// of its tokens.
func (b *block) startsWith(at int, text []byte) bool {
	return bytes.HasPrefix(b.text[b.starts[at]:], text)
}

// free returns the unused space of the block, or nil if a token of maximum length does not fit into it.
func (b *block) free() []byte {
	if cap(b.text)-len(b.text) <= maxToken {
		return nil
	}
	return b.text[len(b.text):cap(b.text)]
}

// from begins a new text whose source is src.
func (b *block) from(src *Source) {
	if n := len(b.sources); n == 0 || b.sources[n-1].Source != src {
		b.origins++
	}
	b.sources = append(b.sources, span{len(b.starts), src})
}

// isPart reports whether a token is part of an address, a path, an option or the name of a program, see partOf.
func (b *block) isPart(at int) bool { return b.parts[at/64]&(1<<(at%64)) != 0 }

// add adds a token whose n bytes the caller has already written to the start of the free space.
func (b *block) add(n int, hash uint32, part bool) {
	at, start := len(b.starts), len(b.text)
	if at/64 >= len(b.parts) {
		b.parts = append(b.parts, 0)
	}
	if part {
		b.parts[at/64] |= 1 << (at % 64)
	}
	b.text = b.text[:start+n+1]
	b.text[start+n] = ' '
	if token := b.text[start : start+n]; table.deletes(token) && len(b.deleting) < maxDeleting && !b.has(token, hash) {
		b.deleting = append(b.deleting, uint16(at))
	}
	head := &b.heads[hash&uint32(len(b.heads)-1)]
	b.starts = append(b.starts, uint16(start))
	b.prev = append(b.prev, *head)
	*head = uint16(at + 1)
	word, mask := b.pair(b.last, hash)
	*word |= mask
	b.last = hash
}

// maxDeleting is the maximum number of positions in block.deleting.
const maxDeleting = 1024

// tail returns the position from which the next block repeats tokens, and the size of these tokens in bytes.
func (b *block) tail() (from, size int) {
	from = max(b.sources[len(b.sources)-1].first, len(b.starts)-overlap)
	if from < len(b.starts) {
		size = len(b.text) - int(b.starts[from])
	}
	return from, size
}

// repeat copies the tokens of a full block, from a position on.
func (b *block) repeat(full *block, from int) {
	for at := from; at < len(full.starts); at++ {
		token := full.token(at)
		b.add(copy(b.free(), token), hashOf(token), full.isPart(at))
	}
}

// has reports whether the block contains a token.
func (b *block) has(token []byte, hash uint32) bool {
	p := b.head(hash)
	for p != 0 && string(b.token(int(p)-1)) != string(token) {
		p = b.prev[p-1]
	}
	return p != 0
}

// pair returns where the Bloom filter stores two adjacent tokens: a word of the filter, and the bits in that word.
func (b *block) pair(first, second uint32) (word *uint64, mask uint64) {
	h := (uint64(first)<<32 | uint64(second)) * 0x9e3779b97f4a7c15
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return &b.pairs[h>>32&uint64(len(b.pairs)-1)], 1<<(h&63) | 1<<(h>>6&63)
}

// tokenFilter is a Bloom filter of all tokens of a memory, so that most searches need not look at each block. Tokens of
// removed blocks stay in it.
type tokenFilter [1 << 12]uint64

func (f *tokenFilter) add(hash uint32) { f[hash>>6&(1<<12-1)] |= 1 << (hash & 63) }

// mayHave reports whether a token may be in the memory. If mayHave returns false, the token is certainly not there.
func (f *tokenFilter) mayHave(hash uint32) bool { return f[hash>>6&(1<<12-1)]&(1<<(hash&63)) != 0 }

// mayFollow reports whether the second token may directly follow the first somewhere in the block. A result of false is
// certain.
func (b *block) mayFollow(first, second uint32) bool {
	word, mask := b.pair(first, second)
	return *word&mask == mask
}

// head returns the last position of a bucket plus 1. It is 0 if the block contains no token with the given hash.
func (b *block) head(hash uint32) uint16 { return b.heads[hash&uint32(len(b.heads)-1)] }

const (
	hashStart = 2166136261
	hashPrime = 16777619
)

// hashOf returns the FNV-1a hash of a token.
func hashOf(token []byte) uint32 {
	hash := uint32(hashStart)
	for _, c := range token {
		hash = (hash ^ uint32(c)) * hashPrime
	}
	return hash
}

// folded maps ASCII letters and digits to lower case, and all other ASCII characters to 0.
var folded = func() (t [256]byte) {
	for c := byte('a'); c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = c, c
	}
	for c := byte('0'); c <= '9'; c++ {
		t[c] = c
	}
	return t
}()

// normal returns a text without look-alikes, accents and invisible characters. The result is valid until v is used
// again.
func normal(text []byte, v *view.View) []byte {
	if (!view.ASCII(text) || bytes.IndexByte(text, 0) >= 0) && v.Normal(text) {
		return v.Text
	}
	return text
}

// partOf finds the end of the word at a position. A word is a text without spaces, quotation marks and brackets. The
// second result reports whether the word is an address, a path, an option or the name of a program, such as
// contacts.write or --delete, or a label such as "Mail:". A verb in such a word is not a request.
func partOf(text []byte, at int) (end int, part bool) {
	marks := 0
	for end = at; end < len(text); end++ {
		switch c := text[end]; wordBytes[c] {
		case inWord:
		case endsWord:
			return end, marks > 1 || isLabel(text[at:end])
		default:
			switch alone := end == at || end+1 == len(text) || folded[text[end-1]] == 0 || folded[text[end+1]] == 0; {
			case c == '@' && end > at, c == ':' && bytes.HasPrefix(text[end:], []byte("://")), c == '-' && end == at+1 && text[at] == '-':
				marks = 2
			case !alone && c != '-':
				marks++
			}
		}
	}
	return end, marks > 1
}

// isLabel reports whether a word is the label of an address, such as "E-mail:".
func isLabel(word []byte) bool {
	name, found := bytes.CutSuffix(word, []byte(":"))
	return found && len(name) <= len("e-mail") && addressLabels[strings.ToLower(string(name))]
}

var addressLabels = wordSet(`e-mail email mail`)

const (
	inWord = iota
	endsWord
	marksWord
)

var wordBytes = func() (kinds [256]byte) {
	for _, c := range []byte(" \t\r\n\"'`()[]{}<>,;|*\\") {
		kinds[c] = endsWord
	}
	for c := 0xe0; c < 256; c++ {
		kinds[c] = endsWord // the first bytes of dashes, quotation marks and scripts without spaces between words
	}
	for _, c := range []byte("./_:@-") {
		kinds[c] = marksWord
	}
	return kinds
}()

// lexer splits a text into tokens. The text must be a result of the function normal.
type lexer struct {
	text []byte
	at   int
	from int    // the position of the last token
	hash uint32 // the hash of the last token
}

// next writes the next token to the buffer out and returns the token's length. The buffer has space for maxToken bytes.
// At the end of the text, it returns 0.
func (l *lexer) next(out []byte) (n int) {
	text, hash, i := l.text, uint32(hashStart), l.at
	out = out[:maxToken]
	for i < len(text) && n <= maxToken-utf8.UTFMax {
		c := text[i]
		if f := folded[c]; f != 0 {
			if n == 0 {
				l.from = i
			}
			out[n] = f
			n++
			i++
			hash = (hash ^ uint32(f)) * hashPrime
			continue
		}
		if c < utf8.RuneSelf {
			i++
			// A quoted text may contain escapes such as \n. The letter of an escape is not part of a word.
			if c == '\\' && i < len(text) && (text[i] == 'n' || text[i] == 'r' || text[i] == 't') {
				i++
			}
			if n > 0 {
				break
			}
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		word := unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
		single := word && alone(r)
		if n > 0 && (single || !word) {
			break
		}
		i += size
		if !word {
			continue
		}
		if n == 0 {
			l.from = i - size
		}
		if !single {
			r = unicode.ToLower(r)
		}
		from := n
		n += utf8.EncodeRune(out[n:], r)
		for _, c := range out[from:n] {
			hash = (hash ^ uint32(c)) * hashPrime
		}
		if single {
			break
		}
	}
	l.at, l.hash = i, hash
	return n
}

// alone reports whether a letter belongs to a script without spaces between words.
func alone(r rune) bool {
	return r >= 0x0e00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao,
		unicode.Khmer, unicode.Myanmar) || r == 'ー'
}

func aloneIn(token []byte) bool {
	r, _ := utf8.DecodeRune(token)
	return alone(r)
}

// words is a text that was split into tokens.
type words struct {
	text   []byte // the tokens, without spaces
	spaced []byte // the tokens, with one space after each
	starts []int  // the offset of each token in text
	hashes []uint32
}

func wordsOf(text []byte) *words {
	var v view.View
	var buf [maxToken]byte
	l := lexer{text: normal(text, &v)}
	w := &words{text: make([]byte, 0, len(text)), spaced: make([]byte, 0, len(text)+1)}
	for n := l.next(buf[:]); n > 0; n = l.next(buf[:]) {
		w.starts = append(w.starts, len(w.text))
		w.text = append(w.text, buf[:n]...)
		w.spaced = append(append(w.spaced, buf[:n]...), ' ')
		w.hashes = append(w.hashes, l.hash)
	}
	return w
}

func (w *words) len() int { return len(w.starts) }

// end returns the offset in w.text at which a token ends.
func (w *words) end(i int) int {
	if i+1 < len(w.starts) {
		return w.starts[i+1]
	}
	return len(w.text)
}

func (w *words) token(i int) []byte { return w.text[w.starts[i]:w.end(i)] }

// slice returns the tokens from..to-1 with one space after each.
func (w *words) slice(from, to int) []byte { return w.spaced[w.starts[from]+from : w.end(to-1)+to] }

// key returns a hash of all letters and digits of a value, so that values with different separators have the same key.
// The key of an empty value is 0.
func (w *words) key() uint64 {
	if len(w.text) == 0 {
		return 0
	}
	return addKey(keyStart, w.text) | 1
}

// keyOf returns the key of a value.
func keyOf(value []byte, v *view.View) uint64 {
	var buf [maxToken]byte
	l := lexer{text: normal(value, v)}
	n := l.next(buf[:])
	if n == 0 {
		return 0
	}
	key := uint64(keyStart)
	for ; n > 0; n = l.next(buf[:]) {
		key = addKey(key, buf[:n])
	}
	return key | 1
}

const keyStart = 14695981039346656037

func addKey(key uint64, text []byte) uint64 {
	for _, c := range text {
		key = (key ^ uint64(c)) * 1099511628211
	}
	return key
}

// grouped returns the tokens of a whole number in the way people write it, with its digits in groups of three.
func grouped(w *words) *words {
	whole, _, _ := bytes.Cut(w.spaced, []byte(" "))
	var text []byte
	for i, c := range whole {
		if i > 0 && (len(whole)-i)%3 == 0 {
			text = append(text, ' ')
		}
		text = append(text, c)
	}
	return wordsOf(text)
}

// minEncoded is the minimum length of a token that may be part of an encoded text.
const minEncoded = 16

// decoded returns the readable texts that a text contains in base64, base32 or hexadecimal form.
func decoded(text []byte) (found [][]byte) {
	for start := 0; start < len(text); start++ {
		end := start
		for end < len(text) && (folded[text[end]] != 0 || bytes.IndexByte([]byte("+/-_"), text[end]) >= 0) {
			end++
		}
		if run := text[start:end]; len(run) >= minEncoded && len(run) <= maxEncoded {
			if plain := decode(run); plain != nil {
				found = append(found, plain)
			}
		}
		start = end
	}
	return found
}

// decode decodes hexadecimal, base64 or base32 text. It returns nil if the result is not readable. Most texts that look
// encoded are not, and their first bytes already show this.
func decode(run []byte) []byte {
	const sample = 64 // a multiple of 8, so that it consists of whole groups in each encoding
	var space [sample]byte
	for _, decode := range []func(dst, src []byte) ([]byte, error){
		hex.AppendDecode, base64.RawStdEncoding.AppendDecode, base64.RawURLEncoding.AppendDecode,
		base32.StdEncoding.WithPadding(base32.NoPadding).AppendDecode,
	} {
		if len(run) > sample {
			start, err := decode(space[:0], run[:sample])
			if at := unreadable(start); err != nil || at >= 0 && at <= len(start)-utf8.UTFMax {
				continue // the last bytes can be a part of a character
			}
		}
		if plain, err := decode(nil, run); err == nil && unreadable(plain) < 0 {
			return plain
		}
	}
	return nil
}

const maxEncoded = 64 << 10

// unreadable returns the position of the first character that is not valid UTF-8, printable or a space. If there is
// none, it returns -1.
func unreadable(text []byte) int {
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size == 1 || !unicode.IsPrint(r) && !unicode.IsSpace(r) {
			return at
		}
		at += size
	}
	return -1
}
