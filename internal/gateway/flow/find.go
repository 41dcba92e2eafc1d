package flow

import (
	"bytes"
	"unicode/utf8"
)

// occurrences finds a value in the untrusted text. If regrouped is set, it also finds the value with other separators,
// such as spaces inside a number.
func (d *decision) occurrences(w *words, regrouped bool) []hit {
	hits := d.sequences(w, 0, w.len())
	if len(hits) > 0 || !regrouped || len(w.text) < 8 {
		return hits
	}
	return d.regrouped(w.text)
}

// sequences finds the tokens from..to-1 of w, in this order, in the untrusted text. An empty range has no hits.
func (d *decision) sequences(w *words, from, to int) (hits []hit) {
	if from >= to {
		return nil
	}
	rare := from // the longest token: it is probably the rarest, so the search starts with it
	for i := from; i < to; i++ {
		if !d.m.tokens.mayHave(w.hashes[i]) {
			return nil
		}
		if len(w.token(i)) > len(w.token(rare)) {
			rare = i
		}
	}
	text := w.slice(from, to)
next:
	for bi := len(d.m.blocks) - 1; bi >= 0; bi-- {
		b := d.m.blocks[bi]
		for i := from + 1; i < to; i++ {
			if !b.mayFollow(w.hashes[i-1], w.hashes[i]) {
				continue next
			}
		}
		for p := b.head(w.hashes[rare]); p != 0 && d.steps > 0; p = b.prev[p-1] {
			d.steps--
			at := int(p) - 1 - (rare - from)
			if at >= 0 && b.startsWith(at, text) {
				if hits = append(hits, hit{b, at, at + to - from - 1}); len(hits) == maxHits {
					return hits
				}
			}
		}
	}
	return hits
}

// spelled contains the words that people write instead of a separator, such as "at" for @.
var spelled = map[string]bool{"at": true, "dot": true, "punkt": true, "punto": true, "point": true, "arroba": true, "ponto": true}

var spelledHashes = func() (hashes []uint32) {
	for word := range spelled {
		hashes = append(hashes, hashOf([]byte(word)))
	}
	return hashes
}()

// regrouped finds the letters and digits of a value in the untrusted text and ignores the separators between them.
func (d *decision) regrouped(value []byte) (hits []hit) {
	for n := 1; n <= min(len(value), maxPart); n++ {
		if n < len(value) && !utf8.RuneStart(value[n]) {
			continue
		}
		first := hashOf(value[:n])
		if !d.m.tokens.mayHave(first) {
			continue
		}
		for bi := len(d.m.blocks) - 1; bi >= 0; bi-- {
			b := d.m.blocks[bi]
			if b.head(first) == 0 || !d.continued(b, first, value[n:]) {
				continue
			}
			for p := b.head(first); p != 0 && d.steps > 0; p = b.prev[p-1] {
				d.steps--
				if last := b.matches(int(p)-1, value); last >= 0 {
					if hits = append(hits, hit{b, int(p) - 1, last}); len(hits) == maxHits {
						return hits
					}
				}
			}
		}
	}
	return hits
}

// continued reports whether a block may contain the given token, directly followed by tokens that spell the rest of a
// value.
func (d *decision) continued(b *block, token uint32, rest []byte) bool {
	if len(rest) == 0 {
		return true
	}
	if d.steps--; d.steps <= 0 {
		return true
	}
	for _, word := range spelledHashes {
		if word != token && b.mayFollow(token, word) && d.continued(b, word, rest) {
			return true
		}
	}
	hash := uint32(hashStart)
	for n, c := range rest[:min(len(rest), maxPart)] {
		hash = (hash ^ uint32(c)) * hashPrime
		if b.mayFollow(token, hash) && d.continued(b, hash, rest[n+1:]) {
			return true
		}
	}
	return false
}

// matches compares a value with the tokens from the given position on. It returns the position of the value's last
// token, or -1 if the tokens do not spell the value.
func (b *block) matches(at int, value []byte) int {
	for i := at; i < len(b.starts); i++ {
		t := b.token(i)
		if len(t) <= len(value) && string(value[:len(t)]) == string(t) {
			if value = value[len(t):]; len(value) == 0 {
				return i
			}
			continue
		}
		if i > at && spelled[string(t)] {
			continue
		}
		return -1
	}
	return -1
}

const (
	minPiece  = 3
	nearPiece = 60 // maximum number of tokens from the first piece of a value to the last
)

// pieces finds a value that is cut into pieces. The pieces must be in order, and other words may be between them.
func (d *decision) pieces(l *leaf) (hits []hit) {
	value := l.words().text
	for n := minPiece; n < len(value) && n <= maxPart; n++ {
		hash := hashOf(value[:n])
		if !d.m.tokens.mayHave(hash) {
			continue
		}
		for bi := len(d.m.blocks) - 1; bi >= 0; bi-- {
			b := d.m.blocks[bi]
			if b.head(hash) == 0 || !d.cuttable(b, value[n:]) {
				continue
			}
			for p := b.head(hash); p != 0 && d.steps > 0; p = b.prev[p-1] {
				if d.steps--; string(b.token(int(p)-1)) != string(value[:n]) {
					continue
				}
				d.steps -= minPiece
				if last := b.inPieces(int(p), value[n:]); last >= 0 {
					return []hit{{b, int(p) - 1, last}}
				}
			}
		}
	}
	return nil
}

// cuttable reports whether the value can be cut into pieces that the block contains. The order of the pieces in the
// block does not matter.
func (d *decision) cuttable(b *block, value []byte) bool {
	if len(value) == 0 {
		return true
	}
	hash := uint32(hashStart)
	for n, c := range value[:min(len(value), maxPart)] {
		hash = (hash ^ uint32(c)) * hashPrime
		if piece := value[:n+1]; n+1 < min(minPiece, len(value)) || b.head(hash) == 0 || !b.has(piece, hash) {
			continue
		}
		if d.steps--; d.steps <= 0 || d.cuttable(b, value[n+1:]) {
			return true
		}
	}
	return false
}

// inPieces looks for the pieces of rest, in order, starting at the given position. It returns the position of the last
// piece, or -1.
func (b *block) inPieces(at int, rest []byte) int {
	_, end := b.bounds(at - 1)
	for i := at; i < min(end, at+nearPiece); i++ {
		t := b.token(i)
		if len(t) < min(minPiece, len(rest)) || !bytes.HasPrefix(rest, t) {
			continue
		}
		if rest = rest[len(t):]; len(rest) == 0 {
			return i
		}
	}
	return -1
}
