package flow

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// benign returns our own traces of harmless work: 25 pieces of work in 4 or 5 variants, with the tools and the results of
// well-known servers.
func benign(t *testing.T) *suite {
	t.Helper()
	text, err := os.ReadFile("testdata/benign.json")
	if err != nil {
		t.Fatal(err)
	}
	var s suite
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return &s
}

// questioned returns how many effects of the traces are questioned, and how many there are.
func questioned(t *testing.T, s *suite, c change, keep func(work string) bool) (asked, effects int) {
	tools := s.tools(c)
	for _, u := range s.UserTasks {
		work, _, _ := strings.Cut(u.ID, "/")
		if !keep(work) {
			continue
		}
		q, e, _, _ := run(tools, u.Steps, c, func(f string, x ...any) { t.Logf(u.ID+": "+f, x...) })
		asked, effects = asked+q, effects+e
	}
	return asked, effects
}

// Fewer than 3 % of the effects in harmless work are questioned.
func TestBenign(t *testing.T) {
	for _, neutral := range []bool{false, true} {
		for _, first := range []bool{true, false} {
			asked, effects := questioned(t, benign(t), change{neutral: neutral}, half(first))
			t.Logf("neutral names %v, first half %v: %d of %d effects questioned", neutral, first, asked, effects)
			if asked*100 > effects*3 {
				t.Errorf("neutral names %v, first half %v: %d of %d effects questioned", neutral, first, asked, effects)
			}
		}
	}
}
