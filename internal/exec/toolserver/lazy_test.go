//go:build unix

package toolserver

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// lazy makes the rig's servers lazy. Their tools are learned at the first start.
func (r *rig) lazy() {
	r.o.Servers = Declared(r.agent)
	for i := range r.o.Servers {
		r.o.Servers[i].Lazy, r.o.Servers[i].Learn = true, true
	}
}

// idles makes a lazy server look unused for a long time, and reports whether it was stopped.
func (r *rig) idles(s *server) bool {
	s.mu.Lock()
	s.demand.used = time.Time{}
	s.mu.Unlock()
	return s.stopIdle()
}

func TestLazyServer(t *testing.T) {
	r := newRig(t)
	r.fake("one", []string{"echo"})
	r.fake("two", []string{"echo"})
	r.lazy()
	m := r.start()
	if lives := r.read("one/lives") + r.read("two/lives"); lives != "" || len(m.Proofs()) != 0 {
		t.Errorf("before the first use, the server was started %q times and the proofs are %+v", lives, m.Proofs())
	}
	r.works(m, "one")
	if lives := r.read("two/lives"); lives != "" {
		t.Errorf("a server that no call used was started %q times", lives)
	}
	m.Wake(t.Context())
	if p := m.Proofs(); len(p) != 2 || !p[1].OK || !p[1].Lazy {
		t.Errorf("after a list: %+v", p)
	}
}

// Prepare starts a lazy server, and returns the reason if the server cannot be used.
func TestPrepare(t *testing.T) {
	r := newRig(t)
	r.fake("one", []string{"echo"})
	r.fake("bad", []string{"echo"}, "-do", "exit")
	r.lazy()
	m := r.start()
	if err := m.Prepare(t.Context(), r.tool("one", "echo"), "me"); err != nil || r.read("one/lives") == "" {
		t.Errorf("got %v, and the server was started %q times", err, r.read("one/lives"))
	}
	for name, tool := range map[string]*agent.Tool{
		"a server that exits": r.tool("bad", "echo"), "no server": {Name: "echo", Binding: agent.OnServer{Alias: "none"}},
	} {
		err := m.Prepare(t.Context(), tool, "me")
		if refusal, ok := errors.AsType[*call.Refusal](err); !ok || refusal.Effect != call.NoEffect {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// When an idle server starts again, it must advertise the same tools as before. Otherwise it is refused until
// it does.
func TestIdleServerNeedsSameTools(t *testing.T) {
	tests := []struct{ name, tools, words string }{
		{"the same", definition("echo"), ""},
		{"another definition", strings.Replace(definition("echo"), "It does", "It did", 1), `its definition of "echo" has changed`},
		{"another tool", definition("exec"), `it does not advertise "echo"`},
		{"an additional tool", definition("echo") + "," + definition("exec"), `it advertises "exec"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			hand := r.byHand()
			r.fake("one", []string{"echo"})
			r.lazy()
			m := r.start()
			r.works(m, "one")
			r.stops(hand, m.order[0])
			if m.Capabilities("one") != nil {
				t.Error("the stopped server still has a connection")
			}
			r.write("one/tools.json", tt.tools)
			if tt.words == "" {
				r.works(m, "one")
				return
			}
			_, refusal := r.call(m, "one", "echo", `{}`)
			is(t, refusal, call.ServerDrifted, call.NoEffect, false)
			if !strings.Contains(refusal.Message, tt.words) {
				t.Errorf("the refusal is %q, want %q", refusal.Message, tt.words)
			}
			r.write("one/tools.json", definition("echo"))
			hand.advance(lastRetry)
			r.works(m, "one")
		})
	}
}

// stops moves the clock until the server is idle and stopped.
func (r *rig) stops(hand *handClock, s *server) {
	r.t.Helper()
	if got := hand.waits(); got != idleTime {
		r.t.Errorf("the server may be idle for %v, want %v", got, idleTime)
	}
	hand.pass()
	r.until("the server is stopped", s.sleeping)
}

// A lazy server is not stopped while it answers a request, or while a client watches one of its resources.
func TestLazyServerStopsOnlyWhenIdle(t *testing.T) {
	r := newRig(t)
	r.at("notes", []string{"echo"}, &keeper{})
	r.lazy()
	m := r.start()
	s := m.order[0]
	if _, refusal := r.call(m, "notes", "echo", `{}`); refusal != nil {
		t.Fatal(refusal)
	}
	done := s.keepRunning()
	if r.idles(s) {
		t.Error("the server was stopped during a request")
	}
	done()
	if s.stopIdle() {
		t.Error("the server was stopped right after a request")
	}
	client := &call.Client{Key: "one"}
	r.watches(m, client, "test://note")
	if r.idles(s) {
		t.Error("the server was stopped while a client watched a resource")
	}
	_, err := m.Forward(t.Context(), &call.Forward{
		Server: "notes", Method: "resources/unsubscribe", Params: jsontext.Value(`{"uri":"test://note"}`), Client: client,
	})
	if err != nil || !r.idles(s) {
		t.Errorf("the unused server was not stopped (error %v)", err)
	}
}

// After a failed start, calls are refused immediately with the reason, and the start is retried.
func TestLazyServerStartFails(t *testing.T) {
	r := newRig(t)
	hand := r.byHand()
	one := r.fake("one", []string{"echo"})
	program := one.Command
	one.Command = r.path("not-there-yet")
	r.lazy()
	m := r.start()
	for range 2 { // make the second call before the next start
		_, refusal := r.call(m, "one", "echo", `{}`)
		is(t, refusal, call.ServerUnavailable, call.NoEffect, true)
		if !strings.Contains(refusal.Message, "not-there-yet") {
			t.Errorf("the refusal is %q", refusal.Message)
		}
	}
	if p := m.Proofs(); len(p) != 1 || p[0].OK || p[0].NotFound {
		t.Errorf("the proofs are %+v, want one failed start", p)
	}
	if got := hand.waits(); got != firstRetry {
		t.Errorf("the start is retried after %v, want %v", got, firstRetry)
	}
	if err := os.Symlink(program, one.Command); err != nil {
		t.Fatal(err)
	}
	hand.pass()
	r.until("the server is proven", func() bool { p := m.Proofs(); return len(p) == 1 && p[0].OK })
	r.works(m, "one")
}

// If a required server is not found, ambit looks for it again after a pause. It looks for an optional server
// only when the server is used.
func TestLazyServerIsFoundLater(t *testing.T) {
	for name, optional := range map[string]bool{"required": false, "optional": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			hand := r.byHand()
			r.fake("one", []string{"echo"})
			r.lazy()
			found := r.o.Servers[0]
			missing := &Unavailable{Refusal: call.Refuse(stage, call.ServerUnavailable, "no registry has it"), Lacking: true, NotFound: true}
			var known bool
			r.o.Servers[0] = Spec{
				Lazy: true, Optional: optional, Problem: missing,
				Find: func(context.Context, pack.Progress) (Spec, error) {
					if !known {
						return Spec{}, errors.New("Find was called too early")
					}
					return found, nil
				},
			}
			r.o.Servers[0].Alias = "one"
			m := r.start()
			p := m.Proofs()[0]
			refused(t, p, call.ServerUnavailable, "no registry has it")
			if p.NotFound == optional || !p.Lacking {
				t.Errorf("the proof is %+v, want NotFound %t", p, !optional)
			}
			known = true
			if optional {
				hand.advance(firstRetry)
			} else {
				hand.pass()
				r.until("the server is proven", func() bool { return m.Proofs()[0].OK })
			}
			r.works(m, "one")
		})
	}
}

// The tools of an optional server are listed after its first successful start, even while it is stopped.
func TestLazyServerIsOptional(t *testing.T) {
	r := newRig(t)
	hand := r.byHand()
	r.fake("one", []string{"echo"})
	r.lazy()
	r.o.Servers[0].Optional = true
	r.o.Servers[0].Definitions = map[string][]byte{"echo": []byte(definition("echo"))}
	m := r.start()
	echo := r.tool("one", "echo")
	if m.Definition(echo) != nil {
		t.Error("the tool is listed before the server was started")
	}
	r.works(m, "one")
	if m.Definition(echo) == nil {
		t.Error("the tool is not listed while the server runs")
	}
	if r.stops(hand, m.order[0]); m.Definition(echo) == nil {
		t.Error("the tool is not listed while the server is stopped")
	}
}

// A server whose tools are locked is listed without being started. It is verified before its first call, and it keeps
// running while no call uses it.
func TestStartAtTheFirstCall(t *testing.T) {
	r := newRig(t)
	r.fake("one", []string{"echo"})
	r.fake("two", []string{"echo"})
	r.fake("partly", []string{"echo", "read"})
	r.fake("required", []string{"echo"}).Required = true
	r.fake("unlocked", []string{"echo"})
	first := r.proven()
	r.lock(first)
	first.Close()
	delete(r.o.Lock.Agents[r.agent.ID].Servers, "unlocked")
	delete(r.o.Lock.Agents[r.agent.ID].Servers["partly"].Tools, "read")
	r.o.Servers = Deferred(r.agent, r.o.Lock)
	starts := func() string { return r.read("one/lives") + " " + r.read("two/lives") }
	if starts() != "1 1" {
		t.Fatalf("for the lock file, the servers were started %s times", starts())
	}
	m := r.start()
	m.Wake(t.Context())
	var started []string
	for _, p := range m.Proofs() {
		started = append(started, p.Alias)
	}
	if want := []string{"partly", "required", "unlocked"}; !slices.Equal(started, want) {
		t.Errorf("before the first call, these servers were started: %q, want %q", started, want)
	}
	if got := string(m.Definition(r.tool("one", "echo"))); !strings.Contains(got, "It does echo.") {
		t.Errorf("before the first call, the list contains %q", got)
	}
	r.works(m, "one")
	if starts() != "2 1" {
		t.Errorf("after a call to one, one and two were started %s times, want 2 1", starts())
	}
	if r.idles(m.servers["one"]) {
		t.Error("the server was stopped, although it may hold state")
	}
	if got, _ := m.servers["one"].patience(); got != patience {
		t.Errorf("a call waits %v for a server that restarts, want %v", got, patience)
	}

	r.write("two/tools.json", strings.Replace(definition("echo"), "It does", "It did", 1))
	_, refusal := r.call(m, "two", "echo", `{}`)
	if refusal == nil || refusal.Code != call.ServerDrifted {
		t.Errorf("the first call to a server that differs from the lock file: %v, want %s", refusal, call.ServerDrifted)
	}
	if got := m.Definition(r.tool("two", "echo")); got != nil {
		t.Errorf("the list still contains the tool of a quarantined server: %s", got)
	}
	r.write("two/tools.json", definition("echo"))
	was := starts()
	if _, refusal := r.call(m, "two", "echo", `{}`); refusal == nil || refusal.Code != call.ServerDrifted || starts() != was {
		t.Errorf("a later call to the quarantined server: %v, and the starts are %s, want %s", refusal, starts(), was)
	}
}
