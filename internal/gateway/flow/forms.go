package flow

import (
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
)

// disguised reports a destination that untrusted text contains in another form: backwards, in pieces, as character
// codes, in base64, base32 or hexadecimal form, or with shifted letters such as rot13.
func (d *decision) disguised(l *leaf) bool {
	if len(l.words().text) < minDisguised {
		return false
	}
	for _, search := range []func(*leaf) []hit{d.backwards, d.pieces, d.halves, d.shifted, d.encoded} {
		if hits := search(l); len(hits) > 0 {
			d.report(l, OnlyUntrusted, d.asks(&hits[0], near), &hits[0])
			return true
		}
	}
	return false
}

// minDisguised is the minimum length of a destination that is searched for in other forms.
const minDisguised = 10

// backwards finds a value in text that contains it backwards, either as a whole or word by word.
func (d *decision) backwards(l *leaf) []hit {
	all := []rune(string(l.words().text))
	slices.Reverse(all)
	if hits := d.regrouped([]byte(string(all))); len(hits) > 0 {
		return hits
	}
	var each []byte
	for i := range l.words().len() {
		word := []rune(string(l.words().token(i)))
		slices.Reverse(word)
		each = append(append(each, string(word)...), ' ')
	}
	return d.phrase(each)
}

// phrase finds the words of a text, in order, in the untrusted text.
func (d *decision) phrase(text []byte) []hit {
	w := wordsOf(text)
	return d.sequences(w, 0, w.len())
}

// encoded finds a value in text that contains it as base64 or base32 in groups, or as a list of character codes.
func (d *decision) encoded(l *leaf) []hit {
	value := bytes.TrimSpace(l.value)
	whole := value[:len(value)-len(value)%3] // the last characters of the encoded form depend on what follows the value
	for _, form := range [][]byte{base64.StdEncoding.AppendEncode(nil, whole), base64.URLEncoding.AppendEncode(nil, whole)} {
		w := wordsOf(form)
		if hits := d.regrouped(w.text); len(hits) > 0 {
			return hits
		}
	}
	whole = value[:len(value)-len(value)%5]
	w := wordsOf(base32.StdEncoding.AppendEncode(nil, whole))
	if hits := d.regrouped(w.text); len(hits) > 0 {
		return hits
	}
	for _, code := range []func(c byte) string{
		func(c byte) string { return strconv.Itoa(int(c)) + " " },
		func(c byte) string { return hex.EncodeToString([]byte{c}) + " " },
		func(c byte) string { return fmt.Sprintf("0x%02x ", c) },
		func(c byte) string { return fmt.Sprintf("x%02x ", c) },
		func(c byte) string { return fmt.Sprintf("u%04x ", c) },
	} {
		var codes []byte
		for _, c := range value[:minDisguised] {
			codes = append(codes, code(c)...)
		}
		if hits := d.phrase(codes); len(hits) > 0 {
			return hits
		}
	}
	return nil
}

// shifted finds a value in text that contains it with its letters shifted in the alphabet, as in rot13.
func (d *decision) shifted(l *leaf) []hit {
	shifted := make([]byte, len(l.words().spaced))
	for by := byte(1); by < 26; by++ {
		for i, c := range l.words().spaced {
			if shifted[i] = c; 'a' <= c && c <= 'z' {
				shifted[i] = 'a' + (c-'a'+by)%26
			}
		}
		first, rest, _ := bytes.Cut(shifted, []byte(" "))
		second, _, _ := bytes.Cut(rest, []byte(" "))
		if d.adjacent(first, second) {
			if hits := d.phrase(shifted); len(hits) > 0 {
				return hits
			}
		}
	}
	return nil
}

// adjacent reports whether some block may contain the token second directly after the token first. If second is empty,
// it reports whether some block may contain first.
func (d *decision) adjacent(first, second []byte) bool {
	a, b := hashOf(first), hashOf(second)
	if !d.m.tokens.mayHave(a) || len(second) > 0 && !d.m.tokens.mayHave(b) {
		return false
	}
	return slices.ContainsFunc(d.m.blocks, func(block *block) bool {
		return len(second) == 0 && block.head(a) != 0 || len(second) > 0 && block.mayFollow(a, b)
	})
}

// halves finds a value in text that contains its two parts, anywhere and in any order. It considers only cuts inside a
// word, because whole words often occur by chance.
func (d *decision) halves(l *leaf) []hit {
	w := l.words()
	for i := range w.len() {
		token := w.token(i)
		for cut := 2; cut+2 <= len(token); cut++ {
			head, tail := token[:cut], token[cut:]
			if i == 0 && cut < minHalf || i == w.len()-1 && len(tail) < minHalf {
				continue
			}
			var before, after []byte
			if i > 0 {
				before = w.token(i - 1)
			}
			if i+1 < w.len() {
				after = w.token(i + 1)
			}
			if i > 0 && !d.adjacent(before, head) || i == 0 && !d.adjacent(head, nil) || !d.adjacent(tail, after) {
				continue
			}
			first, second := slices.Clone(head), append(slices.Clone(tail), ' ')
			if i > 0 {
				first = append(slices.Clone(w.slice(0, i)), head...)
			}
			if i+1 < w.len() {
				second = append(second, w.slice(i+1, w.len())...)
			}
			if hits := d.phrase(first); len(hits) > 0 && len(d.phrase(second)) > 0 {
				return hits
			}
		}
	}
	return nil
}

// minHalf is the minimum length of a half that consists only of a part of one word.
const minHalf = 6
