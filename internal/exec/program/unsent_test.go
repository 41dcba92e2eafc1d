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

// wantUnsent fails unless err is a refusal without effect and with this Unsent.
func wantUnsent(t *testing.T, err error, unsent bool) {
	t.Helper()
	if r, ok := errors.AsType[*call.Refusal](err); !ok || r.Effect != call.NoEffect || r.Unsent != unsent {
		t.Errorf("%+v, want that it did not run: %t", r, unsent)
	}
}

// A call whose program ran counts as sent, even if it failed. A call whose program could
// not be started does not.
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
	r.options.Isolation = "none of that name"
	_, err = r.act(t.Context())
	wantUnsent(t, err, true)
}

// The same holds for a bundle. If only the harness reports that the code was not loaded,
// the call counts as sent.
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
	r.options.Isolation = "none of that name"
	_, err = r.call(t, `{}`)
	wantUnsent(t, err, true)
}
