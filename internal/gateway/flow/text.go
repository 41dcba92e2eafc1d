package flow

import (
	"bytes"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/gateway/guard/view"
)

// block is running text, split into tokens, with an index of the tokens. A token is a run of letters and digits. A
// character of a script without spaces between words is a token of its own. The text of a block consists of the tokens,
// each with one space after it.
type block struct {
	text    []byte
	starts  []uint32 // the offset of each token
	prev    []uint32 // for each token, the previous position of the same token, plus 1; 0 if there is none
	table   []slot   // a hash table with open addressing; its length is a power of two
	used    int
	sources []span
	// deleting contains the hashes of tokens that can start a verb that means to delete.
	deleting []uint32
}

type slot struct{ hash, last, count uint32 } // last is the last position of the token, plus 1

// span says that one source contains the tokens from the position first to the start of the next span.
type span struct {
	first int
	Source
}

func (b *block) size() int {
	return cap(b.text) + 4*(cap(b.starts)+cap(b.prev)) + 12*len(b.table) + 128*cap(b.sources)
}

func (b *block) last() time.Time { return b.sources[len(b.sources)-1].Time }

// source returns the source of the token at a position.
func (b *block) source(at int) Source {
	found := b.sources[0].Source
	for _, s := range b.sources {
		if s.first > at {
			break
		}
		found = s.Source
	}
	return found
}

// bounds returns the position of the first token of the text around a position, and the position after the text's last
// token.
func (b *block) bounds(at int) (first, end int) {
	end = len(b.starts)
	for _, s := range b.sources {
		if s.first > at {
			return first, s.first
		}
		first = s.first
	}
	return first, end
}

func (b *block) token(at int) []byte {
	end := len(b.text)
	if at+1 < len(b.starts) {
		end = int(b.starts[at+1])
	}
	return b.text[b.starts[at] : end-1]
}

func (b *block) add(src Source, text []byte) {
	if b.text == nil {
		b.text = make([]byte, 0, min(maxBlock, max(len(text)+len(text)/8, 256)))
		b.starts = make([]uint32, 0, len(text)/6+8)
		b.prev = make([]uint32, 0, len(text)/6+8)
	}
	if n := len(b.sources); n == 0 || b.sources[n-1].Source != src {
		b.sources = append(b.sources, span{len(b.starts), src})
	}
	tokenize(text, func(token []byte, hash uint32) {
		b.starts = append(b.starts, uint32(len(b.text)))
		b.text = append(append(b.text, token...), ' ')
		if b.used*4 >= len(b.table)*3 {
			b.grow()
		}
		s := b.slot(hash)
		if s.last == 0 {
			s.hash = hash
			b.used++
			if table.deletes(token) {
				b.deleting = append(b.deleting, hash)
			}
		}
		b.prev = append(b.prev, s.last)
		s.last = uint32(len(b.starts))
		s.count++
	})
}

func (b *block) slot(hash uint32) *slot {
	mask := uint32(len(b.table) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		if s := &b.table[i]; s.last == 0 || s.hash == hash {
			return s
		}
	}
}

func (b *block) grow() {
	old := b.table
	b.table = make([]slot, max(64, 2*len(old)))
	for _, s := range old {
		if s.last != 0 {
			*b.slot(s.hash) = s
		}
	}
}

// find returns the slot of a token, or nil if the block does not contain the token.
func (b *block) find(hash uint32) *slot {
	if len(b.table) == 0 {
		return nil
	}
	if s := b.slot(hash); s.last != 0 {
		return s
	}
	return nil
}

const (
	hashStart = 2166136261
	hashPrime = 16777619
)

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

// tokenize passes each token of a text and its hash to a function. The token is valid only during the call.
func tokenize(text []byte, visit func(token []byte, hash uint32)) {
	if !view.ASCII(text) || bytes.IndexByte(text, 0) >= 0 {
		var v view.View
		if v.Normal(text) {
			text = v.Text
		}
	}
	var buf [64]byte
	token, hash := buf[:0], uint32(hashStart)
	flush := func() {
		if len(token) > 0 {
			visit(token, hash)
			token, hash = token[:0], hashStart
		}
	}
	for i := 0; i < len(text); {
		c := text[i]
		if c < utf8.RuneSelf {
			i++
			if f := folded[c]; f != 0 {
				token = append(token, f)
				hash = (hash ^ uint32(f)) * hashPrime
				continue
			}
			flush()
			// A text inside another text may contain escapes such as \n. The letter of an escape is not part of a word.
			if c == '\\' && i < len(text) && (text[i] == 'n' || text[i] == 'r' || text[i] == 't') {
				i++
			}
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r):
			flush()
		case alone(r):
			flush()
			token = append(token, text[i:i+n]...)
			for _, c := range token {
				hash = (hash ^ uint32(c)) * hashPrime
			}
			flush()
		default:
			at := len(token)
			token = utf8.AppendRune(token, unicode.ToLower(r))
			for _, c := range token[at:] {
				hash = (hash ^ uint32(c)) * hashPrime
			}
		}
		i += n
	}
	flush()
}

// alone reports whether a letter belongs to a script that puts no spaces between words.
func alone(r rune) bool {
	return r >= 0x0e00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar) ||
		r == 'ー'
}

func aloneIn(token []byte) bool {
	r, _ := utf8.DecodeRune(token)
	return alone(r)
}

// cutAtSpace returns at most the first n bytes of a text. If the second half of these bytes contains white space, it
// cuts the text there.
func cutAtSpace(text []byte, n int) []byte {
	if at := bytes.LastIndexAny(text[:n], " \n\t"); at > n/2 {
		return text[:at+1]
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// words is a text that was split into tokens.
type words struct {
	text   []byte
	starts []int
	hashes []uint32
}

func wordsOf(text []byte) (w words) {
	tokenize(text, func(token []byte, hash uint32) {
		w.starts = append(w.starts, len(w.text))
		w.text = append(w.text, token...)
		w.hashes = append(w.hashes, hash)
	})
	return w
}

func (w *words) len() int { return len(w.starts) }

func (w *words) token(i int) []byte {
	if i+1 < len(w.starts) {
		return w.text[w.starts[i]:w.starts[i+1]]
	}
	return w.text[w.starts[i]:]
}

// key is a hash of all letters and digits of a value, so that spelling and separators do not matter. It is 0 for an
// empty value.
func (w *words) key() uint64 {
	if len(w.text) == 0 {
		return 0
	}
	const start, prime = 14695981039346656037, 1099511628211
	h := uint64(start)
	for _, c := range w.text {
		h = (h ^ uint64(c)) * prime
	}
	return h | 1
}

func keysOf(value []byte) []uint64 {
	w := wordsOf(value)
	return []uint64{w.key()}
}
