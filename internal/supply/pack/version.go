package pack

import (
	"regexp"
	"strings"
	"sync"

	"github.com/Masterminds/semver/v3"

	"github.com/ambit-run/ambit/tooluri"
)

// lazy compiles a regular expression on first use: most runs of ambit need none of
// these.
func lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// IsExact reports whether s is one version, not a tag (latest) or a range (^1.2).
func IsExact(k Kind, s string) bool {
	if k == PyPI {
		return s != "latest" && pypiVersion().MatchString(s)
	}
	pin, err := tooluri.ParsePin(s)
	return err == nil && !pin.Digest()
}

// sameVersion reports whether a and b name one version.
func sameVersion(k Kind, a, b string) bool {
	if k == PyPI {
		return pep440(a) == pep440(b)
	}
	// npm ignores build metadata when it compares versions.
	a, _, _ = strings.Cut(a, "+")
	b, _, _ = strings.Cut(b, "+")
	return a == b
}

// satisfies reports whether an exact version matches a range or tag. A tag moves, so
// it matches any version.
func satisfies(asked, version string) bool {
	c, err := semver.NewConstraint(asked)
	if err != nil {
		return !strings.ContainsAny(asked, "<>=^~*| ")
	}
	v, err := semver.NewVersion(version)
	return err == nil && c.Check(v)
}

var pep440Parts = lazy(`^v?(?:([0-9]+)!)?([0-9]+(?:\.[0-9]+)*)(?:[._-]?(alpha|beta|preview|pre|rc|a|b|c)[._-]?([0-9]*))?(.*)$`)

// pep440 normalizes a Python version: 1.0 is 1.0.0, and 1.0-RC.1 is 1.0rc1.
func pep440(s string) string {
	m := pep440Parts().FindStringSubmatch(strings.ToLower(s))
	if m == nil {
		return s
	}
	epoch, release, pre, n, rest := m[1], m[2], m[3], m[4], m[5]
	parts := strings.Split(release, ".")
	for i, p := range parts {
		if parts[i] = strings.TrimLeft(p, "0"); parts[i] == "" {
			parts[i] = "0"
		}
	}
	for len(parts) > 1 && parts[len(parts)-1] == "0" {
		parts = parts[:len(parts)-1]
	}
	out := strings.Join(parts, ".")
	if epoch = strings.TrimLeft(epoch, "0"); epoch != "" {
		out = epoch + "!" + out
	}
	switch pre {
	case "":
	case "alpha":
		pre = "a"
	case "beta":
		pre = "b"
	case "c", "pre", "preview":
		pre = "rc"
	}
	if pre != "" {
		if n = strings.TrimLeft(n, "0"); n == "" {
			n = "0"
		}
		out += pre + n
	}
	return out + strings.NewReplacer("-", ".", "_", ".").Replace(rest)
}
