package pack

import (
	"regexp"
	"strings"
	"sync"

	"github.com/Masterminds/semver/v3"

	"github.com/ambit-run/ambit/tooluri"
)

// lazy returns a function that returns a compiled regular expression. The expression is compiled at the first call,
// because most runs of ambit need none of these expressions.
func lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// IsExact reports whether s is an exact version. A tag (latest) or a range (^1.2) is not exact.
func IsExact(k Kind, s string) bool {
	if k == PyPI {
		return s != "latest" && pypiVersion().MatchString(s)
	}
	pin, err := tooluri.ParsePin(s)
	return err == nil && !pin.Digest()
}

// sameVersion reports whether a and b are spellings of the same version.
func sameVersion(k Kind, a, b string) bool {
	if k == PyPI {
		return pep440(a) == pep440(b)
	}
	// npm ignores build metadata when it compares versions.
	a, _, _ = strings.Cut(a, "+")
	b, _, _ = strings.Cut(b, "+")
	return a == b
}

// satisfies reports whether an exact version matches the requested range or tag. A tag matches every version, because a
// tag can refer to any version.
func satisfies(asked, version string) bool {
	c, err := semver.NewConstraint(asked)
	if err != nil {
		return !strings.ContainsAny(asked, "<>=^~*| ")
	}
	v, err := semver.NewVersion(version)
	return err == nil && c.Check(v)
}

var (
	pep440Words = strings.NewReplacer("alpha", "a", "beta", "b", "preview", "rc", "pre", "rc", "rc", "rc", "c", "rc", "-",
		".", "_", ".")
	pep440Pre   = lazy(`\.*(a|b|rc)\.*0*([0-9]*)`)
	pep440Zeros = lazy(`(\.0+)+($|[^0-9.]|\.[a-z])`)
)

// pep440 returns the normalized form of a Python version. All spellings of a version have the same form: 1.0.0 and
// 1.0 become 1, and 1.0-RC.1 becomes 1rc1.
func pep440(s string) string {
	s = pep440Words.Replace(strings.TrimPrefix(strings.ToLower(s), "v"))
	return pep440Zeros().ReplaceAllString(pep440Pre().ReplaceAllString(s, "$1$2"), "$2")
}
