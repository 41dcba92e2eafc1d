package jsonschema

import (
	"errors"
	"regexp/syntax"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// MaxPatternSteps is the maximum size of a compiled pattern. A repetition such as (…{500}){20} is short, but its
// compiled form needs a lot of memory.
const MaxPatternSteps = 10_000

// ErrPatternSize means that a pattern expands to more than [MaxPatternSteps] steps.
var ErrPatternSize = errors.New("the pattern expands to too many steps")

// ParsePattern parses a regular expression without compiling it. ParsePattern returns [ErrPatternSize] if the pattern
// is too large.
func ParsePattern(expr string, flags syntax.Flags) (*syntax.Regexp, error) {
	re, err := syntax.Parse(expr, flags)
	if err != nil {
		return nil, err
	}
	if steps(re) > MaxPatternSteps {
		return nil, ErrPatternSize
	}
	return re, nil
}

// steps estimates the number of instructions in the compiled form of a pattern.
func steps(re *syntax.Regexp) int {
	n := 1
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpRepeat:
		times := max(re.Min, re.Max, 1)
		sub := steps(re.Sub[0])
		if sub > MaxPatternSteps/times {
			return MaxPatternSteps + 1
		}
		return 1 + times*(sub+1)
	}
	for _, sub := range re.Sub {
		if n += steps(sub); n > MaxPatternSteps {
			return n
		}
	}
	return n
}

// PatternProblem explains an error from [ParsePattern]. The first result completes a sentence that begins with "the
// pattern". The second result suggests another pattern, if one is known.
func PatternProblem(expr string, err error) (what, hint string) {
	const linear = "patterns must match in linear time, as in RE2; write the pattern without "
	var bad *syntax.Error
	if !errors.As(err, &bad) {
		return "expands to too many steps", "use fewer or smaller repetitions"
	}
	switch bad.Code {
	case syntax.ErrInvalidPerlOp, syntax.ErrMissingRepeatArgument, syntax.ErrInvalidNamedCapture:
		for _, look := range []string{"(?=", "(?!", "(?<=", "(?<!"} {
			if strings.Contains(expr, look) {
				return "contains a lookahead or lookbehind", linear + "(?=, (?!, (?<= and (?<!"
			}
		}
		if strings.Contains(expr, "(?>") {
			return "contains an atomic group", linear + "(?>"
		}
	case syntax.ErrInvalidEscape:
		if len(bad.Expr) > 1 && ('1' <= bad.Expr[1] && bad.Expr[1] <= '9' || bad.Expr[1] == 'k') {
			return "contains a backreference", linear + "backreferences"
		}
		if strings.HasPrefix(bad.Expr, `\u`) {
			return "contains the unknown escape " + diag.Quote(bad.Expr), `write \x{…} with the hex digits of the character`
		}
	case syntax.ErrMissingParen:
		return "contains a parenthesis that is not closed", ""
	case syntax.ErrMissingBracket:
		return "contains a bracket that is not closed", ""
	case syntax.ErrLarge, syntax.ErrNestingDepth, syntax.ErrInvalidRepeatSize:
		return "is too large: " + string(bad.Code), "repeat at most 1000 times"
	}
	return "is invalid: " + string(bad.Code) + " at " + diag.Quote(bad.Expr), ""
}

func (c *checker) pattern(expr string, at diag.Place) {
	if _, err := ParsePattern(expr, syntax.Perl); err != nil {
		what, hint := PatternProblem(expr, err)
		c.report(at, hint, "the pattern %s %s", diag.Quote(expr), what)
	}
}
