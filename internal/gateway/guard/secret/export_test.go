package secret

import "math/rand/v2"

// Load builds a new engine, for a benchmark.
func Load() error {
	_, err := build(formatList)
	return err
}

// Example is a credential of a format. Near is the same text with one character too few.
type Example struct {
	Rule            string
	Token, NearMiss string
	Letters         func(c byte) bool // the characters that can follow the last part without ending the token
}

// Examples returns random examples of every format.
func (e *Engine) Examples(r *rand.Rand) []Example {
	var out []Example
	for _, f := range e.formats {
		if f.named {
			continue
		}
		var token, miss []byte
		long := 0 // the longest part of the shorter text lacks one character
		for i, p := range f.parts {
			if p.text == "" && p.min > f.parts[long].min {
				long = i
			}
		}
		for i, p := range f.parts {
			text := []byte(p.text)
			for range p.min {
				text = append(text, e.random(r, p.class))
			}
			token = append(token, text...)
			if i == long {
				text = text[1:]
			}
			miss = append(miss, text...)
		}
		out = append(out, Example{Rule: f.id, Token: string(token), NearMiss: string(miss), Letters: func(c byte) bool {
			for i := len(f.parts) - 1; i >= 0; i-- {
				p := f.parts[i]
				if p.text != "" {
					return alnum[c]
				}
				if e.classes.has(p.class, c) {
					return true
				}
				if p.min > 0 {
					return false
				}
			}
			return false
		}})
	}
	return out
}

func (e *Engine) random(r *rand.Rand, k class) byte {
	for {
		if c := byte(r.IntN(128)); e.classes.has(k, c) {
			return c
		}
	}
}

// Words returns the words that a scan looks for.
func (e *Engine) Words() (words []string) {
	for _, f := range e.formats {
		words = append(words, f.words...)
	}
	for _, n := range names {
		words = append(words, n.word)
	}
	return words
}

// Work scans a text. It returns how many bytes of runs the scan read, and how many bytes it decoded.
func (e *Engine) Work(text []byte) (steps, decoded int) {
	s := &scan{Engine: e, budget: freeDecode + len(text), noise: freeDecode + len(text)/2}
	s.scanText(text, nil)
	return s.steps, freeDecode + len(text) - s.budget
}

// FreeDecode is how many bytes of a short text are decoded.
const FreeDecode = freeDecode

// InflateStart is what a compressed run takes of the budget for decoding.
const InflateStart = inflateStart

// Crowd returns the length of the longest sequence of used slots in the table of copies.
func Crowd(values [][]byte) (longest int) {
	var c copies
	for _, v := range values {
		c.add("x", v, true)
	}
	c.index()
	n := 0
	for _, w := range c.table {
		if n++; w == 0 {
			n = 0
		}
		longest = max(longest, n)
	}
	return longest
}
