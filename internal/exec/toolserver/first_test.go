//go:build unix

package toolserver

import (
	"os"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// A server that cannot be started at first is tried again as one that ended, says
// why meanwhile, and is proven and announced when it comes up.
func TestFirstStartFails(t *testing.T) {
	r := newRig(t)
	hand := r.byHand()
	r.o.Persist = true
	announced := make(chan string, 10)
	r.o.OnNotify = func(alias, method string, _ jsontext.Value) { announced <- alias + " " + method }
	one := r.fake("one", []string{"echo"})
	program := one.Command
	one.Command = r.path("not-there-yet")
	m := r.start()
	failed := func() *call.Refusal {
		t.Helper()
		p := m.Proofs()[0]
		if p.OK || p.Refusal == nil || !strings.Contains(p.Refusal.Message, "not-there-yet") {
			t.Fatalf("its proof is %+v", p)
		}
		return p.Refusal
	}
	failed()
	for range quickRestarts {
		hand.pass()
	}
	hand.waits()
	if got := failed(); got.RetryAfter == 0 || !strings.Contains(got.Message, "tried again in") {
		t.Errorf("while it rests: %+v", got)
	}
	if err := os.Symlink(program, one.Command); err != nil {
		t.Fatal(err)
	}
	hand.pass()
	r.until("it is proven", m.Proven)
	r.works(m, "one")
	if got := <-announced; got != "one "+mcpwire.MethodToolsChanged {
		t.Errorf("announced was %s", got)
	}
}

// One that is not what the manifest says is not tried again; and where nobody
// asked for it, neither is one that does not start.
func TestFirstStartIsFinal(t *testing.T) {
	t.Run("drifted", func(t *testing.T) {
		r := newRig(t)
		r.byHand()
		r.o.Persist = true
		r.fake("one", []string{"echo"})
		r.write("one/tools.json", definition("exec"))
		over(t, r, call.ServerDrifted)
	})
	t.Run("not asked for", func(t *testing.T) {
		r := newRig(t)
		r.byHand()
		r.fake("one", []string{"echo"}, "-do", "exit")
		over(t, r, call.ServerUnavailable)
	})
}

// over wants a server that is refused for good.
func over(t *testing.T, r *rig, code call.Code) {
	t.Helper()
	m := r.start()
	if p := m.Proofs()[0]; p.OK || p.Refusal == nil || p.Refusal.Code != code {
		t.Errorf("its proof is %+v", p)
	}
	if !m.order[0].over {
		t.Error("it is still being found out what it is")
	}
}
