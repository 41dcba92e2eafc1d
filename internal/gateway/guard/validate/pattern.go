package validate

import (
	"context"
	"errors"
	"io"
	"regexp"
	"regexp/syntax"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// pattern is a regular expression with the number of its instructions. A match takes at most one step for each
// instruction and byte.
type pattern struct {
	*regexp.Regexp
	size int
}

// patterns compiles the regular expressions of a schema and counts their instructions.
type patterns struct{ used int }

// maxInstructions is the maximum number of instructions of all regular expressions in a schema. The library compiles each
// expression twice.
const maxInstructions = 100_000

var errPatterns = errors.New("the regular expressions of the schema are too large")

func (p *patterns) compile(text string) (jsonschema.Regexp, error) {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, err
	}
	if p.used += len(program.Inst); p.used > maxInstructions {
		return nil, errPatterns
	}
	re, err := regexp.Compile(text)
	return &pattern{re, len(program.Inst)}, err
}

// longMatch is the number of steps from which on a match can be stopped, which makes it slower.
const longMatch = 1 << 20

// stoppable reads a text rune by rune until its context ends.
type stoppable struct {
	ctx  context.Context
	text string
	read int
}

func (s *stoppable) ReadRune() (rune, int, error) {
	if s.read%1024 == 0 && s.ctx.Err() != nil || s.text == "" {
		return 0, 0, io.EOF
	}
	r, size := utf8.DecodeRuneInString(s.text)
	s.text = s.text[size:]
	s.read++
	return r, size, nil
}
