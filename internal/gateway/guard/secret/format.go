package secret

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"
)

// format describes a credential as a sequence of parts.
type format struct {
	id    string
	rank  int
	parts []part
	// words are the literals to search for.
	words  []string
	word   string // the beginning of all words, in its exact case
	offset int    // the number of bytes before the words in the credential
	// lead is the number of bytes before the first long part of the credential. It is used if there are no words.
	lead int
	// inner is set if the credential can begin in the middle of a word, because it begins with a long literal.
	inner bool
	// weak is set if the beginning of the format is so short that encoded data can contain it by chance.
	weak bool
	// named is set if the format applies only to values that are assigned to a certain name.
	named bool
	// wide is set if the credential has a run that is as long as a hash and is not limited to hex digits.
	wide bool
}

// part is a literal, or a run of at least min and at most max characters of a class. A max of 0 means no limit.
type part struct {
	text     string
	class    class
	min, max int
}

func (p part) fixed() bool { return p.text != "" || p.min == p.max }

func (p part) size() int {
	if p.text != "" {
		return len(p.text)
	}
	return p.min
}

// minHash is the minimum number of digits of a hash.
const minHash = 32

// maxWord is the maximum number of bytes of a literal that the prefilter compares. A literal of fewer than minWord
// bytes is extended by each character that can follow it.
const (
	maxWord = 8
	minWord = 3
	// minInner is the minimum length of a literal that can begin in the middle of a word.
	minInner = 6
	// minLong is the minimum length of the long part of a format without a literal. The scan tries the format at runs
	// of at least this length.
	minLong = 21
	// maxLong is the maximum length of the long part of a format without a literal.
	maxLong = 64
)

// set is a set of bytes.
type set [256]bool

func bytesOf(s string) (out set) {
	for i := range len(s) {
		out[s[i]] = true
	}
	return out
}

// index returns the offset of the first byte of text that is in the set, or the length of text.
func (s *set) index(text []byte) int {
	n := 0
	for len(text)-n >= 4 && !s[text[n]] && !s[text[n+1]] && !s[text[n+2]] && !s[text[n+3]] {
		n += 4
	}
	for n < len(text) && !s[text[n]] {
		n++
	}
	return n
}

// skip returns the offset of the first byte in text[at:] that is not in the set. The result is at most at+limit.
func (s *set) skip(text []byte, at, limit int) int {
	for end := min(len(text), at+limit); at < end && s[text[at]]; {
		at++
	}
	return at
}

func (s set) without(chars string) set {
	for i := range len(chars) {
		s[chars[i]] = false
	}
	return s
}

func (s set) not() set {
	for c := range s {
		s[c] = !s[c]
	}
	return s
}

// class is the index of a set of characters in classes.sets.
type class uint8

// classes contains the sets that the formats use, at most 64.
type classes struct {
	sets   []set
	member [256]uint64 // a bit for each class that contains the byte
}

func (c *classes) add(s *set) class {
	for i := range c.sets {
		if c.sets[i] == *s {
			return class(i)
		}
	}
	if len(c.sets) == 64 {
		panic("secret: more than 64 classes of characters")
	}
	for b, in := range s {
		if in {
			c.member[b] |= 1 << len(c.sets)
		}
	}
	c.sets = append(c.sets, *s)
	return class(len(c.sets) - 1)
}

func (c *classes) has(k class, b byte) bool { return c.member[b]>>k&1 != 0 }

// alnum reports whether a class contains only letters and digits.
func (c *classes) alnum(k class) bool {
	for b := range 256 {
		if c.has(k, byte(b)) && !alnum[b] {
			return false
		}
	}
	return true
}

const uuid = `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`

// compile returns the formats that an expression describes, one for each combination of its alternatives.
func (c *classes) compile(id, expression string, named bool) ([]*format, error) {
	re, err := syntax.Parse(strings.ReplaceAll(expression, "UUID", uuid), syntax.Perl)
	if err != nil {
		return nil, err
	}
	sequences, err := c.expand(re, [][]part{nil})
	if err != nil {
		return nil, err
	}
	var out []*format
	for _, parts := range sequences {
		f := &format{id: id, parts: parts, named: named}
		for _, p := range parts {
			f.wide = f.wide || p.text == "" && p.min >= minHash && c.has(p.class, 'z')
		}
		if err := c.check(f); err != nil {
			return nil, err
		}
		if !named {
			if err := c.chooseWords(f); err != nil {
				return nil, err
			}
		}
		out = append(out, f)
	}
	return out, nil
}

// expand appends what re matches to each sequence. It returns one new sequence for each alternative of re.
func (c *classes) expand(re *syntax.Regexp, in [][]part) ([][]part, error) {
	extend := func(p part) [][]part {
		out := make([][]part, len(in))
		for i, seq := range in {
			if n := len(seq); n > 0 && p.text != "" && seq[n-1].text != "" {
				last := part{text: seq[n-1].text + p.text}
				out[i] = append(append([]part{}, seq[:n-1]...), last)
				continue
			}
			out[i] = append(append([]part{}, seq...), p)
		}
		return out
	}
	switch re.Op {
	case syntax.OpEmptyMatch:
		return in, nil
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return nil, errors.New("literals cannot ignore case")
		}
		return extend(part{text: string(re.Rune)}), nil
	case syntax.OpCharClass:
		k, err := c.classOf(re)
		return extend(part{class: k, min: 1, max: 1}), err
	case syntax.OpRepeat, syntax.OpStar, syntax.OpPlus:
		low, high := re.Min, re.Max
		switch re.Op {
		case syntax.OpStar:
			low, high = 0, -1
		case syntax.OpPlus:
			low, high = 1, -1
		}
		sub := re.Sub[0]
		if sub.Op == syntax.OpLiteral && len(sub.Rune) == 1 {
			sub = &syntax.Regexp{Op: syntax.OpCharClass, Rune: []rune{sub.Rune[0], sub.Rune[0]}}
		}
		if sub.Op != syntax.OpCharClass {
			return nil, fmt.Errorf("%s repeats a group, but only a single character can be repeated", re)
		}
		k, err := c.classOf(sub)
		return extend(part{class: k, min: low, max: max(high, 0)}), err
	case syntax.OpConcat:
		var err error
		for _, sub := range re.Sub {
			if in, err = c.expand(sub, in); err != nil {
				return nil, err
			}
		}
		return in, nil
	case syntax.OpAlternate, syntax.OpQuest:
		var out [][]part
		for _, sub := range re.Sub {
			more, err := c.expand(sub, in)
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
		}
		if re.Op == syntax.OpQuest {
			out = append(out, in...)
		}
		return out, nil
	}
	return nil, fmt.Errorf("%s cannot be used here", re)
}

func (c *classes) classOf(re *syntax.Regexp) (class, error) {
	var s set
	for i := 0; i < len(re.Rune); i += 2 {
		for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
			if r >= 0x80 {
				return 0, fmt.Errorf("%s contains characters other than ASCII", re)
			}
			s[r] = true
		}
	}
	return c.add(&s), nil
}

// check reports an error if the parts of a format cannot be compared from left to right.
func (c *classes) check(f *format) error {
	for i, p := range f.parts[:len(f.parts)-1] {
		if p.fixed() {
			continue
		}
		next := f.parts[i+1]
		for b := range 256 {
			first := next.text != "" && next.text[0] == byte(b) || next.text == "" && c.has(next.class, byte(b))
			if first && c.has(p.class, byte(b)) {
				return fmt.Errorf("part %d has a variable length and can contain the beginning of part %d", i+1, i+2)
			}
		}
	}
	return nil
}

// chooseWords sets the words to search for: the longest literal that has a fixed distance from the beginning.
func (c *classes) chooseWords(f *format) error {
	best, offset := -1, 0
	for i, p := range f.parts {
		if p.text != "" && (best < 0 || min(len(p.text), maxWord) > min(len(f.parts[best].text), maxWord)) {
			best, f.offset = i, offset
		}
		if !p.fixed() {
			break
		}
		offset += p.size()
	}
	first := f.parts[0].text
	f.weak = len(first) < minLoud || strings.Count(first, first[:1]) == len(first)
	f.inner = f.parts[0].text != "" && len(f.parts[0].text) >= minInner
	if best >= 0 {
		text := f.parts[best].text
		f.word = text
		switch {
		case len(text) >= minWord:
			f.words = []string{text[:min(len(text), maxWord)]}
			return nil
		case len(text) == minWord-1 && best+1 < len(f.parts):
			for b := range 128 {
				if lower(byte(b)) == byte(b) && (c.has(f.parts[best+1].class, byte(b)) ||
					c.has(f.parts[best+1].class, upper(byte(b)))) {
					f.words = append(f.words, text+string(rune(b)))
				}
			}
			return nil
		}
	}
	offset = 0
	for _, p := range f.parts {
		if p.text == "" && p.min >= minLong {
			return nil
		}
		if !p.fixed() {
			break
		}
		if offset += p.size(); p.text != "" || !c.alnum(p.class) {
			f.lead = offset
		}
	}
	return errors.New("there is no literal to search for")
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

func upper(c byte) byte {
	if 'a' <= c && c <= 'z' {
		c -= 'a' - 'A'
	}
	return c
}
