package registry

import (
	"cmp"
	"strconv"
	"strings"
)

// Version is a semantic version in npm's syntax. Build metadata does not affect the
// order and is dropped.
type Version struct {
	Major, Minor, Patch uint64
	// Pre are the identifiers of a prerelease; none for a release.
	Pre []string
}

const (
	maxVersion = 256
	// maxNumber is the largest number that JavaScript represents exactly, and npm's
	// largest.
	maxNumber = 1<<53 - 1
)

// ParseVersion parses an exact version. As in npm, it may begin with v or =.
func ParseVersion(s string) (Version, bool) {
	s = strings.TrimSpace(s)
	if len(s) > maxVersion {
		return Version{}, false
	}
	p, ok := parsePartial(strings.TrimLeft(s, "v= \t"))
	if !ok || p.known < 3 {
		return Version{}, false
	}
	return p.Version, true
}

func (v Version) String() string {
	s := strconv.FormatUint(v.Major, 10) + "." + strconv.FormatUint(v.Minor, 10) + "." + strconv.FormatUint(v.Patch, 10)
	if len(v.Pre) > 0 {
		s += "-" + strings.Join(v.Pre, ".")
	}
	return s
}

// Compare orders two versions: -1, 0 or 1.
func (v Version) Compare(w Version) int {
	if c := v.compareCore(w); c != 0 {
		return c
	}
	switch {
	case len(v.Pre) == 0 && len(w.Pre) == 0:
		return 0
	case len(v.Pre) == 0:
		return 1 // a release comes after its prereleases
	case len(w.Pre) == 0:
		return -1
	}
	for i := range min(len(v.Pre), len(w.Pre)) {
		if c := compareIdentifiers(v.Pre[i], w.Pre[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(v.Pre), len(w.Pre))
}

func (v Version) compareCore(w Version) int {
	return cmp.Or(cmp.Compare(v.Major, w.Major), cmp.Compare(v.Minor, w.Minor), cmp.Compare(v.Patch, w.Patch))
}

// compareIdentifiers orders numbers before words.
func compareIdentifiers(a, b string) int {
	x, aNumber := number(a)
	y, bNumber := number(b)
	switch {
	case aNumber && bNumber:
		return cmp.Compare(x, y)
	case aNumber:
		return -1
	case bNumber:
		return 1
	}
	return cmp.Compare(a, b)
}

// number parses digits without leading zeros.
func number(s string) (uint64, bool) {
	if s == "" || len(s) > 16 || len(s) > 1 && s[0] == '0' || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil && n <= maxNumber
}

// partial is a version whose last parts may be open: 1, 1.2, 1.x.
type partial struct {
	Version
	// known is the number of given parts.
	known int
	// odd means that a number follows an open part.
	odd bool
}

// parsePartial parses one to three parts; x or * is an open part. Parts after an open
// part are ignored.
func parsePartial(s string) (partial, bool) {
	var p partial
	s, build, hasBuild := strings.Cut(s, "+")
	core, pre, hasPre := strings.Cut(s, "-")
	parts := strings.Split(core, ".")
	if len(parts) > 3 || (hasPre || hasBuild) && len(parts) < 3 {
		return p, false
	}
	if hasBuild && !identifiers(build, false) || hasPre && !identifiers(pre, true) {
		return p, false
	}
	open := false
	for i, part := range parts {
		if part == "x" || part == "X" || part == "*" {
			open = true
			continue
		}
		n, ok := number(part)
		if !ok {
			return p, false
		}
		if open {
			p.odd = true
			continue
		}
		p.known = i + 1
		switch i {
		case 0:
			p.Major = n
		case 1:
			p.Minor = n
		case 2:
			p.Patch = n
		}
	}
	if hasPre && p.known == 3 {
		p.Pre = strings.Split(pre, ".")
	}
	return p, true
}

// identifiers checks the part after - or +.
func identifiers(s string, prerelease bool) bool {
	for id := range strings.SplitSeq(s, ".") {
		digits := strings.Trim(id, "0123456789") == ""
		switch {
		case id == "":
			return false
		case prerelease && digits && len(id) > 1 && id[0] == '0':
			return false
		}
		for i := range len(id) {
			c := id[i]
			if !('0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || c == '-') {
				return false
			}
		}
	}
	return true
}
