package validate

import (
	"context"
	"errors"
	"io"
	"regexp"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// pattern is a regular expression with the number of its instructions. A match takes at most one step for each
// instruction and byte, or one step for each byte if there is never more than one way to continue.
type pattern struct {
	*regexp.Regexp
	size   int
	single bool
}

// work returns the cost of matching a text, in units of work.
func (p *pattern) work(text string) int {
	if p.single {
		return schemaWork + len(text)*3/2
	}
	return schemaWork + (len(text)+1)*p.size*5/8
}

// patterns compiles the regular expressions of a schema and counts their instructions.
type patterns struct{ used int }

// maxInstructions limits the total number of instructions of the regular expressions in a schema. Each expression
// counts twice, because the library compiles it twice.
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
	return &pattern{re, len(program.Inst), single(program)}, err
}

// single reports whether the next character of a text always determines how a match continues: the expression is
// anchored, and no two instructions that can come next accept the same character. If the analysis of a large expression
// would take too long, single returns false.
func single(p *syntax.Prog) bool {
	if p.StartCond()&syntax.EmptyBeginText == 0 {
		return false
	}
	left := 16 * len(p.Inst)
	var ranges [][2]rune
	var visited []uint32
	follow := func(from uint32) bool {
		ranges, visited = ranges[:0], append(visited[:0], from)
		for i := 0; i < len(visited); i++ {
			if left -= len(visited); left < 0 {
				return false
			}
			next := func(to uint32) {
				if !slices.Contains(visited, to) {
					visited = append(visited, to)
				}
			}
			switch in := &p.Inst[visited[i]]; in.Op {
			case syntax.InstAlt, syntax.InstAltMatch:
				next(in.Out)
				next(in.Arg)
			case syntax.InstCapture, syntax.InstEmptyWidth, syntax.InstNop:
				next(in.Out)
			case syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
				ranges = append(ranges, [2]rune{0, unicode.MaxRune})
			case syntax.InstRune, syntax.InstRune1:
				if left -= len(in.Rune); syntax.Flags(in.Arg)&syntax.FoldCase != 0 || left < 0 {
					return false
				}
				if len(in.Rune) == 1 {
					ranges = append(ranges, [2]rune{in.Rune[0], in.Rune[0]})
				}
				for r := 0; r+1 < len(in.Rune); r += 2 {
					ranges = append(ranges, [2]rune{in.Rune[r], in.Rune[r+1]})
				}
			}
		}
		slices.SortFunc(ranges, func(a, b [2]rune) int { return int(a[0]) - int(b[0]) })
		for i := range ranges[:max(0, len(ranges)-1)] {
			if ranges[i][1] >= ranges[i+1][0] {
				return false
			}
		}
		return true
	}
	if !follow(uint32(p.Start)) {
		return false
	}
	for _, in := range p.Inst {
		switch in.Op {
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			if !follow(in.Out) {
				return false
			}
		}
	}
	return true
}

// A match that can take longMatch steps or more must be stoppable, which makes it slower. Such a match checks its
// context after every checkAfter steps.
const (
	longMatch  = 1 << 20
	checkAfter = 1 << 16
)

// stoppable reads a text rune by rune until its context ends.
type stoppable struct {
	ctx   context.Context
	every int // the number of runes between two checks of the context
	text  string
	read  int
}

func (s *stoppable) ReadRune() (rune, int, error) {
	if s.read%s.every == 0 && s.ctx.Err() != nil || s.text == "" {
		return 0, 0, io.EOF
	}
	r, size := utf8.DecodeRuneInString(s.text)
	s.text = s.text[size:]
	s.read++
	return r, size, nil
}

// expressionWork is the work to parse one byte of a regular expression. A few bytes such as \pL can stand for hundreds
// of ranges.
const expressionWork = 500

// hasFormat reports whether a text has the given format. For the format "regex", the library would compile the text,
// which takes memory for each repetition. hasFormat only parses the text.
func (e *evaluation) hasFormat(format *jsonschema.Format, text string) bool {
	if format.Name != "regex" {
		return e.spend(2*(schemaWork+len(text))) && format.Validate(text) == nil
	}
	if !e.spend(schemaWork + expressionWork*len(text)) {
		return false
	}
	_, err := syntax.Parse(text, syntax.Perl)
	return err == nil
}
