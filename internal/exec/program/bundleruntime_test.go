//go:build linux

package program

import (
	"context"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/exec/sandbox/sandboxtest"
)

// fading is a context that ends at its second use.
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

// A call that ends during the search for interpreters caches no incomplete list.
func TestInterpretersOfAnEndedCall(t *testing.T) {
	sandboxtest.Need(t)
	const kind = "node or python3"
	interpreterPatterns[kind] = []string{"/usr/bin/node*", "/usr/local/bin/node*", "/usr/bin/python3*", "/usr/local/bin/python3*"}
	defer delete(interpreterPatterns, kind)
	defer delete(interpreters.of, kind)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if found := installed(&fading{Context: ctx, end: cancel}, kind); len(found) != 1 {
		t.Fatalf("%d were asked before the end, want one", len(found))
	}
	if found := installed(t.Context(), kind); len(found) < 2 {
		t.Errorf("%d are known after it", len(found))
	}
}
