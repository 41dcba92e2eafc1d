package tooluri

import (
	"strings"

	"github.com/Masterminds/semver/v3"
)

// Pin is an exact version: a semantic version or the digest of a package.
// The zero Pin pins nothing.
type Pin struct{ s string }

const (
	digestPrefix = "sha256:"
	digestHex    = 64
)

// ParsePin reads what stands behind the @ of a tool URI. An empty text and a
// moving target (latest, 1.x) are ErrUnpinnedTool, a malformed one ErrInvalidURI.
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
	if _, err := semver.StrictNewVersion(s); err != nil {
		return Pin{}, ErrUnpinnedTool
	}
	return Pin{s}, nil
}

// String prints the pin as it stands in a URI.
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

// ZeroDigest is the placeholder that stands for "not yet computed".
const ZeroDigest = digestPrefix + "0000000000000000000000000000000000000000000000000000000000000000"

func versionChars(s string) bool {
	for i := range len(s) {
		if !alnum(s[i]) && !strings.ContainsRune("._+:-", rune(s[i])) {
			return false
		}
	}
	return true
}
