package deny

import (
	"errors"
	"io"
	"regexp"
	"unicode/utf8"
)

const (
	// MaxWork is the work of a search that takes a few seconds. For each character, a pattern costs baseWork units plus
	// one unit for each of its instructions.
	MaxWork  int64 = 1 << 29
	baseWork       = 4
	// blockWork is the work between two checks of the context.
	blockWork = 1 << 18
)

// ErrWork means that a search needs more work than it is allowed to do.
var ErrWork = errors.New("the text is too long for these patterns")

// match reports whether an expression of a pattern matches a text. After an error, it sets s.err and returns true.
func (s *scan) match(regex *regexp.Regexp, p *pattern, text []byte) bool {
	if owed := p.work * int64(len(text)); owed < blockWork { // for a short text, package regexp has a faster matcher
		if *s.work -= owed; *s.work < 0 {
			s.err = ErrWork
			return true
		}
		return regex.Match(text)
	}
	s.input = input{scan: s, text: text, each: p.work}
	matches := regex.MatchReader(&s.input)
	s.input.pay()
	return matches || s.err != nil
}

// input is a text that an expression reads. It ends early if the search must stop, because package regexp offers no
// other way to stop.
type input struct {
	*scan
	text       []byte
	each, owed int64
}

func (in *input) ReadRune() (rune, int, error) {
	if in.owed += in.each; in.owed >= blockWork {
		in.pay()
	}
	if len(in.text) == 0 || in.err != nil {
		return 0, 0, io.EOF
	}
	r, n := rune(in.text[0]), 1
	if r >= utf8.RuneSelf {
		r, n = utf8.DecodeRune(in.text)
	}
	in.text = in.text[n:]
	return r, n, nil
}

// pay subtracts the work since its last call from *in.work.
func (in *input) pay() {
	if *in.work -= in.owed; *in.work < 0 {
		in.err = ErrWork
	} else if in.owed >= blockWork {
		in.err = in.ctx.Err()
	}
	in.owed = 0
}
