package approval

import (
	"strings"
	"testing"
)

// Harmless look-alikes do not hide that there are more.
func TestManyLookAlikes(t *testing.T) {
	const decoys = "\u0440hoto \u0440icture \u0440lan \u0440rint \u0440age"
	for _, tt := range []struct {
		arguments string
		warnings  int
		more      bool
	}{
		{`{"a":"photo"}`, 0, false},
		{`{"a":"` + decoys + `"}`, 5, false},
		{`{"a":"` + decoys + `","to":"` + "\u0440aypal" + `"}`, 6, true},
		{`{"a":"` + decoys + `","to":"` + "\u0440aypal \u0440ayment" + `"}`, 6, true},
	} {
		got := LookAlikes("pay", tt.arguments)
		if len(got) != tt.warnings || (len(got) > 0 && strings.HasPrefix(got[len(got)-1], "there are more ")) != tt.more {
			t.Errorf("%s: got %q", tt.arguments, got)
		}
	}
}
