package registry

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/Masterminds/semver/v3"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Range is a version constraint in npm's syntax, such as ^1.2 or >=1.0.0 <2.0.0 || 3.x. The parts between || are
// called groups. A range can also contain operators from other tools: a comma, !=, => and =<.
//
// A prerelease matches only a group that names a prerelease with the same major, minor and patch number. For example,
// >1.2.3-alpha.3 matches 1.2.3-alpha.7, but not 3.0.0-alpha.7.
type Range struct{ groups []group }

// group is one of the alternatives of a range.
type group struct {
	rules       *semver.Constraints
	prereleases []*semver.Version // the prereleases that the group names
}

const (
	maxVersion = 256 // the maximum length of a version, as in npm, and of a range
	maxGroups  = 32
)

// These regular expressions describe the ranges that npm and the semver library interpret in the same way. They
// exclude numbers after an x, operators before a single x, and prereleases of partial versions.
const (
	number  = `(?:0|[1-9][0-9]{0,14})`
	word    = `(?:[0-9]*[A-Za-z-][0-9A-Za-z-]*|` + number + `)`
	suffix  = `(?:-` + word + `(?:\.` + word + `)*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?`
	full    = number + `\.` + number + `\.` + number + suffix
	partial = number + `(?:\.` + number + `(?:\.[xX*])?|(?:\.[xX*]){1,2})?`
	version = `v?(?:` + full + `|` + partial + `)`
	hyphen  = version + `\s+-\s+` + version
	rule    = `(?:(?:[=~^]|[<>]=?|=[<>]|~>)?\s*` + version + `|!=\s*v?` + full + `|[xX*](?:\.[xX*]){0,2})`
)

var (
	fullSyntax  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(full) })
	exactSyntax = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^` + full + `$`) })
	groupSyntax = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^\s*(?:` + hyphen + `|` + rule + `(?:(?:\s*,\s*|\s+)` + rule + `)*)\s*$`)
	})
	// tildeZero matches ~0.0.0. The semver library interprets ~0.0.0 as any version, but npm interprets ~0.0.0 as
	// <0.1.0.
	tildeZero = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`~>?\s*v?0\.0\.0`) })
)

// ParseRange parses a constraint. It refuses rare spellings that npm and the semver library interpret differently.
func ParseRange(s string) (Range, error) {
	var r Range
	for text := range strings.SplitSeq(s, "||") {
		g, err := parseGroup(text)
		if err != nil || len(s) > maxVersion || len(r.groups) == maxGroups {
			return Range{}, fmt.Errorf("%s is not a version constraint", diag.Quote(s))
		}
		r.groups = append(r.groups, g)
	}
	return r, nil
}

func parseGroup(text string) (g group, err error) {
	if !groupSyntax().MatchString(text) || tildeZero().MatchString(text) {
		return g, semver.ErrInvalidSemVer
	}
	for _, name := range fullSyntax().FindAllString(text, -1) {
		if v, ok := ParseVersion(name); ok && v.Prerelease() != "" {
			g.prereleases = append(g.prereleases, v)
		}
	}
	// In the semver library, 1.3.0-beta is in >1.2 and also in <1.3. In npm, it is in neither. A group with a
	// prerelease must therefore not contain partial versions.
	rest := fullSyntax().ReplaceAllString(text, "")
	if g.prereleases != nil && strings.ContainsAny(rest, "0123456789xX*") {
		return g, semver.ErrInvalidPrerelease
	}
	g.rules, err = semver.NewConstraint(text)
	return g, err
}

// Contains reports whether a version is in the range.
func (r Range) Contains(v *semver.Version) bool {
	sameNumbers := func(p *semver.Version) bool {
		return p.Major() == v.Major() && p.Minor() == v.Minor() && p.Patch() == v.Patch()
	}
	return slices.ContainsFunc(r.groups, func(g group) bool {
		return (v.Prerelease() == "" || slices.ContainsFunc(g.prereleases, sameNumbers)) && g.rules.Check(v)
	})
}

// ParseVersion parses an exact version. As in npm, a leading v or = is ignored.
func ParseVersion(s string) (*semver.Version, bool) {
	text := strings.TrimLeft(strings.TrimSpace(s), "v= \t")
	if len(s) > maxVersion || !exactSyntax().MatchString(text) {
		return nil, false
	}
	v, err := semver.StrictNewVersion(text)
	return v, err == nil
}
