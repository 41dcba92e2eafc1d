package policy

import (
	"path/filepath"
	"testing"
	"time"
)

// TestCases runs the test cases in testdata/cases.toml, in the same way as the command `ambit policy test`.
func TestCases(t *testing.T) {
	s, err := ReadSuite(filepath.Join("testdata", "cases.toml"))
	if err != nil {
		t.Fatal(err)
	}
	dialects := map[string]int{}
	for i, o := range s.Run(Options{Config: filepath.Join(t.TempDir(), "config.toml")}) {
		dialects[s.Cases[i].Dialect]++
		t.Run(o.Name, func(t *testing.T) {
			if !o.OK {
				t.Errorf("%s\n%+v", o.Problem, o.Reasons)
			}
		})
	}
	if len(s.Cases) < 100 || len(dialects) != 4 {
		t.Errorf("got %d cases for the dialects %v, want at least 100 cases for 4 dialects", len(s.Cases), dialects)
	}
}

func now() time.Time { return time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC) }
