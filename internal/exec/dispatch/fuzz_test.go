package dispatch

import (
	"strings"
	"testing"
)

// An id has one form inside, and is read again from the one that people see.
func FuzzParseID(f *testing.F) {
	for _, s := range []string{"0123456789abcdef0123456789ABCDEF", "01234567-89ab-cdef-0123-456789abcdef", "", "-", "0123456789abcdef0123456789abcdeg", "K123456789abcdef0123456789abcdef"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, ok := ParseID(s)
		if !ok {
			if id != "" {
				t.Errorf("%q is no id, and is %q", s, id)
			}
			return
		}
		if again, ok := ParseID(UUID(id)); !ok || again != id || strings.ToLower(id) != id || len(id) != 32 || len(UUID(id)) != 36 {
			t.Errorf("%q is %q, and then %q", s, id, again)
		}
	})
}
