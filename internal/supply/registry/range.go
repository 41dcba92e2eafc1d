package registry

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Range is a set of versions, written as npm writes them: comparators with a
// space for and, || for or, x-ranges, hyphen ranges, ~ and ^.
//
// A prerelease is taken only by a comparator that names a prerelease of the same
// three numbers: whoever asks for >1.2.3-alpha.3 wants the next alphas of 1.2.3,
// and not those of 3.0.0. A comma for and, != and the signs => and =<, which
// other tools write, mean what they say.
type Range struct{ sets [][]comparator }

// comparator is one condition. With none set, anything passes.
type comparator struct {
	sign string // < <= > >= = !=, or empty for any
	Version
}

const (
	maxRange = 256
	maxSets  = 32
)

// ParseRange reads a constraint.
func ParseRange(s string) (Range, error) {
	bad := func() (Range, error) {
		return Range{}, fmt.Errorf("%s is not a version constraint", diag.Quote(s))
	}
	if len(s) > 2*maxRange {
		return bad()
	}
	var r Range
	for part := range strings.SplitSeq(s, "||") {
		set, ok := parseSet(part)
		if !ok || len(r.sets) == maxSets {
			return bad()
		}
		r.sets = append(r.sets, set)
	}
	return r, nil
}

// Contains reports whether a version is in the range.
func (r Range) Contains(v Version) bool {
	return slices.ContainsFunc(r.sets, func(set []comparator) bool { return contains(set, v) })
}

func contains(set []comparator, v Version) bool {
	for _, c := range set {
		if !c.takes(v) {
			return false
		}
	}
	if len(v.Pre) == 0 {
		return true
	}
	return slices.ContainsFunc(set, func(c comparator) bool {
		return len(c.Pre) > 0 && c.sign != "" && c.compareCore(v) == 0
	})
}

func (c comparator) takes(v Version) bool {
	d := v.Compare(c.Version)
	switch c.sign {
	case "<":
		return d < 0
	case "<=":
		return d <= 0
	case ">":
		return d > 0
	case ">=":
		return d >= 0
	case "=":
		return d == 0
	case "!=":
		return d != 0
	}
	return true
}

// signs are those of comparators, the longer ones first.
var signs = []string{">=", "<=", "=>", "=<", "!=", "~>", ">", "<", "=", "~", "^"}

// parseSet reads what stands between two ||.
func parseSet(s string) ([]comparator, bool) {
	words := strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == '\t' || r == ',' })
	if len(words) == 3 && words[1] == "-" {
		return hyphen(words[0], words[2])
	}
	set := []comparator{}
	for i := 0; i < len(words); i++ {
		sign, rest := cutSign(words[i])
		if rest == "" { // a sign with blanks behind it
			if i++; i == len(words) {
				return nil, false
			}
			rest = words[i]
		}
		p, ok := parsePartial(strings.TrimPrefix(rest, "v"))
		if !ok || p.odd && sign != "~" && sign != "^" { // npm reads 1.x.3 behind ~ and ^ only
			return nil, false
		}
		set = append(set, expand(sign, p)...)
	}
	return set, true
}

func cutSign(word string) (sign, rest string) {
	for _, s := range signs {
		if rest, ok := strings.CutPrefix(word, s); ok {
			switch s {
			case "=>":
				s = ">="
			case "=<":
				s = "<="
			case "~>":
				s = "~"
			}
			return s, rest
		}
	}
	return "", word
}

// The bounds that no version passes, and the first prerelease of a version,
// below which all of the version's own prereleases are not.
func never() []comparator { return []comparator{{sign: "<", Version: Version{Pre: []string{"0"}}}} }

func first(major, minor, patch uint64) Version {
	return Version{Major: major, Minor: minor, Patch: patch, Pre: []string{"0"}}
}

func from(v Version) comparator  { return comparator{">=", v} }
func below(v Version) comparator { return comparator{"<", v} }

// next is the first version after all that a partial one stands for.
func (p partial) next() Version {
	switch p.known {
	case 1:
		return first(p.Major+1, 0, 0)
	case 2:
		return first(p.Major, p.Minor+1, 0)
	}
	return first(p.Major, p.Minor, p.Patch+1)
}

// expand turns a sign and a partial version into plain comparisons.
func expand(sign string, p partial) []comparator {
	switch sign {
	case "~":
		return tilde(p)
	case "^":
		return caret(p)
	}
	if p.known == 3 {
		if sign == "" {
			sign = "="
		}
		return []comparator{{sign, p.Version}}
	}
	if p.known == 0 {
		if sign == ">" || sign == "<" || sign == "!=" {
			return never()
		}
		return []comparator{{}}
	}
	start := p.Version // open parts are zero
	switch sign {
	case ">":
		end := p.next()
		end.Pre = nil
		return []comparator{from(end)}
	case ">=":
		return []comparator{from(start)}
	case "<":
		start.Pre = []string{"0"}
		return []comparator{below(start)}
	case "<=":
		return []comparator{below(p.next())}
	case "!=":
		return never() // it would leave two ranges; nobody means it
	}
	return []comparator{from(start), below(p.next())}
}

// tilde lets the last number that was said, but for the first, grow.
func tilde(p partial) []comparator {
	switch p.known {
	case 0:
		return []comparator{{}}
	case 3:
		return []comparator{from(p.Version), below(first(p.Major, p.Minor+1, 0))}
	}
	return []comparator{from(p.Version), below(p.next())}
}

// caret lets everything behind the first number that is not zero grow.
func caret(p partial) []comparator {
	var end Version
	switch {
	case p.known == 0:
		return []comparator{{}}
	case p.known == 1 || p.Major > 0:
		end = first(p.Major+1, 0, 0)
	case p.known == 2 || p.Minor > 0:
		end = first(0, p.Minor+1, 0)
	default:
		end = first(0, 0, p.Patch+1)
	}
	return []comparator{from(p.Version), below(end)}
}

// hyphen reads a range from one version to another, both included.
func hyphen(low, high string) ([]comparator, bool) {
	a, ok := parsePartial(strings.TrimPrefix(low, "v"))
	b, okToo := parsePartial(strings.TrimPrefix(high, "v"))
	if !ok || !okToo {
		return nil, false
	}
	set := []comparator{}
	if a.known > 0 {
		set = append(set, from(a.Version))
	}
	switch b.known {
	case 0:
	case 3:
		set = append(set, comparator{"<=", b.Version})
	default:
		set = append(set, below(b.next()))
	}
	return set, true
}
