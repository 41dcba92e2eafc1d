package policy

import (
	"path/filepath"
	"testing"
	"time"
)

// The table of cases is also a transcript of ambit policy test.
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
		t.Errorf("%d cases over %v", len(s.Cases), dialects)
	}
}

func now() time.Time { return time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC) }
