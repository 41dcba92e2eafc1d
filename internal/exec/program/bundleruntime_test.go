//go:build linux

package program

import (
	"context"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/exec/sandbox/sandboxtest"
)

// fading is a context that is over when the second to use it begins.
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

// Whoever goes while interpreters are being asked leaves nothing out for others.
func TestInterpretersOfAnEndedCall(t *testing.T) {
	sandboxtest.Need(t)
	const kind = "node or python3"
	places[kind] = []string{"/usr/bin/node*", "/usr/local/bin/node*", "/usr/bin/python3*", "/usr/local/bin/python3*"}
	defer delete(places, kind)
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
