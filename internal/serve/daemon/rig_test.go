package daemon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/docs/api"
	"github.com/ambit-run/ambit/internal/exec/signin"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/serve/front"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
	"github.com/ambit-run/ambit/manifest"
)

// fake is a fake agent. A test can delay its calls.
type fake struct {
	name   string
	m      *manifest.Manifest
	state  atomic.Value // State
	ready  chan struct{}
	calls  chan string   // receives the tool of each call
	hold   chan struct{} // calls wait until this channel is closed; if it is nil, they do not wait
	closed chan struct{}
	once   sync.Once
	late   atomic.Int64 // the number of open calls at the time when the agent was closed
	busy   atomic.Int64
	seen   chan http.Header

	unshareable error
	recovered   atomic.Int64
}

func (f *fake) SignInTarget(string, string) (signin.Target, bool) { return signin.Target{}, false }

func (f *fake) Shareable(host.Guest) error { return f.unshareable }

func (f *fake) ServeJoined(ctx context.Context, principal string, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		result, err := f.Call(ctx, &call.Call{Tool: lines.Text(), Principal: principal})
		fmt.Fprintf(out, "%s %v\n", result.Raw, err)
	}
	return nil
}

func (f *fake) Recover() { f.recovered.Add(1) }

func (f *fake) UI() (fs.FS, string) { return nil, "" }

func (f *fake) Ready(ctx context.Context) error {
	select {
	case <-f.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fake) State() State { return f.state.Load().(State) }

func (f *fake) Denials() []toolserver.Denial {
	right := agent.Right{Kind: agent.CanConnect, What: "10.0.0.1:5432", Private: true}
	allow := "ambit allow " + f.name + " db --host 10.0.0.1:5432 --private"
	return []toolserver.Denial{{Server: "db", Right: right, Time: time.Unix(1, 0).UTC(), Count: 2, Allow: allow}}
}

func (f *fake) Proofs() []toolserver.Proof {
	p := toolserver.Proof{Alias: "demo", OK: f.State() == Ready, Protocol: "2025-11-25"}
	if !p.OK {
		p.Refusal = call.Refuse("act", call.ServerDrifted, "server demo does not match the manifest")
	}
	return []toolserver.Proof{p}
}

func (f *fake) Call(ctx context.Context, c *call.Call) (call.Result, error) {
	f.busy.Add(1)
	defer f.busy.Add(-1)
	c.ID = strings.Repeat("0", 32)
	if f.calls != nil {
		f.calls <- c.Tool
	}
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return call.Result{}, call.Uncertain("act", call.TimedOut, "it took too long")
		}
	}
	if c.Tool != "echo" {
		return call.Result{}, call.Refuse("resolve", call.UnknownTool, "there is no such tool")
	}
	text, err := json.Marshal(fmt.Sprintf("%s %s %s %s", f.name, c.Principal, c.Arguments, c.IdempotencyKey))
	return call.Result{Raw: []byte(`{"content":[{"type":"text","text":` + string(text) + `}],"structuredContent":{"n":12345678901234567890}}`)}, err
}

func (f *fake) Serve(w http.ResponseWriter, r *http.Request, principal string, _ *identity.Attributes) {
	if f.seen != nil {
		f.seen <- r.Header.Clone()
	}
	if r.Method == http.MethodGet || r.Header.Get("Mcp-Method") == "subscriptions/listen" {
		ctx, end := front.BeginStream(r.Context())
		defer end()
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-ctx.Done()
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	result, err := f.Call(r.Context(), &call.Call{Tool: "echo", Principal: principal})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(result.Raw)
}

func (f *fake) Close() {
	f.once.Do(func() {
		f.late.Store(f.busy.Load())
		close(f.closed)
	})
}

// compiling guards the compiler that openapiSchemas returns.
var compiling sync.Mutex

// rig is a daemon with fake agents.
type rig struct {
	*Daemon
	t      *testing.T
	folder string
	db     state.DB
	store  *store.Store
	keys   *identity.APIKeys
	admin  string
	server *server

	mu      sync.Mutex
	started []*fake
	// If the function make is not nil, it changes each fake agent before the agent is used.
	make func(*fake)
	log  bytes.Buffer
}

// matrix returns the manifest of an agent with one server.
func matrix(id string) string {
	return `{"schema_version": 1, "agent": "matrix://agent/` + id + `", "allowed_side_effects": ["read"], "servers": [
  {"alias": "demo", "transport": "stdio", "command": "node", "args": ["server.mjs"],
   "package_digest": "sha256:0000000000000000000000000000000000000000000000000000000000000000", "version": "1.0.0",
   "tools": [{"name": "echo", "side_effect_class": "read"}]}]}`
}

func newRig(t *testing.T, files map[string]string, change func(*rig, *Options)) *rig {
	t.Helper()
	r := &rig{t: t, folder: t.TempDir(), db: statetest.Open(t)}
	for name, text := range files {
		r.write(name, text)
	}
	keys, err := identity.OpenKeys(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	r.store = store.New(r.db, keys, nil)
	r.keys = identity.NewAPIKeys(r.store.Authority)
	var passing *identity.PassingKey
	passing, r.admin = identity.NewPassingKey()
	o := Options{
		Folders: []string{r.folder}, Start: r.start, APIKeys: r.keys, Passing: passing,
		Approvals: ApprovalsOf(r.store),
		Journal:   journal.New(r.db, keys.Signer(), "test"), Log: r.logf, Version: "test",
	}
	if change != nil {
		change(r, &o)
	}
	if r.Daemon, err = New(o); err != nil {
		t.Fatal(err)
	}
	r.server = newServer(t, r.Handler())
	t.Cleanup(func() {
		r.server.Close()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		r.fleet.close(ctx)
		if strings.Contains(r.log.String(), "ambit_") {
			t.Error("the log contains a key")
		}
	})
	return r
}

// server serves a handler with the same timeouts as the daemon.
type server struct {
	URL    string
	served *http.Server
}

func newServer(t *testing.T, h http.Handler) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{URL: "http://" + l.Addr().String(), served: &http.Server{Handler: h, ReadHeaderTimeout: headerTime, ReadTimeout: requestTime, IdleTimeout: keepAlive}}
	go func() { _ = s.served.Serve(l) }() // until Close
	t.Cleanup(s.Close)
	return s
}

func (s *server) Client() *http.Client { return http.DefaultClient }

// Close ends the server. It may be called more than once.
func (s *server) Close() {
	_ = s.served.Close()
	http.DefaultClient.CloseIdleConnections()
}

func (r *rig) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.folder, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// remove deletes a file if it exists.
func (r *rig) remove(name string) {
	r.t.Helper()
	if err := os.Remove(filepath.Join(r.folder, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Fatal(err)
	}
}

func (r *rig) logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.log, format+"\n", args...)
}

func (r *rig) start(_ context.Context, name string, m *manifest.Manifest) Running {
	f := &fake{name: name, m: m, ready: make(chan struct{}), closed: make(chan struct{})}
	f.state.Store(Ready)
	if r.make != nil {
		r.make(f)
	} else {
		close(f.ready)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started = append(r.started, f)
	return f
}

// agent returns the fake agent with this name that was started last.
func (r *rig) agent(name string) *fake {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.started) - 1; i >= 0; i-- {
		if r.started[i].name == name {
			return r.started[i]
		}
	}
	r.t.Fatalf("%s was never started", name)
	return nil
}

func (r *rig) key(spec identity.KeySpec) string {
	r.t.Helper()
	_, text, err := r.keys.New(r.t.Context(), spec)
	if err != nil {
		r.t.Fatal(err)
	}
	return text
}

// answer is the response to a request.
type answer struct {
	status int
	header http.Header
	body   string
	doc    map[string]any
}

func (a *answer) code() string {
	e, _ := a.doc["error"].(map[string]any)
	code, _ := e["code"].(string)
	return code
}

// ask sends a request with a key and checks that the answer matches openapi.json.
func (r *rig) ask(key, method, path, body string) *answer {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.server.URL+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	return r.do(req)
}

func (r *rig) do(req *http.Request) *answer {
	r.t.Helper()
	resp, err := r.server.Client().Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	a := &answer{status: resp.StatusCode, header: resp.Header, body: string(body)}
	_ = json.Unmarshal(body, &a.doc) // Unmarshal fails if the body is not a JSON object
	if !strings.HasPrefix(req.URL.Path, "/mcp/") || resp.StatusCode >= 400 && a.code() != "" {
		r.described(req.Method, req.URL.Path, resp.StatusCode, resp.Header.Get("Content-Type"), body)
	}
	return a
}

// described checks an answer against openapi.json.
func (r *rig) described(method, path string, status int, kind string, body []byte) {
	compiling.Lock() // the compiler is not safe for concurrent use
	defer compiling.Unlock()
	r.t.Helper()
	if err := describedBy(method, path, status, kind, body); err != nil {
		r.t.Errorf("%s %s answered %d: %v\n%s", method, path, status, err, body)
	}
}

var openapiSchemas = sync.OnceValue(func() *jsonschema.Compiler {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(api.OpenAPI))
	if err != nil {
		panic(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("openapi.json", doc); err != nil {
		panic(err)
	}
	return c
})

// httptestAsk sends a request directly to the handler, like a client whose connection is already open.
func httptestAsk(r *rig, path string) int {
	req := httptest.NewRequest("GET", "http://127.0.0.1"+path, nil)
	req.Header.Set("Authorization", "Bearer "+r.admin)
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, req)
	return w.Code
}
