//go:build unix

package toolserver

import (
	"context"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// A refusal reports whether the call was sent to the server, even if the tool only reads.
func TestUnsent(t *testing.T) {
	r := newRig(t)
	r.fake("one", []string{"echo", "hang", "crash"}, "-do", "wait-in-second-life")
	r.fake("bad", []string{"echo"}, "-do", "exit")
	m := r.start()
	want := func(refusal *call.Refusal, code call.Code, unsent bool) {
		t.Helper()
		if refusal == nil || refusal.Code != code || refusal.Effect != call.NoEffect || refusal.Unsent != unsent {
			t.Errorf("got %+v, want %s with Unsent %t", refusal, code, unsent)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		r.until("the call hangs", func() bool { return r.read("one/hanging") != "" })
		cancel()
	}()
	_, refusal := r.act(ctx, m, "one", "hang", &call.Call{})
	want(refusal, call.TimedOut, false)
	_, refusal = r.call(m, "one", "crash", `{}`)
	want(refusal, call.ServerUnavailable, false)

	_, refusal = r.act(ctx, m, "one", "echo", &call.Call{}) // the server is being restarted
	want(refusal, call.TimedOut, true)
	r.write("one/go", "")
	_, refusal = r.call(m, "bad", "echo", `{}`)
	want(refusal, call.ServerUnavailable, true)
	if m.Proofs()[1].Refusal.Unsent {
		t.Error("a call changed the refusal in the server's proof")
	}
	m.Close()
	_, refusal = r.call(m, "one", "echo", `{}`)
	want(refusal, call.ServerUnavailable, true)
}
