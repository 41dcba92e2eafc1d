package guard

import (
	"testing"
)

// rewrite returns an error if an edit would make the text invalid JSON.
func TestRewriteNeverMakesSomethingElseThanJSON(t *testing.T) {
	doc := []byte(`{"a":"x\\u0041y"}`)
	for start := range doc {
		for end := start + 1; end <= len(doc); end++ {
			out, _, err := rewrite(doc, []edit{{Secret, "r", start, end}}, nil)
			if err == nil && !valid(out) {
				t.Errorf("redacting bytes %d to %d returned the invalid JSON %s", start, end, out)
			}
		}
	}
	if _, _, err := rewrite([]byte(`{"a":"\u0041"}`), []edit{{Secret, "r", 8, 10}}, nil); err == nil {
		t.Error("rewrite redacted a part of an escape without an error")
	}
}
