package host

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/internal/supply/registry"
	"github.com/ambit-run/ambit/manifest"
)

// far is a remote tool server that tests can take down and bring back.
type far struct {
	url   string
	up    atomic.Bool
	asked atomic.Int64
	busy  chan struct{} // receives a value when a call of the tool "wait", or a read of note://slow, begins
	read  chan struct{} // the test closes this channel to let a read of note://slow end
	cut   chan struct{} // the test closes this channel to end every connection
}

func newFar(t *testing.T, tools ...string) *far {
	t.Helper()
	f := &far{busy: make(chan struct{}, 1), read: make(chan struct{}), cut: make(chan struct{})}
	f.up.Store(true)
	s := mcp.NewServer(&mcp.Implementation{Name: "far", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	for _, name := range tools {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`), Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if strings.HasPrefix(name, "wait") {
				f.busy <- struct{}{}
				select {
				case <-ctx.Done():
				case <-t.Context().Done(): // the test ends before the server is closed
				}
				return nil, context.Canceled
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name + " done"}}}, nil
		})
	}
	s.AddResource(&mcp.Resource{Name: "note", URI: "note://one"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "note://one", Text: "what it says"}}}, nil
	})
	s.AddResource(&mcp.Resource{Name: "slow", URI: "note://slow"}, func(ctx context.Context, _ *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		f.busy <- struct{}{}
		select {
		case <-f.read:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "note://slow", Text: "what it says at last"}}}, nil
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.asked.Add(1)
		if !f.up.Load() {
			panic(http.ErrAbortHandler)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	f.url = server.URL
	go func() {
		<-f.cut
		server.CloseClientConnections()
	}()
	t.Cleanup(func() {
		select {
		case <-f.cut:
		default:
			close(f.cut)
		}
	})
	return f
}

// rig is a GPARS agent with a lock that contains the addresses of test servers.
type rig struct {
	t        *testing.T
	home     home.Home
	lock     *pack.Lock
	manifest map[string]any
	policy   gate.Policy
	idle     time.Duration
	expose   gateway.Exposed

	credentials *credential.Source
}

const gparsID = "org:example/agent:tester"

func newRig(t *testing.T) *rig {
	l := pack.NewLock()
	l.Agents[gparsID] = &pack.LockedAgent{Servers: map[string]*pack.LockedServer{}}
	return &rig{
		t: t, home: home.At(t.TempDir()), lock: l, policy: anything{},
		manifest: map[string]any{"id": gparsID, "required_mcp_servers": []any{}, "optional_mcp_servers": []any{}},
	}
}

// needs adds a server to the required or optional servers in the manifest. The lock contains version
// 1.2.0 of the server.
func (r *rig) needs(list, name, constraint string, f *far, tools ...string) {
	r.t.Helper()
	id := "registry.example.com/" + name
	locked := &pack.LockedServer{
		Resolved: &pack.Resolved{Version: "1.2.0", Recipe: pack.Recipe{Kind: pack.Remote, Name: f.url}},
		Package:  pack.LockedPackage{Kind: pack.Remote, Name: f.url}, Tools: map[string]pack.LockedTool{},
	}
	for _, tool := range tools {
		text, err := pack.LockTool(fmt.Appendf(nil, `{"name":%q,"inputSchema":{"type":"object"},"annotations":{"idempotentHint":false,"readOnlyHint":true}}`, tool))
		if err != nil {
			r.t.Fatal(err)
		}
		locked.Tools[tool] = text
	}
	r.lock.Agents[gparsID].Servers[id] = locked
	r.manifest[list] = append(r.manifest[list].([]any), map[string]any{"server_id": id, "version": constraint, "permission_scopes": []string{"use"}})
}

// trust records a locked server as resolved on this machine, so that it gets the user's settings.
func (r *rig) trust(name string) {
	r.t.Helper()
	resolver, err := registry.NewResolver(r.home, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	id := "registry.example.com/" + name
	locked := r.lock.Server(gparsID, id)
	found := registry.Found{Requirement: agent.Requirement{Server: id}, Recipe: locked.Resolved.Recipe}
	if err := resolver.Trust(&found, locked.Package); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) start() *Agent {
	r.t.Helper()
	dir := r.t.TempDir()
	text, err := json.Marshal(r.manifest)
	if err != nil {
		r.t.Fatal(err)
	}
	file := filepath.Join(dir, "tester.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		r.t.Fatal(err)
	}
	if text, err = r.lock.Encode(); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, pack.LockName), text, 0o600); err != nil {
		r.t.Fatal(err)
	}
	m, err := manifest.Load(file, manifest.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	a := Start(r.t.Context(), m, Options{
		Home: r.home, Credentials: r.credentials, ServerIdle: r.idle, Expose: r.expose, Rules: gate.Rules{Policy: r.policy},
		Egress: egress.New(egress.Switches{LoopbackHTTP: true}), // without this switch, addresses from a lock must be public
		Store:  open(r.t, r.home),
	})
	r.t.Cleanup(a.Close)
	if err := a.Ready(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	return a
}

// anything is a policy that permits all tools except the denied ones.
type anything struct{ denied []string }

func (p anything) Judge(_ context.Context, _ *agent.Agent, _ string, t *agent.Tool, _ *call.Call) []call.Reason {
	if slices.Contains(p.denied, t.Name) {
		return []call.Reason{{Stage: gate.Stage, Code: call.PolicyDenied, Detail: "rule 7 of the secret policy forbids it"}}
	}
	return []call.Reason{{Stage: gate.Stage, Allowed: true, Detail: "it is permitted"}}
}

func (anything) Hidden(*agent.Agent, string, *call.Call) []bool { return nil }

func (anything) Could(*agent.Agent, string, *agent.Tool, *call.Call, string) bool { return true }

func (anything) Version(*agent.Agent, string, *call.Call) any { return nil }

func (p anything) Possible(_ *agent.Agent, _ string, t *agent.Tool) bool {
	return !slices.Contains(p.denied, t.Name)
}

// answer is a message that a client receives.
type answer struct {
	Method string          `json:"method"`
	ID     int             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

// dialled is a client on stdio that keeps notifications separate from answers.
type dialled struct {
	*client
	next    int
	heard   []string
	waiting map[int]answer
}

func dial(t *testing.T, a *Agent) *dialled {
	d := &dialled{client: connect(t, a), waiting: map[int]answer{}}
	d.wait(d.ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`))
	return d
}

func (d *dialled) ask(method, params string) int {
	d.t.Helper()
	d.next++
	if _, err := fmt.Fprintf(d.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", d.next, method, params); err != nil {
		d.t.Fatal(err)
	}
	return d.next
}

func (d *dialled) read() answer {
	d.t.Helper()
	if !d.out.Scan() {
		d.t.Fatalf("the output of the agent has ended: %v", d.out.Err())
	}
	var m answer
	if err := json.Unmarshal(d.out.Bytes(), &m); err != nil {
		d.t.Fatal(err)
	}
	if m.Method != "" {
		d.heard = append(d.heard, m.Method)
	}
	return m
}

func (d *dialled) wait(id int) answer {
	d.t.Helper()
	for {
		if m, ok := d.waiting[id]; ok {
			delete(d.waiting, id)
			return m
		}
		if m := d.read(); m.Method == "" {
			d.waiting[m.ID] = m
		}
	}
}

func (d *dialled) call(tool string) answer {
	d.t.Helper()
	return d.wait(d.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":{}}`, tool)))
}

func (d *dialled) tools() []string {
	d.t.Helper()
	var list struct {
		Tools []struct{ Name string }
	}
	m := d.wait(d.ask("tools/list", `{}`))
	if err := json.Unmarshal(m.Result, &list); err != nil {
		d.t.Fatalf("%s: %v", m.Result, err)
	}
	names := []string{}
	for _, t := range list.Tools {
		names = append(names, t.Name)
	}
	slices.Sort(names)
	return names
}

// refusesUnavailable fails the test unless m is the GPARS error for an unavailable server.
func refusesUnavailable(t *testing.T, m answer, server string) {
	t.Helper()
	if m.Error == nil || m.Error.Code != -32002 {
		t.Fatalf("the answer is %s %+v, want -32002", m.Result, m.Error)
	}
	var data struct {
		Code   string `json:"gpars_code"`
		Server string `json:"server_id"`
	}
	if err := json.Unmarshal(m.Error.Data, &data); err != nil || data.Code != "SERVER_UNAVAILABLE" || data.Server != "registry.example.com/"+server {
		t.Errorf("the error has the data %s: %v", m.Error.Data, err)
	}
}

func works(t *testing.T, m answer, tool string) {
	t.Helper()
	if m.Error != nil || !strings.Contains(string(m.Result), tool+" done") {
		t.Fatalf("%s: %s %+v", tool, m.Result, m.Error)
	}
}

// eventually waits until condition returns true. If the test's context ends before that, eventually fails the test with
// the message.
func eventually(t *testing.T, message string, condition func() bool) {
	t.Helper()
	for !condition() {
		select {
		case <-t.Context().Done():
			t.Fatal(message)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestLazyFirstUse(t *testing.T) {
	r := newRig(t)
	one, two := newFar(t, "one"), newFar(t, "two")
	r.needs("required_mcp_servers", "one", ">=1.0.0", one, "one")
	r.needs("required_mcp_servers", "two", "^1.1", two, "two")
	d := dial(t, r.start())
	if n := one.asked.Load() + two.asked.Load(); n != 0 {
		t.Errorf("the servers got %d requests before the first use", n)
	}
	works(t, d.call("one"), "one")
	if two.asked.Load() != 0 {
		t.Error("an unused server was reached")
	}
	if got := d.tools(); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("the tools are %v", got)
	}
	if two.asked.Load() == 0 {
		t.Error("tools/list did not start the unused server")
	}
}

func TestLazyIdle(t *testing.T) {
	r := newRig(t)
	r.idle = 20 * time.Millisecond
	f := newFar(t, "one")
	r.needs("required_mcp_servers", "one", "*", f, "one")
	a := r.start()
	d := dial(t, a)
	works(t, d.call("one"), "one")
	eventually(t, "the idle server is not stopped", func() bool { return a.servers.Capabilities("registry.example.com/one") == nil })
	if got := d.tools(); !slices.Equal(got, []string{"one"}) {
		t.Errorf("the tools are %v while the server is stopped", got)
	}
	works(t, d.call("one"), "one")
}

// An unavailable server does not prevent the start of the agent. Calls to its tools report that the
// server is unavailable.
func TestLazyRequiredIsDown(t *testing.T) {
	r := newRig(t)
	one, two := newFar(t, "one"), newFar(t, "two")
	one.up.Store(false)
	r.needs("required_mcp_servers", "one", "*", one, "one")
	r.needs("required_mcp_servers", "two", "*", two, "two")
	a := r.start()
	d := dial(t, a)
	refusesUnavailable(t, d.call("one"), "one")
	works(t, d.call("two"), "two")
	if got := d.tools(); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("the tools are %v, want the locked tools too", got)
	}
	if a.State() != Ready {
		t.Errorf("the agent is %s", a.State())
	}
	one.up.Store(true)
	eventually(t, "calls still fail after the server came back", func() bool { return d.call("one").Error == nil })
}

// If a server goes down during a session, its calls fail until it comes back.
func TestLazyServerFailsDuringSession(t *testing.T) {
	r := newRig(t)
	f := newFar(t, "one", "wait")
	r.needs("required_mcp_servers", "one", "*", f, "one", "wait")
	d := dial(t, r.start())
	works(t, d.call("one"), "one")
	inFlight := d.ask("tools/call", `{"name":"wait","arguments":{}}`)
	<-f.busy
	f.up.Store(false)
	close(f.cut)
	refusesUnavailable(t, d.wait(inFlight), "one")
	refusesUnavailable(t, d.call("one"), "one")
	refusesUnavailable(t, d.call("one"), "one")
	f.up.Store(true)
	eventually(t, "calls still fail after the server came back", func() bool { return d.call("one").Error == nil })
}

func TestLazyOptional(t *testing.T) {
	r := newRig(t)
	one, two := newFar(t, "one"), newFar(t, "two")
	two.up.Store(false)
	r.needs("required_mcp_servers", "one", "*", one, "one")
	r.needs("optional_mcp_servers", "two", "*", two, "two")
	d := dial(t, r.start())
	if got := d.tools(); !slices.Equal(got, []string{"one"}) {
		t.Errorf("the tools are %v, want none of the optional server", got)
	}
	refusesUnavailable(t, d.call("two"), "two")
	works(t, d.call("one"), "one")
	two.up.Store(true)
	for !slices.Contains(d.heard, "notifications/tools/list_changed") {
		d.read()
	}
	if got := d.tools(); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("the tools are %v after the server came back", got)
	}
	works(t, d.call("two"), "two")
}

func TestLazyUnsatisfied(t *testing.T) {
	r := newRig(t)
	f := newFar(t, "one", "two")
	r.needs("required_mcp_servers", "one", ">=2.0.0", f, "one")
	a := r.start()
	if err := a.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := a.Proofs(); a.State() != Failed || len(p) != 1 || p[0].OK || p[0].Refusal.Code != call.ServerUnavailable {
		t.Errorf("before the first call, the agent is %s: %+v", a.State(), p)
	}
	d := dial(t, a)
	refusesUnavailable(t, d.call("one"), "one")
	if f.asked.Load() != 0 {
		t.Error("a server of the wrong version was reached")
	}
}

// A denied call is refused before the server is looked up, and reveals nothing about the policy.
func TestLazyDenied(t *testing.T) {
	r := newRig(t)
	r.policy = anything{denied: []string{"one"}}
	f := newFar(t, "one")
	f.up.Store(false)
	r.needs("required_mcp_servers", "one", "*", f, "one")
	d := dial(t, r.start())
	for _, tool := range []string{"one", "never-seen"} {
		m := d.call(tool)
		if m.Error == nil || m.Error.Code != -32001 || string(m.Error.Data) != `{"gpars_code":"AUTHORIZATION_DENIED"}` || m.Error.Message != "The operation is not permitted." {
			t.Errorf("%s: %s %+v", tool, m.Result, m.Error)
		}
	}
	if f.asked.Load() != 0 {
		t.Error("the server of a denied call was reached")
	}
}

// The tools of an optional server are not listed if no version of it matches the constraint.
func TestLazyOptionalUnsatisfied(t *testing.T) {
	r := newRig(t)
	one, two := newFar(t, "one"), newFar(t, "two")
	r.needs("required_mcp_servers", "one", "^1.0.0", one, "one")
	r.needs("optional_mcp_servers", "two", ">=2.0.0", two, "two")
	a := r.start()
	if err := a.Ready(t.Context()); err != nil || a.State() != Ready {
		t.Errorf("the agent is %s, %v", a.State(), err)
	}
	d := dial(t, a)
	if got := d.tools(); !slices.Equal(got, []string{"one"}) {
		t.Errorf("the tools are %v, want none of the optional server", got)
	}
	refusesUnavailable(t, d.call("two"), "two")
	if two.asked.Load() != 0 {
		t.Error("a server of the wrong version was reached")
	}
}

// The policy must also permit exposed requests to a server.
func TestLazyExposed(t *testing.T) {
	for name, denied := range map[string][]string{"permitted": nil, "denied": {"resources/read"}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.expose, r.policy = gateway.Exposed{gateway.Resources}, anything{denied: denied}
			f := newFar(t, "one")
			r.needs("required_mcp_servers", "one", "*", f, "one")
			d := dial(t, r.start())
			works(t, d.call("one"), "one")
			m := d.wait(d.ask("resources/read", `{"uri":"note://one"}`))
			if read := strings.Contains(string(m.Result), "what it says"); read != (denied == nil) || (m.Error == nil) != read {
				t.Errorf("%s %+v", m.Result, m.Error)
			}
			if m.Error != nil && (m.Error.Code != -32001 || strings.Contains(m.Error.Message+string(m.Error.Data), "rule 7")) {
				t.Errorf("the error is not a denial, or it reveals the policy: %+v", m.Error)
			}
		})
	}
}

// An agent without servers runs, but has no tools.
func TestLazyEmpty(t *testing.T) {
	d := dial(t, newRig(t).start())
	if got := d.tools(); len(got) != 0 {
		t.Errorf("the tools are %v", got)
	}
	if m := d.call("one"); m.Error == nil || m.Error.Code != -32001 {
		t.Errorf("%s %+v", m.Result, m.Error)
	}
}
