//go:build unix

package toolserver

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/supply/pack"
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

// ambitFailed is the part of a refusal that reports a panic.
const ambitFailed = "ambit itself failed while it handled the server"

// logsPanic checks that the log of server one contains the stack of a panic in the given function.
func (r *rig) logsPanic(function string) {
	r.t.Helper()
	if log := r.log(); !strings.Contains(log, "one: warning: ambit failed while it handled the server: ") || !strings.Contains(log, function) {
		r.t.Errorf("the log does not contain the stack of a panic in %s:\n%s", function, log)
	}
}

// If ambit panics at the first start of a server, that server is refused like a server that did not start.
func TestPanicAtTheStart(t *testing.T) {
	for _, where := range []string{"attempt", "publish"} {
		for _, persist := range []bool{false, true} {
			r := newRig(t)
			r.fake("one", []string{"echo"})
			r.fake("two", []string{"echo"})
			var crash sync.Once
			at := func(here string) {
				if here == where {
					crash.Do(func() { panic("cannot handle this") })
				}
			}
			specs := Declared(r.agent)
			one := specs[0]
			specs[0].Find = func(context.Context, pack.Progress) (Spec, error) { at("attempt"); return one, nil }
			r.o.OnProven = func(alias string, _ map[string][]byte) {
				if alias == "one" {
					at("publish")
				}
			}
			r.o.Servers, r.o.Persist = specs, persist
			m := r.start()
			r.works(m, "two")
			r.logsPanic("(*server)." + where)
			if persist {
				r.works(m, "one") // it was started again
				continue
			}
			refused(t, m.Proofs()[0], call.ServerUnavailable, "server one did not start: "+ambitFailed)
			_, refusal := r.call(m, "one", "echo", `{}`)
			is(t, refusal, call.ServerUnavailable, call.NoEffect, true)
		}
	}
}

// crashingCallers panics when the server asks for the first time whether each caller has a sign-in.
type crashingCallers struct{ Callers }

func (crashingCallers) ByCaller(*agent.Server) (bool, error) { panic("cannot handle this") }

// If ambit panics while it verifies a running server again, it connects to the server again.
func TestPanicInAnotherVerification(t *testing.T) {
	r := newRig(t)
	r.at("one", []string{"echo"}, handler(sdkServer("echo"), false))
	m := r.proven()
	s := m.servers["one"]
	s.options.Callers = crashingCallers{}
	s.requestRecheck()
	r.until("the server is verified", func() bool { return s.lastProof().OK && strings.Contains(r.log(), "the server stopped: "+ambitFailed) })
	r.logsPanic("(*server).prove")
	if result, refusal := r.call(m, "one", "echo", `{"n":1}`); refusal != nil {
		t.Errorf("the next call got %s, %v", result.Raw, refusal)
	}
}

// brokenClock panics when a restart waits.
type brokenClock struct{ wallClock }

func (brokenClock) After(time.Duration) <-chan time.Time { panic("cannot handle this") }

// If ambit panics while it supervises a server, that server stays stopped, and the other servers keep running.
func TestPanicInSupervision(t *testing.T) {
	r := newRig(t)
	r.fake("one", []string{"echo", "crash"})
	r.fake("two", []string{"echo"})
	r.o.clock = brokenClock{}
	m := r.proven()
	_, _ = r.call(m, "one", "crash", `{}`)
	_, refusal := r.call(m, "one", "echo", `{}`)
	is(t, refusal, call.ServerUnavailable, call.NoEffect, false)
	if want := "server one was stopped: " + ambitFailed; refusal.Message != want {
		t.Errorf("the refusal is %q, want %q", refusal.Message, want)
	}
	r.logsPanic("(*server).restart")
	r.works(m, "two")
}

// If ambit panics while it opens a client's own connection, only the calls of this client fail.
func TestPanicInOwnConnection(t *testing.T) {
	r := newRig(t)
	s := asker()
	r.at("one", []string{"echo", "ask"}, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	var armed atomic.Bool
	r.o.SignIn = func(*agent.Server) SignIn {
		if armed.CompareAndSwap(true, false) {
			panic("cannot handle this")
		}
		return nil
	}
	m := r.proven()
	armed.Store(true)
	ask := &call.Call{Arguments: jsontext.Value("{}"), Client: askable("Ann")}
	_, refusal := r.act(t.Context(), m, "one", "ask", ask)
	if refusal == nil || !strings.Contains(refusal.Message, ambitFailed) {
		t.Errorf("the refusal is %v", refusal)
	}
	r.logsPanic("(*server).connOf")
	if result, refusal := r.act(t.Context(), m, "one", "ask", ask); refusal != nil || !strings.Contains(string(result.Raw), "hello Ann") {
		t.Errorf("the next call got %s, %v", result.Raw, refusal)
	}
}

// If ambit panics while it announces new tools, the server keeps running.
func TestPanicInAnnouncement(t *testing.T) {
	r := newRig(t)
	r.fake("one", []string{"echo"})
	r.o.OnNotify = func(_, method string, _ jsontext.Value) {
		if method == mcpwire.MethodToolsChanged {
			panic("cannot handle this")
		}
	}
	m := r.proven()
	m.servers["one"].announce()
	r.until("the panic is logged", func() bool { return strings.Contains(r.log(), "(*server).announce") })
	r.works(m, "one")
}

// If ambit panics while it renews a subscription, the subscription ends, and other subscriptions are renewed.
func TestPanicInSubscription(t *testing.T) {
	subscribe := func(m *Manager, uri string, panics *atomic.Bool) {
		_, err := m.Forward(t.Context(), &call.Forward{
			Server: "one", Method: methodSubscribe, Params: jsontext.Value(`{"uri":"` + uri + `"}`), Client: &call.Client{Key: uri},
			Again: func(context.Context) error {
				if panics.Load() {
					panic("cannot handle this")
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	watched := func(m *Manager) int {
		s := m.servers["one"]
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.watched)
	}
	var always, never atomic.Bool
	always.Store(true)
	t.Run("after a lost session", func(t *testing.T) {
		r := newRig(t)
		k := &keeper{}
		r.at("one", []string{"echo"}, k)
		m := r.proven()
		subscribe(m, "test://broken", &always)
		subscribe(m, "test://open", &never)
		k.forget()
		r.until("the server answers again", func() bool {
			_, refusal := r.call(m, "one", "echo", `{}`)
			return refusal == nil
		})
		r.until("the open resource is watched again", func() bool { return k.count("resources/subscribe test://open") >= 2 })
		r.until("the broken subscription has ended", func() bool { return watched(m) == 1 })
		r.logsPanic("(*server).refuses")
	})
	t.Run("after the end of a stream", func(t *testing.T) {
		r := newRig(t)
		hand := r.byHand()
		h := &herald{end: make(chan struct{})}
		r.at("one", []string{"echo"}, h)
		m := r.proven()
		subscribe(m, "test://broken", &always)
		h.end <- struct{}{}
		hand.waits()
		hand.pass()
		r.until("the broken subscription has ended", func() bool { return watched(m) == 0 })
		r.logsPanic("(*server).stillWatched")
	})
}
