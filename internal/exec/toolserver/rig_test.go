//go:build unix

package toolserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/tooluri"
)

// rig is an agent with fake servers. At the end of its test no process and no goroutine may remain.
type rig struct {
	t      *testing.T
	marker string
	dir    string
	agent  *agent.Agent
	o      Options

	mu    sync.Mutex
	lines []string // the logged lines; each begins with the server's alias
	steps []string // the reported steps; each begins with the server's alias
}

func newRig(t *testing.T) *rig {
	t.Helper()
	prime(t)
	r := &rig{t: t, marker: "marker-" + rand.Text(), dir: t.TempDir()}
	goroutines := runtime.NumGoroutine()
	t.Cleanup(func() {
		r.until("no process is left", func() bool { return len(r.processes()) == 0 })
		r.until("no goroutine is left", func() bool { return runtime.NumGoroutine() <= goroutines })
	})
	r.agent = &agent.Agent{ID: "matrix://agent/rig"}
	r.o = Options{
		Home: home.At(r.path("home")), Manifest: r.path("agent.json"), startTimeout: time.Minute,
		probe: time.Minute, pause: time.Millisecond,
		Log: func(alias, line string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.lines = append(r.lines, alias+": "+line)
		},
		Progress: func(alias, step string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.steps = append(r.steps, alias+": "+step)
		},
	}
	return r
}

var primed sync.Once

// prime starts the goroutines that run until the tests end. The leak check then does not count
// these goroutines.
func prime(t *testing.T) {
	t.Helper()
	primed.Do(func() {
		before := runtime.NumGoroutine()
		p, err := start(program{argv: []string{"true"}, log: func(string) {}})
		if err != nil {
			t.Fatal(err)
		}
		p.stop(grace)
		r := &rig{t: t, marker: "marker-" + rand.Text()}
		r.until("only the spawner is left", func() bool { return runtime.NumGoroutine() <= before+1 })
	})
}

// until waits for a condition, and fails the test if it is not met in time.
func (r *rig) until(what string, done func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			r.t.Fatalf("timed out waiting until %s; processes %q, log %q\n%s", what, r.processes(), r.log(), stacks[:runtime.Stack(stacks, true)])
		}
		time.Sleep(time.Millisecond) // poll again after a pause
	}
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

func (r *rig) write(name, content string) {
	r.t.Helper()
	file := r.path(name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) read(name string) string {
	b, _ := os.ReadFile(r.path(name))
	return string(b)
}

func (r *rig) log() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

func (r *rig) progress() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.steps, "\n")
}

// processes returns the command lines of the processes that this rig started and that still run.
func (r *rig) processes() []string {
	var found []string
	list, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range list {
		if b, err := os.ReadFile(file); err == nil && strings.Contains(string(b), r.marker) {
			found = append(found, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return found
}

// fake declares a fake server. The name of each tool selects what the tool does (see [fake.call]). A side
// effect other than read follows the name after a colon. The server keeps its state in a folder named after its
// alias.
func (r *rig) fake(alias string, tools []string, args ...string) *agent.Server {
	r.t.Helper()
	state := r.path(alias)
	if err := os.MkdirAll(state, 0o700); err != nil {
		r.t.Fatal(err)
	}
	var names []string
	for _, t := range tools {
		name, class, _ := strings.Cut(t, ":")
		if class == "" {
			class = "read"
		}
		names = append(names, name)
		r.agent.Tools = append(r.agent.Tools, agent.Tool{
			Name: name, SideEffect: agent.SideEffect(class), Binding: agent.OnServer{Alias: alias},
			URI: &tooluri.URI{Server: alias, Name: name},
		})
	}
	program, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	r.agent.Servers = append(r.agent.Servers, agent.Server{
		Alias: alias, Transport: agent.Stdio, Command: program,
		Args: append([]string{"-marker", r.marker, "-state", state, "-tools", strings.Join(names, ",")}, args...),
		// A program with the race detector takes a second to end, unless configured otherwise.
		Env:     []agent.Setting{{Name: fakeEnv, Value: "1"}, {Name: "GORACE", Value: "atexit_sleep_ms=0"}},
		Version: "1.0.0", Digest: tooluri.ZeroDigest, Placeholder: true,
	})
	return r.server(alias)
}

func (r *rig) server(alias string) *agent.Server { return r.agent.Server(alias) }

// start starts the agent, which is closed when the test ends.
func (r *rig) start() *Manager {
	r.t.Helper()
	m := Start(r.t.Context(), r.agent, r.o)
	r.t.Cleanup(m.Close)
	return m
}

// proven starts the agent, which must succeed.
func (r *rig) proven() *Manager {
	r.t.Helper()
	m := r.start()
	for _, p := range m.Proofs() {
		if !p.OK {
			r.t.Fatalf("server %s: %v; log:\n%s", p.Alias, p.Refusal, r.log())
		}
	}
	return m
}

func (r *rig) tool(alias, name string) *agent.Tool {
	r.t.Helper()
	t := r.agent.Tool(alias, name)
	if t == nil {
		r.t.Fatalf("the agent has no tool %s on server %s", name, alias)
	}
	return t
}

// call calls a tool with a generous deadline.
func (r *rig) call(m *Manager, alias, name, args string) (call.Result, *call.Refusal) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	return r.act(ctx, m, alias, name, &call.Call{Arguments: jsontext.Value(args)})
}

func (r *rig) act(ctx context.Context, m *Manager, alias, name string, c *call.Call) (call.Result, *call.Refusal) {
	r.t.Helper()
	result, err := m.Act(ctx, r.tool(alias, name), c)
	if err == nil {
		return result, nil
	}
	refusal, ok := errors.AsType[*call.Refusal](err)
	if !ok {
		r.t.Fatalf("%s on %s: got an error that is not a refusal: %v", name, alias, err)
	}
	return result, refusal
}

// works checks that a server answers a call to its tool echo.
func (r *rig) works(m *Manager, alias string) {
	r.t.Helper()
	result, refusal := r.call(m, alias, "echo", `{"n":1}`)
	if refusal != nil || !strings.Contains(string(result.Raw), `{\"n\":1}`) {
		r.t.Errorf("echo on %s: got %s and refusal %v; log:\n%s", alias, result.Raw, refusal, r.log())
	}
}

// lock creates a lock for the servers that m has verified.
func (r *rig) lock(m *Manager) {
	r.t.Helper()
	entry := &pack.LockedAgent{Servers: map[string]*pack.LockedServer{}}
	for _, p := range m.Proofs() {
		s := r.server(p.Alias)
		locked := &pack.LockedServer{
			Protocol: p.Protocol, Tools: map[string]pack.LockedTool{},
			Package: pack.LockedPackage{Kind: pack.File, Name: s.Command, Version: s.Version, Digest: s.Digest},
		}
		if s.Transport == agent.StreamableHTTP {
			locked.Package = pack.LockedPackage{Kind: pack.Remote, Name: s.Endpoint, Version: s.Version}
		}
		for name, raw := range p.Tools {
			tool, err := pack.LockTool(raw)
			if err != nil {
				r.t.Fatal(err)
			}
			locked.Tools[name] = tool
		}
		entry.Servers[p.Alias] = locked
	}
	r.o.Lock = pack.NewLock()
	r.o.Lock.Agents[r.agent.ID] = entry
}

// refused checks the code of a failed verification, and that its message contains the given words.
func refused(t *testing.T, p Proof, code call.Code, words ...string) {
	t.Helper()
	if p.OK || p.Refusal == nil || p.Refusal.Code != code {
		t.Fatalf("server %s: got proof OK %t with refusal %v, want %s", p.Alias, p.OK, p.Refusal, code)
	}
	for _, w := range words {
		if !strings.Contains(p.Refusal.Message, w) {
			t.Errorf("the refusal does not contain %q: %s", w, p.Refusal.Message)
		}
	}
}

// is checks the code, the effect and the Retryable field of a call's refusal.
func is(t *testing.T, r *call.Refusal, code call.Code, effect call.Effect, retryable bool) {
	t.Helper()
	if r == nil {
		t.Fatalf("the call succeeded, want a refusal with %s", code)
	}
	if got, want := fmt.Sprint(r.Code, r.Effect, r.Retryable), fmt.Sprint(code, effect, retryable); got != want {
		t.Errorf("refused with %s (%s), want %s", got, r.Message, want)
	}
}
