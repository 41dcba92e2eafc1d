package tooluri

import "strings"

// Pin is an exact version: a semantic version or the digest of a package. The zero Pin
// pins nothing.
type Pin struct{ s string }

const (
	digestPrefix = "sha256:"
	digestHex    = 64
)

// ParsePin parses the part after the @ of a tool URI. It returns ErrUnpinnedTool for
// an empty text and a moving target (latest, 1.x), and ErrInvalidURI for a malformed
// one.
func ParsePin(s string) (Pin, error) {
	switch {
	case s == "":
		return Pin{}, ErrUnpinnedTool
	case strings.HasPrefix(s, digestPrefix):
		if !IsDigest(s) {
			return Pin{}, ErrInvalidURI
		}
		return Pin{s}, nil
	case len(s) > maxPart || !versionChars(s):
		return Pin{}, ErrInvalidURI
	}
	// Three numbers, strictly: to a package manager 1.2 is a range, not a version.
	if !isSemver(s) {
		return Pin{}, ErrUnpinnedTool
	}
	return Pin{s}, nil
}

// isSemver reports whether s is a version by SemVer 2.0.0: three numbers, then
// an optional -prerelease and +build of dotted parts.
func isSemver(s string) bool {
	s, build, hasBuild := strings.Cut(s, "+")
	core, pre, hasPre := strings.Cut(s, "-")
	if hasBuild && !dotted(build, func(part string) bool { return true }) {
		return false
	}
	if hasPre && !dotted(pre, func(part string) bool { return !digits(part) || number(part) }) {
		return false
	}
	return isCore(core)
}

// isCore reports whether s is three numbers with dots between them.
func isCore(s string) bool {
	numbers, start := 0, 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) && '0' <= s[i] && s[i] <= '9' {
			continue
		}
		if i == start || s[start] == '0' && i > start+1 || i < len(s) && s[i] != '.' {
			return false
		}
		numbers, start = numbers+1, i+1
	}
	return numbers == 3
}

// dotted reports whether every part between dots is of [0-9A-Za-z-] and ok.
func dotted(s string, ok func(string) bool) bool {
	for part := range strings.SplitSeq(s, ".") {
		if part == "" || !ok(part) {
			return false
		}
		for i := range len(part) {
			if !alnum(part[i]) && part[i] != '-' {
				return false
			}
		}
	}
	return true
}

func digits(s string) bool { return strings.Trim(s, "0123456789") == "" }

// number reports whether s is digits without leading zeros.
func number(s string) bool { return digits(s) && s != "" && (s == "0" || s[0] != '0') }

// String returns the pin as written in a URI.
func (p Pin) String() string { return p.s }

// Digest reports whether the pin is the digest of a package.
func (p Pin) Digest() bool { return strings.HasPrefix(p.s, digestPrefix) }

// IsDigest reports whether s is sha256: and 64 lower-case hex digits.
func IsDigest(s string) bool {
	h, ok := strings.CutPrefix(s, digestPrefix)
	if !ok || len(h) != digestHex {
		return false
	}
	for i := range len(h) {
		if c := h[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// ZeroDigest is the placeholder for a digest that is not yet computed.
const ZeroDigest = digestPrefix + "0000000000000000000000000000000000000000000000000000000000000000"

func versionChars(s string) bool {
	for i := range len(s) {
		if c := s[i]; !alnum(c) && c != '.' && c != '_' && c != '+' && c != ':' && c != '-' {
			return false
		}
	}
	return true
}
