package guard

import (
	"testing"
)

// An edit that would break the text is an error, not a broken text.
func TestRewriteNeverMakesSomethingElseThanJSON(t *testing.T) {
	doc := []byte(`{"a":"x\\u0041y"}`)
	for start := range doc {
		for end := start + 1; end <= len(doc); end++ {
			out, _, err := rewrite(doc, []edit{{Secret, "r", start, end}}, nil)
			if err == nil && !valid(out) {
				t.Errorf("%d to %d: %s", start, end, out)
			}
		}
	}
	if _, _, err := rewrite([]byte(`{"a":"\u0041"}`), []edit{{Secret, "r", 8, 10}}, nil); err == nil {
		t.Error("half of an escape was cut out without an error")
	}
}
