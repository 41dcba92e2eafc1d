package dispatch

import (
	"strings"
	"testing"
)

// FuzzParseID checks that ParseID returns 32 hex digits. The UUID form of these digits must give
// the same result.
func FuzzParseID(f *testing.F) {
	for _, s := range []string{"0123456789abcdef0123456789ABCDEF", "01234567-89ab-cdef-0123-456789abcdef", "", "-", "0123456789abcdef0123456789abcdeg", "K123456789abcdef0123456789abcdef"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, ok := ParseID(s)
		if !ok {
			if id != "" {
				t.Errorf("%q is not an id, but ParseID returned %q", s, id)
			}
			return
		}
		if again, ok := ParseID(UUID(id)); !ok || again != id || strings.ToLower(id) != id || len(id) != 32 || len(UUID(id)) != 36 {
			t.Errorf("ParseID(%q) is %q, but for the UUID of that id it is %q", s, id, again)
		}
	})
}
