package daemon

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/dispatch"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/front"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// realRig returns a daemon with agents that use real tool servers. These servers need node.
func realRig(t *testing.T, files map[string]string, change func(*Hosting, *Options)) *rig {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("node is needed")
		}
		t.Skip("node is needed")
	}
	server, err := os.ReadFile("testdata/server.mjs")
	if err != nil {
		t.Fatal(err)
	}
	files["server.mjs"] = string(server)
	return hostedRig(t, files, change)
}

// hostedRig returns a daemon that starts agents in the same way as "ambit serve".
func hostedRig(t *testing.T, files map[string]string, change func(*Hosting, *Options)) *rig {
	t.Helper()
	h := home.At(t.TempDir())
	b, err := store.Open(t.Context(), h, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	r := newRig(t, files, func(r *rig, o *Options) {
		r.db, r.keys = b.DB, identity.NewAPIKeys(b.Authority)
		o.Metrics = NewMetrics()
		timed := *b
		timed.DB = o.Metrics.Timed(b.DB)
		hosting := &Hosting{
			Host: host.Options{Home: h, Version: "test", Store: &timed}, HTTP: front.HTTPOptions{Keys: b.Keys}, Metrics: o.Metrics,
			Log: func(agent, alias, line string) { r.logf("%s/%s: %s", agent, alias, line) },
		}
		o.Start, o.APIKeys, o.Journal, o.Approvals = hosting.Start, r.keys, b.Journal, ApprovalsOf(b)
		if change != nil {
			change(hosting, o)
		}
	})
	return r
}

// keyed adds a key to every request.
type keyed struct{ key string }

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+k.key)
	return http.DefaultTransport.RoundTrip(r)
}

// The Go SDK's client can use an agent with a real server in both protocol generations. It can still
// do so after a reload replaces the agent.
func TestRealClient(t *testing.T) {
	alpha := strings.ReplaceAll(matrix("alpha"), `"read"`, `"write"`) // calls with side effects are stored before they are sent
	r := realRig(t, map[string]string{"alpha.json": alpha}, nil)
	r.Prove(t.Context())
	key := r.key(identity.KeySpec{Agents: []string{"alpha"}, Principal: "ci@example.com"})
	for i, version := range []string{"2026-07-28", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
			session, err := client.Connect(ctx, &mcp.StreamableClientTransport{
				Endpoint: r.server.URL + "/mcp/alpha", HTTPClient: &http.Client{Transport: keyed{key}},
			}, &mcp.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			if v := session.InitializeResult().ProtocolVersion; v != version {
				t.Errorf("the negotiated protocol version is %s", v)
			}
			list, err := session.ListTools(ctx, nil)
			if err != nil || len(list.Tools) != 1 || list.Tools[0].Name != "echo" {
				t.Fatalf("the tools are %+v, %v", list, err)
			}
			say := func(word string) {
				t.Helper()
				result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"word": word}})
				if err != nil || result.IsError || result.Content[0].(*mcp.TextContent).Text != `you said {"word":"`+word+`"}` {
					t.Errorf("the call returned %+v, %v", result, err)
				}
			}
			say("before")
			r.write("alpha.json", strings.Replace(alpha, "1.0.0", "1.0."+string(rune('1'+i)), 1))
			if c, err := r.Reload(ctx); err != nil || len(c.Changed) != 1 {
				t.Fatalf("the reload returned %+v, %v", c, err)
			}
			say("after")
		})
	}
	a := r.ask(key, "POST", "/api/v1/agents/alpha/call", `{"tool":"echo","arguments":{"word":"api"}}`)
	if a.status != 200 || !strings.Contains(a.body, `you said {\"word\":\"api\"}`) {
		t.Errorf("a call through the API: %d %s", a.status, a.body)
	}
	if a := r.ask(key, "POST", "/api/v1/agents/alpha/call", `{"tool":"nothing"}`); a.status != 404 || a.code() != "unknown_tool" {
		t.Errorf("a call to an unknown tool returned %d: %s", a.status, a.body)
	}
	// The journal contains every call, with the principal of the key.
	a = r.ask(key, "GET", "/api/v1/journal?principal=ci@example.com", "")
	if records := a.doc["records"].([]any); len(records) != 6 {
		t.Errorf("the journal has %d records: %s", len(records), a.body)
	}
	text := r.ask(r.admin, "GET", "/metrics", "").body
	for _, line := range []string{
		`ambit_calls_total{agent="alpha",code="",decision="allow",tool="echo"} 5`,
		`ambit_calls_total{agent="alpha",code="unknown_tool",decision="deny",tool="other"} 1`,
		`ambit_calls_in_flight{agent="alpha"} 0`,
	} {
		if !strings.Contains(text, "\n"+line) {
			t.Errorf("the metrics do not contain %s", line)
		}
	}
	if strings.Contains(text, "ambit_store_write_seconds_count 0") {
		t.Error("no write to the store was counted")
	}
	// Requests without a key, or with a key for another agent, are rejected.
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	for name, key := range map[string]string{"none": "", "another's": r.key(identity.KeySpec{Agents: []string{"beta"}})} {
		_, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: r.server.URL + "/mcp/alpha", HTTPClient: &http.Client{Transport: keyed{key}}, MaxRetries: -1}, nil)
		if err == nil {
			t.Errorf("a client can connect with the wrong key (%s)", name)
		}
	}
}

// An agent whose server differs from the manifest is not served.
func TestRealDrift(t *testing.T) {
	r := realRig(t, map[string]string{
		"good.json":    matrix("good"),
		"drifted.json": strings.Replace(matrix("drifted"), `{"name": "echo", "side_effect_class": "read"}`, `{"name": "echo", "side_effect_class": "read"}, {"name": "gone", "side_effect_class": "read"}`, 1),
	}, nil)
	r.Prove(t.Context())
	a := r.ask(r.admin, "GET", "/api/v1/agents", "")
	if got := strings.Join(names(a.doc, "agents"), " "); got != "drifted/quarantined good/ready" {
		t.Errorf("the agents are %s", got)
	}
	a = r.ask(r.admin, "POST", "/api/v1/agents/drifted/call", `{"tool":"echo"}`)
	if a.status != 503 || a.code() != "server_drifted" {
		t.Errorf("a call got %d: %s", a.status, a.body)
	}
	a = r.ask(r.admin, "GET", "/api/v1/agents/drifted", "")
	if server := a.doc["servers"].([]any)[0].(map[string]any); server["error"] != "server_drifted" || server["missing"].([]any)[0] != "gone" {
		t.Errorf("the details of the drifted agent are %s", a.body)
	}
	// A reload reads the fixed manifest.
	r.write("drifted.json", matrix("drifted"))
	if _, err := r.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := r.ask(r.admin, "POST", "/api/v1/agents/drifted/call", `{"tool":"echo"}`); a.status != 200 {
		t.Errorf("a call to the fixed agent returned %d: %s", a.status, a.body)
	}
}

// Commands in hints contain the name of the agent instead of the path of its manifest, in the API and
// over MCP.
func TestHintsNameTheAgent(t *testing.T) {
	r := realRig(t, map[string]string{"alpha.json": strings.Replace(matrix("alpha"), strings.Repeat("0", 64), strings.Repeat("1", 64), 1)}, nil)
	r.Prove(t.Context())
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: r.server.URL + "/mcp/alpha", HTTPClient: &http.Client{Transport: keyed{r.admin}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	refusals := []string{r.ask(r.admin, "POST", "/api/v1/agents/alpha/call", `{"tool":"echo"}`).body}
	if _, err := session.ListTools(t.Context(), nil); err != nil {
		refusals = append(refusals, err.Error())
	}
	if result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"}); err == nil {
		refusals = append(refusals, result.Content[0].(*mcp.TextContent).Text)
	}
	if len(refusals) != 3 {
		t.Errorf("got the answers %q, want three refusals", refusals)
	}
	for _, text := range refusals {
		if !strings.Contains(text, "ambit lock alpha") || strings.Contains(text, "PATH") {
			t.Errorf("the hint does not contain the agent's name: %s", text)
		}
	}
}

// In production, a server is not used if it cannot be contained. Whether that is possible depends on the machine.
func TestRealProduction(t *testing.T) {
	r := realRig(t, map[string]string{"alpha.json": matrix("alpha")}, func(h *Hosting, _ *Options) { h.Production = true })
	r.Prove(t.Context())
	a := r.ask(r.admin, "POST", "/api/v1/agents/alpha/call", `{"tool":"echo"}`)
	server := r.ask(r.admin, "GET", "/api/v1/agents/alpha", "").doc["servers"].([]any)[0].(map[string]any)
	if server["contained"] == true {
		if a.status != 200 {
			t.Errorf("a call to a contained server got %d: %s", a.status, a.body)
		}
	} else if a.status != 503 || a.code() != "isolation_unavailable" || server["error"] != "isolation_unavailable" {
		t.Errorf("a call to a server that is not contained got %d: %s", a.status, a.body)
	}
}

// noTurn lets no program run, because its Turn always fails.
type noTurn struct{ why error }

func (n noTurn) Turn(context.Context, *agent.Agent, dispatch.Priority) (func(), error) {
	return nil, n.why
}

// If a program may not run yet, the refusal of the call is journaled like any other, even if the caller has
// disconnected.
func TestNoTurnIsJournaled(t *testing.T) {
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	for name, tt := range map[string]struct {
		why  error
		ctx  context.Context
		code call.Code
	}{
		"shutting down": {call.Refuse("dispatch", call.ServerUnavailable, "this ambit process is shutting down").Again(), t.Context(), call.ServerUnavailable},
		"abandoned":     {context.Canceled, gone, call.TimedOut},
	} {
		t.Run(name, func(t *testing.T) {
			r := realRig(t, map[string]string{"worker.toml": echoProgram, "main.py": ""}, func(h *Hosting, _ *Options) { h.Turns = noTurn{tt.why} })
			r.Prove(t.Context())
			running, leave, ok := r.fleet.current.Load().all[0].enter()
			if !ok {
				t.Fatal("the agent is not served")
			}
			defer leave()
			_, err := running.Call(tt.ctx, &call.Call{Tool: "echo", Arguments: []byte(`{"text":"hello"}`), Principal: "me@local"})
			if r, ok := errors.AsType[*call.Refusal](err); !ok || r.Code != tt.code || r.Stage != "dispatch" || !r.Retryable {
				t.Errorf("the call was refused with %+v", err)
			}
			a := r.ask(r.admin, "GET", "/api/v1/journal?principal=me@local", "")
			records, _ := a.doc["records"].([]any)
			if len(records) != 1 || records[0].(map[string]any)["code"] != string(tt.code) || !strings.Contains(a.body, `"text":"hello"`) {
				t.Errorf("the journal contains %s", a.body)
			}
		})
	}
}

// drifting is a gateway whose server has drifted from the lock.
type drifting struct{ front.Gateway }

func (drifting) Forward(context.Context, *call.Forward) (jsontext.Value, error) {
	r := call.Refuse("act", call.ServerDrifted, "server demo is another")
	r.Hint, r.Command = "lock it", diag.Command{Verb: "lock"}
	return nil, r
}

// The hints in refusals of forwarded requests also contain the name of the agent.
func TestForwardHintsNameTheAgent(t *testing.T) {
	_, err := meteredGateway{drifting{}, &hosted{name: "alpha"}}.Forward(t.Context(), &call.Forward{})
	if r, ok := errors.AsType[*call.Refusal](err); !ok || r.Hint != "lock it: ambit lock alpha" {
		t.Errorf("the request was refused with %+v", err)
	}
}
