package tooluri

import (
	"strings"

	"golang.org/x/mod/semver"
)

// Pin is an exact version: either a semantic version or the digest of a package. The zero Pin is not a version.
type Pin struct{ s string }

const (
	digestPrefix = "sha256:"
	digestHex    = 64
)

// ParsePin parses the version in a tool URI. It returns ErrUnpinnedTool if the version is missing or inexact, such as
// latest or 1.x. It returns ErrInvalidURI if the version is malformed.
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
	// Package managers treat 1.2 as a range, so a pin needs three numbers. semver.IsValid also accepts v1
	// and v1.2, so count the dots.
	if !semver.IsValid("v"+s) || strings.Count(s, ".") < 2 {
		return Pin{}, ErrUnpinnedTool
	}
	return Pin{s}, nil
}

// String returns the pin as it appears in a URI.
func (p Pin) String() string { return p.s }

// Digest reports whether the pin is the digest of a package.
func (p Pin) Digest() bool { return strings.HasPrefix(p.s, digestPrefix) }

// IsDigest reports whether s is a digest: "sha256:" followed by 64 lower-case hex digits.
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

// ZeroDigest stands for a digest that is not known yet.
const ZeroDigest = digestPrefix + "0000000000000000000000000000000000000000000000000000000000000000"

func versionChars(s string) bool {
	for i := range len(s) {
		if c := s[i]; !alnum(c) && c != '.' && c != '_' && c != '+' && c != ':' && c != '-' {
			return false
		}
	}
	return true
}
