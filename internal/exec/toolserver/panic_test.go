//go:build unix

package toolserver

import (
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// If ambit panics while it handles a message from a server, calls to this server fail like after an exit of the server.
// The server is then started again, and the other servers keep running.
func TestPanicEndsOneConnection(t *testing.T) {
	r := newRig(t)
	r.fake("one", []string{"echo", "log"})
	r.fake("two", []string{"echo"})
	var crash sync.Once
	r.o.OnNotify = func(_, method string, _ jsontext.Value) {
		if method == "notifications/message" {
			crash.Do(func() { panic("cannot handle this") })
		}
	}
	m := r.proven()
	_, refusal := r.call(m, "one", "log", `{}`)
	is(t, refusal, call.ServerUnavailable, call.NoEffect, true)
	if !strings.Contains(refusal.Message, "ambit itself failed while it handled a message from the server") {
		t.Errorf("the refusal is %q", refusal.Message)
	}
	if log := r.log(); !strings.Contains(log, "ambit failed while it handled a message") || !strings.Contains(log, "toolserver.TestPanicEndsOneConnection.func") {
		t.Errorf("the log is\n%s", log)
	}
	r.works(m, "one")
	r.works(m, "two")
	if one, two := r.read("one/lives"), r.read("two/lives"); one != "2" || two != "1" {
		t.Errorf("the servers were started %s and %s times, want 2 and 1", one, two)
	}
}
