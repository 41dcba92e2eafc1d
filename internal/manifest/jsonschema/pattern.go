package jsonschema

import (
	"errors"
	"regexp/syntax"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// MaxPatternSteps bounds what a pattern may expand to. A repetition such as
// (…{500}){20} is short to write and large to hold.
const MaxPatternSteps = 10_000

// ErrPatternSize reports that a pattern expands to too many steps.
var ErrPatternSize = errors.New("the pattern expands to too many steps")

// ParsePattern reads a regular expression without making a machine of it.
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

// steps estimates the size of the machine that re would become.
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

// MatchesEmpty reports whether re matches the empty text, and so matches
// somewhere in every text.
func MatchesEmpty(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpStar, syntax.OpQuest, syntax.OpBeginLine, syntax.OpEndLine,
		syntax.OpBeginText, syntax.OpEndText, syntax.OpNoWordBoundary:
		return true
	case syntax.OpLiteral:
		return len(re.Rune) == 0
	case syntax.OpCapture, syntax.OpPlus:
		return MatchesEmpty(re.Sub[0])
	case syntax.OpRepeat:
		return re.Min == 0 || MatchesEmpty(re.Sub[0])
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if !MatchesEmpty(sub) {
				return false
			}
		}
		return true
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			if MatchesEmpty(sub) {
				return true
			}
		}
	}
	return false
}

// PatternProblem explains why ParsePattern refused a pattern, in words that follow
// "the pattern", and what to write instead, if that is known.
func PatternProblem(expr string, err error) (what, hint string) {
	const linear = "patterns match in linear time, as in RE2: write it without "
	var bad *syntax.Error
	if !errors.As(err, &bad) {
		return "expands to too many steps", "repeat less"
	}
	switch bad.Code {
	case syntax.ErrInvalidPerlOp, syntax.ErrMissingRepeatArgument, syntax.ErrInvalidNamedCapture:
		for _, look := range []string{"(?=", "(?!", "(?<=", "(?<!"} {
			if strings.Contains(expr, look) {
				return "looks ahead or behind", linear + "(?= (?! (?<= and (?<!"
			}
		}
		if strings.Contains(expr, "(?>") {
			return "has an atomic group", linear + "(?>"
		}
	case syntax.ErrInvalidEscape:
		if len(bad.Expr) > 1 && ('1' <= bad.Expr[1] && bad.Expr[1] <= '9' || bad.Expr[1] == 'k') {
			return "refers back to a group", linear + "backreferences"
		}
		if strings.HasPrefix(bad.Expr, `\u`) {
			return "has the escape " + diag.Quote(bad.Expr), `write \x{…} with the character's hex digits`
		}
	case syntax.ErrMissingParen:
		return "has a parenthesis that is not closed", ""
	case syntax.ErrMissingBracket:
		return "has a bracket that is not closed", ""
	case syntax.ErrLarge, syntax.ErrNestingDepth, syntax.ErrInvalidRepeatSize:
		return "is too large: " + string(bad.Code), "repeat at most 1000 times"
	}
	return "is wrong: " + string(bad.Code) + " at " + diag.Quote(bad.Expr), ""
}

func (c *checker) pattern(expr string, at diag.Place) {
	if _, err := ParsePattern(expr, syntax.Perl); err != nil {
		what, hint := PatternProblem(expr, err)
		c.report(at, hint, "the pattern %s %s", diag.Quote(expr), what)
	}
}
