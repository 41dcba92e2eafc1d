package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/manifest"
)

func TestReload(t *testing.T) {
	r := newRig(t, map[string]string{"kept.json": matrix("kept"), "changed.json": matrix("changed"), "removed.json": matrix("removed"), "sick.json": matrix("sick")}, nil)
	r.Prove(t.Context())
	kept, changed, removed, sick := r.agent("kept"), r.agent("changed"), r.agent("removed"), r.agent("sick")
	sick.state.Store(Failed)
	r.write("changed.json", strings.Replace(matrix("changed"), `"read"]`, `"read", "write"]`, 1))
	r.write("added.json", matrix("added"))
	r.write("bad.json", `{"schema_version": 1, "agent": 7}`)
	r.write("broken.json", "{")
	if err := os.Remove(filepath.Join(r.folder, "removed.json")); err != nil {
		t.Fatal(err)
	}
	a := r.ask(r.admin, "POST", "/api/v1/reload", "")
	for list, want := range map[string][]string{"kept": {"kept"}, "changed": {"changed", "sick"}, "removed": {"removed"}, "added": {"added"}, "rejected": {"bad", "broken"}} {
		if got := names(a.doc, list); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", list, got, want)
		}
	}
	if got := names(a.doc, "reasons"); len(got) != 2 || !strings.HasPrefix(got[0], "bad: ") || !strings.HasPrefix(got[1], "broken: ") {
		t.Errorf("the reasons are %q", got)
	}
	if got := names(a.doc, "widened"); !slices.Equal(got, []string{"changed: side effect: new: write"}) {
		t.Errorf("the new permissions are %q", got)
	}
	<-changed.closed
	<-removed.closed
	<-sick.closed
	select {
	case <-kept.closed:
		t.Error("an unchanged agent was closed")
	default:
	}
	if r.agent("kept") != kept || r.agent("changed") == changed || r.agent("sick") == sick {
		t.Error("the reload restarted other agents than the changed one")
	}
	a = r.ask(r.admin, "GET", "/api/v1/agents", "")
	if got := names(a.doc, "agents"); !slices.Equal(got, []string{"added/ready", "bad/rejected", "broken/rejected", "changed/ready", "kept/ready", "sick/ready"}) {
		t.Errorf("the agents are %q", got)
	}
	if a := r.ask(r.admin, "POST", "/mcp/removed", "{}"); a.status != 404 {
		t.Errorf("a request to the removed agent returned %d", a.status)
	}
}

// A reload restarts an agent that has a new lock. It does not restart an unchanged agent.
func TestReloadDetectsANewLock(t *testing.T) {
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, nil)
	r.Prove(t.Context())
	before := r.agent("alpha")
	if _, err := r.Reload(t.Context()); err != nil || r.agent("alpha") != before {
		t.Fatalf("an unchanged agent was restarted: %v", err)
	}
	r.write(pack.LockName, `{"version": 1, "agents": {}}`)
	if _, err := r.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := r.ask(r.admin, "GET", "/api/v1/agents", "")
	if r.agent("alpha") == before && !strings.Contains(a.body, "its lock cannot be used") {
		t.Errorf("the agent was not restarted with its new lock: %s", a.body)
	}
}

// A reload restarts an agent whose servers have other rights than before. It restarts no other agent.
func TestReloadDetectsChangedRights(t *testing.T) {
	var failed error
	allowed := map[string]string{}
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha"), "beta.json": matrix("beta")}, func(_ *rig, o *Options) {
		o.Allowed = func() (map[string]string, error) { return allowed, failed }
	})
	r.Prove(t.Context())
	alpha, beta := r.agent("alpha"), r.agent("beta")
	allowed["alpha"] = "read /data"
	if c, err := r.Reload(t.Context()); err != nil || !slices.Equal(c.Changed, []string{"alpha"}) {
		t.Errorf("the reload changed %v, %v", c.Changed, err)
	}
	if r.agent("alpha") == alpha || r.agent("beta") != beta {
		t.Error("the reload restarted another agent than the one with other rights")
	}
	failed = errors.New("no store")
	if _, err := r.Reload(t.Context()); !errors.Is(err, failed) {
		t.Errorf("the rights cannot be read: %v", err)
	}
}

// In strict mode, a reload that would reject an agent changes nothing.
func TestStrictReload(t *testing.T) {
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, func(_ *rig, o *Options) { o.Strict = true })
	r.Prove(t.Context())
	r.write("bad.json", `{"schema_version": 1, "agent": 7}`)
	r.write("new.json", matrix("new"))
	if a := r.ask(r.admin, "POST", "/api/v1/reload", ""); a.status != 409 || a.code() != "reload_failed" {
		t.Errorf("the reload got %d: %s", a.status, a.body)
	}
	if got := names(r.ask(r.admin, "GET", "/api/v1/agents", "").doc, "agents"); !slices.Equal(got, []string{"alpha/ready"}) {
		t.Errorf("the agents are %q", got)
	}
}

// A reload must not replace a working agent with an agent that cannot be served. In that case, the
// reload changes nothing.
func TestReloadKeepsWorkingAgents(t *testing.T) {
	const file = "team/alpha.json"
	// worse writes a changed manifest of alpha to a file. When the changed agent is started, its state becomes s.
	worse := func(r *rig, file string, s State) {
		r.write(file, strings.Replace(matrix("alpha"), `"read"]`, `"read", "write"]`, 1))
		r.make = func(f *fake) {
			close(f.ready)
			if f.m.Agent().ID == "matrix://agent/alpha" {
				f.state.Store(s)
			}
		}
	}
	for what, spoil := range map[string]func(*rig){
		"an empty file":              func(r *rig) { r.write(file, "") },
		"a broken file":              func(r *rig) { r.write(file, "{") },
		"something else":             func(r *rig) { r.write(file, "{}") },
		"a broken manifest":          func(r *rig) { r.write(file, `{"schema_version": 1, "agent": 7}`) },
		"a duplicate id":             func(r *rig) { r.write("aaa.json", matrix("alpha")) },
		"an agent that fails":        func(r *rig) { worse(r, file, Failed) },
		"an agent that drifted":      func(r *rig) { worse(r, file, Quarantined) },
		"a renamed agent that fails": func(r *rig) { r.remove(file); worse(r, "gamma.json", Failed) },
		"a lost folder":              nil,
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t, map[string]string{file: matrix("alpha"), "beta.json": matrix("beta")}, nil)
			r.Prove(t.Context())
			alpha, beta := r.agent("alpha"), r.agent("beta")
			r.write("beta.json", strings.Replace(matrix("beta"), `"read"]`, `"read", "write"]`, 1))
			r.write("new.json", matrix("new"))
			gone, away := spoil == nil, r.folder+".away"
			if !gone {
				spoil(r)
			} else if err := os.Rename(r.folder, away); err != nil {
				t.Fatal(err)
			}
			a := r.ask(r.admin, "POST", "/api/v1/reload", "")
			if a.status != 409 || a.code() != "reload_failed" || !gone && !strings.Contains(a.body, "cannot be served: ") {
				t.Fatalf("the reload got %d: %s", a.status, a.body)
			}
			if got := names(r.ask(r.admin, "GET", "/api/v1/agents", "").doc, "agents"); !slices.Equal(got, []string{"alpha/ready", "beta/ready"}) && !slices.Equal(got, []string{"beta/ready", "alpha/ready"}) {
				t.Errorf("the agents are %q", got)
			}
			r.mu.Lock()
			started := slices.Clone(r.started)
			r.mu.Unlock()
			for _, f := range started {
				if f != alpha && f != beta {
					<-f.closed // the reload must close all agents that it started
				}
			}
			if a := r.ask(r.admin, "POST", "/api/v1/agents/alpha/call", `{"tool":"echo"}`); a.status != 200 {
				t.Errorf("a call got %d: %s", a.status, a.body)
			}
			// If the file is removed, the agent is removed.
			if gone {
				if err := os.Rename(away, r.folder); err != nil {
					t.Fatal(err)
				}
			}
			r.remove(file)
			r.make = nil
			if a := r.ask(r.admin, "POST", "/api/v1/reload", ""); a.status != 200 {
				t.Errorf("the second reload got %d: %s", a.status, a.body)
			}
			<-alpha.closed
		})
	}
}

// brokenQueue is a queue that cannot be notified of a reload.
type brokenQueue struct{ Intents }

func (brokenQueue) Reload(context.Context) error { return errors.New("the store is gone") }

// If a reload cannot notify the queue, it still replaces the agents, and reports the error.
func TestReloadWithoutTheQueue(t *testing.T) {
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, func(_ *rig, o *Options) { o.Intents = brokenQueue{} })
	r.Prove(t.Context())
	r.write("new.json", matrix("new"))
	a := r.ask(r.admin, "POST", "/api/v1/reload", "")
	if a.status != 503 || a.code() != "unavailable" || !strings.Contains(a.body, "the agents were reloaded, but the queue could not be notified: the store is gone") || strings.Contains(a.body, "as before") {
		t.Errorf("the reload got %d: %s", a.status, a.body)
	}
	if got := names(r.ask(r.admin, "GET", "/api/v1/agents", "").doc, "agents"); !slices.Equal(got, []string{"alpha/ready", "new/ready"}) {
		t.Errorf("the agents are %q", got)
	}
}

// No call is lost while the daemon reloads constantly. No agent is closed while it has open calls.
func TestReloadUnderLoad(t *testing.T) {
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, nil)
	r.Prove(t.Context())
	var done atomic.Bool
	answered, lost := make(chan struct{}, 1), make(chan struct{}, 8)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for !done.Load() {
				for _, path := range []string{"/api/v1/agents/alpha/call", "/mcp/alpha"} {
					if a := r.ask(r.admin, "POST", path, `{"tool":"echo"}`); a.status != 200 {
						t.Errorf("a call was lost: %d %s", a.status, a.body)
						lost <- struct{}{}
						return
					}
					select {
					case answered <- struct{}{}:
					default:
					}
				}
			}
		})
	}
	for i := range 20 {
		if t.Failed() {
			break
		}
		r.write("alpha.json", strings.Replace(matrix("alpha"), "1.0.0", fmt.Sprintf("1.0.%d", i+1), 1))
		for range 5 { // wait for a few calls
			select {
			case <-answered:
			case <-lost:
			}
		}
		if c, err := r.Reload(t.Context()); err != nil || !slices.Equal(c.Changed, []string{"alpha"}) {
			t.Errorf("reload %d: %+v, %v", i, c, err)
		}
	}
	done.Store(true)
	wg.Wait()
	r.fleet.leaving.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.started) != 21 {
		t.Fatalf("%d agents were started, want 21", len(r.started))
	}
	for i, f := range r.started[:20] {
		<-f.closed
		if n := f.late.Load(); n != 0 {
			t.Errorf("agent %d was closed with %d open calls", i, n)
		}
	}
}

// A replaced agent ends its streams immediately, but finishes its open calls.
func TestRetiring(t *testing.T) {
	hold := make(chan struct{})
	began := make(chan string, 1)
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, func(r *rig, _ *Options) {
		r.make = func(f *fake) { f.hold, f.calls = hold, began; close(f.ready) }
	})
	r.Prove(t.Context())
	old := r.agent("alpha")
	req, err := http.NewRequestWithContext(t.Context(), "GET", r.server.URL+"/mcp/alpha", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.admin)
	stream, err := r.server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	answered := make(chan *answer, 1)
	go func() { answered <- r.ask(r.admin, "POST", "/mcp/alpha", "{}") }()
	<-began
	r.make = nil
	r.write("alpha.json", strings.Replace(matrix("alpha"), "1.0.0", "2.0.0", 1))
	if _, err := r.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(stream.Body); err != nil {
		t.Errorf("the stream ended with %v", err)
	}
	if a := r.ask(r.admin, "POST", "/api/v1/agents/alpha/call", `{"tool":"echo"}`); a.status != 200 {
		t.Errorf("a request to the new agent returned %d", a.status)
	}
	select {
	case <-old.closed:
		t.Error("the old agent was closed during its call")
	default:
	}
	close(hold)
	if a := <-answered; a.status != 200 {
		t.Errorf("the old call got %d: %s", a.status, a.body)
	}
	<-old.closed
}

// If the agent has a successor, its listeners are disconnected immediately. Otherwise, they are
// disconnected after the last call.
func TestListenersLeave(t *testing.T) {
	for name, last := range map[string]bool{"immediately": false, "after the last call": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEntry(Found{Name: "alpha"}, 0, func() Running {
					f := &fake{closed: make(chan struct{})}
					f.state.Store(Ready)
					return f
				})
				_, callEnds, _ := e.enter()
				running, listenerLeaves, _ := e.enter()
				stream, stop := e.untilRetired(t.Context())
				retired := make(chan struct{})
				go func() {
					defer close(retired)
					e.retire(t.Context(), last)
				}()
				synctest.Wait()
				if ended := stream.Err() != nil; ended == last {
					t.Errorf("during an open call, the stream has ended: %t", ended)
				}
				callEnds()
				synctest.Wait()
				if stream.Err() == nil {
					t.Error("after the last call the stream is still open")
				}
				select {
				case <-running.(*fake).closed:
					t.Error("the agent was closed while a client listened")
				default:
				}
				stop()
				listenerLeaves()
				<-retired
				<-running.(*fake).closed
			})
		})
	}
}

// At most proveLimit agents are proven at the same time. However, a request starts its agent immediately.
func TestProofsAreLimited(t *testing.T) {
	files := map[string]string{}
	for i := range 12 {
		files[fmt.Sprintf("a%02d.json", i)] = matrix(fmt.Sprintf("a%02d", i))
	}
	starts := make(chan *fake, 12)
	r := newRig(t, files, func(r *rig, _ *Options) { r.make = func(f *fake) { starts <- f } })
	proven := make(chan struct{})
	go func() { r.Prove(t.Context()); close(proven) }()
	var waiting []*fake
	for range proveLimit {
		waiting = append(waiting, <-starts)
	}
	// Call the agent that is the last in the queue.
	answered := make(chan *answer, 1)
	go func() { answered <- r.ask(r.admin, "POST", "/api/v1/agents/a11/call", `{"tool":"echo"}`) }()
	jumped := <-starts
	if jumped.name != "a11" {
		t.Errorf("%s was started instead of a11", jumped.name)
	}
	if n := len(starts); n != 0 {
		t.Errorf("%d agents were started in addition to the called one", n)
	}
	close(jumped.ready)
	if a := <-answered; a.status != 200 {
		t.Errorf("the call got %d: %s", a.status, a.body)
	}
	for _, f := range waiting {
		close(f.ready)
	}
	for range 12 - proveLimit - 1 {
		close((<-starts).ready)
	}
	<-proven
}

// An unused agent is parked, and the next request starts it again.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var started []*fake
		m, err := manifest.Load("../../../agents/default.json", manifest.Options{})
		if err != nil {
			t.Fatal(err)
		}
		e := newEntry(Found{Name: "alpha", Manifest: m}, 10*time.Minute, func() Running {
			f := &fake{ready: make(chan struct{}), closed: make(chan struct{})}
			f.state.Store(Ready)
			started = append(started, f)
			return f
		})
		closed := func(f *fake) bool {
			synctest.Wait()
			select {
			case <-f.closed:
				return true
			default:
				return false
			}
		}
		_, leave, ok := e.enter()
		if !ok {
			t.Fatal("the agent does not accept a request")
		}
		time.Sleep(time.Hour) // the agent always has a user
		leave()
		if closed(started[0]) {
			t.Fatal("the agent was parked during a request")
		}
		time.Sleep(9 * time.Minute)
		_, leave, _ = e.enter()
		if e.parking.Stop() {
			t.Error("the idle timer still runs during a request")
		}
		leave()
		time.Sleep(9 * time.Minute) // without the new request, the first timer would have expired
		if closed(started[0]) {
			t.Fatal("the agent was parked too early")
		}
		time.Sleep(time.Minute)
		if !closed(started[0]) {
			t.Fatal("the idle agent was not parked")
		}
		if s, _ := e.state(); s != Ready {
			t.Errorf("the state of a parked agent is %s", s)
		}
		if _, leave, ok = e.enter(); !ok || len(started) != 2 {
			t.Fatalf("the agent was started %d times, want 2", len(started))
		}
		leave()
		e.retire(t.Context(), true)
		if e.parking.Stop() {
			t.Error("the idle timer of a retired agent still runs")
		}
		if !closed(started[1]) {
			t.Error("the retired agent was not closed")
		}
		if _, _, ok := e.enter(); ok {
			t.Error("a retired agent accepts requests")
		}
	})
}

// serveRig serves a rig with [Daemon.Serve], on a new listener.
func serveRig(t *testing.T, r *rig) (url string, stop context.CancelFunc, ended <-chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan error, 1)
	go func() { end <- r.Serve(ctx, l) }()
	r.server.Close()
	r.server.URL = "http://" + l.Addr().String()
	return r.server.URL, cancel, end
}

// An open console page does not delay the shutdown.
func TestShutdownEndsConsoleStreams(t *testing.T) {
	r := consoleRig(t)
	r.options.Grace = time.Minute
	_, stop, ended := serveRig(t, r)
	p := r.person()
	if got := p.signIn(r.link(r.admin)); got != 200 {
		t.Fatalf("signing in: %d", got)
	}
	stream := p.ask(t.Context(), "GET", p.base+"/live", "")
	defer stream.Body.Close()
	if stream.StatusCode != 200 {
		t.Fatalf("opening the stream: %d", stream.StatusCode)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Serve returned %v", err)
	}
}

// At shutdown, the daemon closes the agents only after their open calls have ended.
func TestShutdownFinishesCalls(t *testing.T) {
	hold, began := make(chan struct{}), make(chan string, 1)
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, func(r *rig, _ *Options) {
		r.make = func(f *fake) { f.hold, f.calls = hold, began; close(f.ready) }
	})
	_, stop, ended := serveRig(t, r)
	r.Prove(t.Context())
	answered := make(chan *answer, 1)
	go func() { answered <- r.ask(r.admin, "POST", "/api/v1/agents/alpha/call", `{"tool":"echo"}`) }()
	<-began
	stop()
	<-r.fleet.open.Done() // wait until the shutdown has begun
	if a := httptestAsk(r, "/readyz"); a != 503 {
		t.Errorf("readyz answered %d", a)
	}
	select {
	case err := <-ended:
		t.Fatalf("the daemon ended during a call: %v", err)
	case <-r.agent("alpha").closed:
		t.Fatal("the agent was closed during its call")
	default:
	}
	close(hold)
	if a := <-answered; a.status != 200 {
		t.Errorf("the call got %d: %s", a.status, a.body)
	}
	if err := <-ended; err != nil {
		t.Errorf("Serve returned %v", err)
	}
	<-r.agent("alpha").closed
	if r.agent("alpha").late.Load() != 0 {
		t.Error("the agent was closed during its call")
	}
	if _, err := r.Reload(t.Context()); err == nil {
		t.Error("a daemon that has ended accepted a reload")
	}
}

// A shutdown ends a reload that is waiting for an agent.
func TestShutdownEndsAReload(t *testing.T) {
	started := make(chan struct{}, 2)
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, func(r *rig, _ *Options) {
		r.make = func(f *fake) { // the agent "new" is never proven
			if f.name == "alpha" {
				close(f.ready)
			}
			started <- struct{}{}
		}
	})
	_, stop, ended := serveRig(t, r)
	r.Prove(t.Context())
	<-started
	r.write("new.json", matrix("new"))
	reloaded := make(chan error, 1)
	go func() {
		_, err := r.Reload(t.Context())
		reloaded <- err
	}()
	<-started
	stop()
	patience := time.After(30 * time.Second) // less than settleTime
	for range 2 {
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Serve returned %v", err)
			}
		case <-reloaded:
		case <-patience:
			t.Fatal("the shutdown or the reload still waits for the agent")
		}
	}
}

// If a call does not end, the daemon ends after Options.Grace and reports that.
func TestShutdownIsBounded(t *testing.T) {
	began := make(chan string, 1)
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, func(r *rig, o *Options) {
		o.Grace = 50 * time.Millisecond
		r.make = func(f *fake) { f.hold, f.calls = make(chan struct{}), began; close(f.ready) }
	})
	url, stop, ended := serveRig(t, r)
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), "POST", url+"/mcp/alpha", strings.NewReader("{}"))
		if err != nil {
			return
		}
		req.Header.Set("Authorization", "Bearer "+r.admin)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	<-began
	stop()
	if err := <-ended; err == nil {
		t.Error("Serve returned no error, although a call was not finished")
	}
	<-r.agent("alpha").closed
}
