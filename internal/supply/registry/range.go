package registry

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Range is a set of versions in npm's syntax: comparators separated by spaces (and) or
// || (or), x-ranges, hyphen ranges, ~ and ^.
//
// A prerelease matches only a comparator with a prerelease of the same three numbers:
// >1.2.3-alpha.3 matches later alphas of 1.2.3, not those of 3.0.0. Other tools write
// a comma for and, !=, => and =<; these are accepted too.
type Range struct{ sets [][]comparator }

// comparator is one condition. The zero comparator matches any version.
type comparator struct {
	sign string // < <= > >= = !=, or empty for any
	Version
}

const (
	maxRange = 256
	maxSets  = 32
)

// ParseRange parses a constraint.
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

// signs are the comparison operators, longer ones first.
var signs = []string{">=", "<=", "=>", "=<", "!=", "~>", ">", "<", "=", "~", "^"}

// parseSet parses the comparators between two ||.
func parseSet(s string) ([]comparator, bool) {
	words := strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == '\t' || r == ',' })
	if len(words) == 3 && words[1] == "-" {
		return hyphen(words[0], words[2])
	}
	set := []comparator{}
	for i := 0; i < len(words); i++ {
		sign, rest := cutSign(words[i])
		if rest == "" { // a sign followed by spaces
			if i++; i == len(words) {
				return nil, false
			}
			rest = words[i]
		}
		p, ok := parsePartial(strings.TrimPrefix(rest, "v"))
		if !ok || p.odd && sign != "~" && sign != "^" { // npm accepts 1.x.3 after ~ and ^ only
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

// never matches no version.
func never() []comparator { return []comparator{{sign: "<", Version: Version{Pre: []string{"0"}}}} }

// first is the lowest prerelease of a version.
func first(major, minor, patch uint64) Version {
	return Version{Major: major, Minor: minor, Patch: patch, Pre: []string{"0"}}
}

func from(v Version) comparator  { return comparator{">=", v} }
func below(v Version) comparator { return comparator{"<", v} }

// next is the first version after all that a partial version covers.
func (p partial) next() Version {
	switch p.known {
	case 1:
		return first(p.Major+1, 0, 0)
	case 2:
		return first(p.Major, p.Minor+1, 0)
	}
	return first(p.Major, p.Minor, p.Patch+1)
}

// expand converts a sign and a partial version to plain comparisons.
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
		return never() // it would leave two ranges, which no real constraint means
	}
	return []comparator{from(start), below(p.next())}
}

// tilde lets the last given number grow, except the first.
func tilde(p partial) []comparator {
	switch p.known {
	case 0:
		return []comparator{{}}
	case 3:
		return []comparator{from(p.Version), below(first(p.Major, p.Minor+1, 0))}
	}
	return []comparator{from(p.Version), below(p.next())}
}

// caret lets everything after the first nonzero number grow.
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

// hyphen parses a range between two versions, both included.
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
