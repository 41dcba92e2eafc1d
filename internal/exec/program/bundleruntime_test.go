//go:build linux

package program

import (
	"context"
	"testing"
	"time"

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
