package gpars

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/ambit-run/ambit/tooluri"
)

// The version library can handle every constraint within these limits.
const (
	maxConstraint = 256
	maxGroups     = 32
	maxDigits     = 15
)

var commonSigns = []string{"", ">=", "^", "~"}

// constraintSyntax matches the constraints that the version library can parse, after addSpaces has rewritten them. A
// fuzz test compares this regular expression with the library.
//
//	constraint = group { "||" group }
//	group      = version " - " version | comparator { " " comparator }
//	comparator = [ ">=" | "<=" | ">" | "<" | "=" | "^" | "~" | "~>" ] version
//	version    = ["v"] part [ "." part [ "." part [ "-" prerelease ] [ "+" build ] ] ]
var constraintSyntax = sync.OnceValue(func() *regexp.Regexp {
	const (
		part       = `(?:0|[1-9][0-9]{0,14}|[xX*])`
		prerelease = `(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)`
		build      = `[0-9A-Za-z-]+`
		suffix     = `(?:-` + prerelease + `(?:\.` + prerelease + `)*)?(?:\+` + build + `(?:\.` + build + `)*)?`
		version    = `v?` + part + `(?:\.` + part + `(?:\.` + part + suffix + `)?)?`
		comparator = `(?:(?:[<>]=?|=[<>]?|!=|~>?|\^)[ \t]*)?` + version
		group      = `(?:` + version + `[ \t]+-[ \t]+` + version +
			`|` + comparator + `(?:(?:[ \t]*,[ \t]*|[ \t]+)` + comparator + `)*)`
	)
	return regexp.MustCompile(`^[ \t]*` + group + `(?:[ \t]*\|\|[ \t]*` + group + `)*[ \t]*$`)
})

// isConstraint reports whether a string is a version constraint. The second result reports whether npm can also
// parse the constraint.
func isConstraint(s string) (ok, npm bool) {
	// Most constraints consist of an optional operator and one version. They are checked here without the regular
	// expression, which would take longer than all other checks of an entry.
	version := strings.TrimLeft(s, "^~>=")
	if sign := s[:len(s)-len(version)]; len(version) <= maxDigits && slices.Contains(commonSigns, sign) {
		if _, err := tooluri.ParsePin(version); err == nil {
			return true, true
		}
	}
	if len(s) > maxConstraint || strings.Count(s, "||") >= maxGroups || !constraintSyntax().MatchString(s) {
		return false, false
	}
	return true, !strings.ContainsAny(s, ",!") && !strings.Contains(s, "=>") && !strings.Contains(s, "=<")
}

// addSpaces puts spaces around ||. Without the spaces, the version library would parse 1||2 - 3 as a hyphen range from
// "1||2" to "3", and the constraint would match too many versions.
func addSpaces(constraint string) string {
	return strings.ReplaceAll(constraint, "||", " || ")
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

func isLetter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }
