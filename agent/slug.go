package agent

import (
	"strings"
	"unicode"
)

// Slug makes a NAME of a display name: lower-case letters, digits and single
// hyphens, at most 64 of them. A name that leaves nothing becomes "agent".
func Slug(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case 'a' <= r && r <= 'z' || unicode.IsDigit(r) && r < 0x80:
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() >= 64 {
			break
		}
	}
	if s := strings.Trim(b.String(), "-"); s != "" {
		return s
	}
	return "agent"
}
