package flow

import (
	"strings"
	"testing"
)

// Fewer than 3 % of the effects in our own traces of harmless work are questioned.
func TestBenign(t *testing.T) {
	s := readSuite(t, "testdata/benign.json")
	for _, neutral := range []bool{false, true} {
		for _, first := range []bool{true, false} {
			keep := func(id string) bool {
				work, _, _ := strings.Cut(id, "/")
				return half(first)(work)
			}
			r := measure(s, change{neutral: neutral}, keep, t.Logf)
			if r.questions*100 > r.effects*3 {
				t.Errorf("neutral names %v, first half %v: %d of %d effects questioned", neutral, first, r.questions, r.effects)
			}
		}
	}
}
