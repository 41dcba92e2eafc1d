//go:build linux

package program_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/program"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// wantUnsent checks that err is a refusal without effect, and that its field Unsent has the given value.
func wantUnsent(t *testing.T, err error, unsent bool) {
	t.Helper()
	if r, ok := errors.AsType[*call.Refusal](err); !ok || r.Effect != call.NoEffect || r.Unsent != unsent {
		t.Errorf("refusal = %+v, want no effect and Unsent = %t", r, unsent)
	}
}

// TestUnsent checks that a call counts as sent only if the program was started. The call counts as
// sent even if the program failed.
func TestUnsent(t *testing.T) {
	r := newRig(t)
	_, err := r.act(t.Context())
	wantUnsent(t, err, true) // there is no entry
	r.write(t, "main.py", "import sys, time\nprint('up', file=sys.stderr, flush=True)\ntime.sleep(600)\n")
	missing := &call.Call{ID: callID, Arguments: []byte(`{}`)}
	_, err = program.New(r.agent, r.options).Act(t.Context(), &r.agent.Tools[0], missing)
	wantUnsent(t, err, true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.options.Log = func(string) { cancel() }
	_, err = r.act(ctx)
	wantUnsent(t, err, false)
	r.options.Isolation = "a tier that does not exist"
	_, err = r.act(t.Context())
	wantUnsent(t, err, true)
}

// TestBundleUnsent checks the same as TestUnsent, but for a bundle. If the harness was started but
// could not load the code, the call counts as sent.
func TestBundleUnsent(t *testing.T) {
	r := newBundleRig(t)
	r.write(t, "main.mjs", "export const handler = () => { console.log('begun'); for (;;); };")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.options.Log = func(string) { cancel() }
	b, err := r.open(t)
	if err != nil {
		t.Fatal(err)
	}
	tool := b.Agent().Tools[0]
	tool.SideEffect = agent.Read
	_, err = b.Act(ctx, &tool, &call.Call{ID: callID, Arguments: []byte(`{}`)})
	wantUnsent(t, err, false)

	r = newBundleRig(t)
	r.write(t, "main.mjs", "throw new Error('not now')")
	_, err = r.call(t, `{}`)
	if reasonOf(err) != program.NotStarted {
		t.Error(err)
	}
	wantUnsent(t, err, false)

	r = newBundleRig(t)
	r.write(t, "main.mjs", "export const handler = () => 1;")
	r.options.Isolation = "a tier that does not exist"
	_, err = r.call(t, `{}`)
	wantUnsent(t, err, true)
}
