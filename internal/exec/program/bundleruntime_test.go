//go:build linux

package program

import (
	"context"
	"testing"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/ambit-run/ambit/internal/exec/sandbox/sandboxtest"
)

// fading is a context that ends when Deadline is called for the second time.
type fading struct {
	context.Context
	end  context.CancelFunc
	used bool
}

func (f *fading) Deadline() (time.Time, bool) {
	if f.used {
		f.end()
	}
	f.used = true
	return f.Context.Deadline()
}

func TestNearest(t *testing.T) {
	var all []interpreter
	for _, v := range []string{"24.1.0", "22.4.0", "20.19.2", "16.0.0"} {
		all = append(all, interpreter{v, semver.MustParse(v)})
	}
	for constraint, want := range map[string]string{
		"18": "20.19.2", "^18.2": "20.19.2", ">=17 <19": "20.19.2", "20.99": "22.4.0", "14.x": "16.0.0", "99": "24.1.0", "23": "24.1.0",
	} {
		if got := all[nearest(all, constraint)].path; got != want {
			t.Errorf("nearest(%q) = %s, want %s", constraint, got, want)
		}
	}
}

// TestInterpretersOfAnEndedCall checks that an incomplete list of interpreters is not
// cached if the context ends during the search.
func TestInterpretersOfAnEndedCall(t *testing.T) {
	sandboxtest.Need(t)
	const kind = "node or python3"
	interpreterPatterns[kind] = []string{"/usr/bin/node*", "/usr/local/bin/node*", "/usr/bin/python3*", "/usr/local/bin/python3*"}
	defer delete(interpreterPatterns, kind)
	defer delete(interpreters.of, kind)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if found := installed(&fading{Context: ctx, end: cancel}, kind); len(found) != 1 {
		t.Fatalf("%d interpreters were found before the context ended, want 1", len(found))
	}
	if found := installed(t.Context(), kind); len(found) < 2 {
		t.Errorf("%d interpreters were found by the next search, want at least 2", len(found))
	}
}
