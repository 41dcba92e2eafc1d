package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/manifest"
)

func names(doc map[string]any, list string) (out []string) {
	for _, item := range doc[list].([]any) {
		if s, ok := item.(string); ok {
			out = append(out, s)
			continue
		}
		m := item.(map[string]any)
		out = append(out, fmt.Sprint(m["name"], "/", m["state"]))
	}
	return out
}

// While the store is unavailable, no agent is ready, and only administrators see the reason.
func TestStoreUnavailable(t *testing.T) {
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha"), "broken.json": "{"}, func(_ *rig, o *Options) {
		o.CheckStore = func(context.Context) error { return errors.New("db.internal refused the connection") }
	})
	r.Prove(t.Context())
	a := r.ask(r.admin, "GET", "/api/v1/agents", "")
	if got := names(a.doc, "agents"); !slices.Equal(got, []string{"alpha/failed", "broken/rejected"}) {
		t.Errorf("the agents are %q, want none that is ready", got)
	}
	if a.doc["store"] != "db.internal refused the connection" {
		t.Errorf("an administrator does not see the reason: %s", a.body)
	}
	if a := r.ask(r.admin, "GET", "/api/v1/agents/alpha", ""); a.doc["state"] != "failed" {
		t.Errorf("one agent: %s", a.body)
	}
	if a := r.ask(r.key(identity.KeySpec{Agents: []string{"alpha"}}), "GET", "/api/v1/agents", ""); strings.Contains(a.body, "db.internal") {
		t.Errorf("a key without administrator rights sees the reason: %s", a.body)
	}
	for _, line := range []string{`ambit_agents{state="ready"} 0`, `ambit_agents{state="failed"} 1`, `ambit_agents{state="rejected"} 1`} {
		if a := r.ask(r.admin, "GET", "/metrics", ""); !strings.Contains(a.body, "\n"+line) {
			t.Errorf("the metrics do not contain %s", line)
		}
	}
	for key, want := range map[string]bool{r.admin: true, r.key(identity.KeySpec{Agents: []string{"alpha"}}): false} {
		a := r.ask(key, "GET", "/readyz", "")
		reason := strings.Contains(a.body, "db.internal refused the connection")
		if a.status != 503 || !strings.Contains(a.body, "the store is unavailable") || reason != want {
			t.Errorf("readyz for a key whose administrator rights are %v: %d %s", want, a.status, a.body)
		}
	}
}

func TestAgents(t *testing.T) {
	r := newRig(t, map[string]string{
		"alpha.json":           matrix("alpha"),
		"broken.json":          `{"schema_version": 1, "agent": "matrix://agent/broken", "servers": [}`,
		"zz-again.json":        matrix("alpha"),         // has the same id as alpha
		"beta/alpha.json":      matrix("other"),         // has the same NAME as alpha
		"gamma/gamma.json":     matrix("gamma"),         //
		"gamma/package.json":   `{"name": "something"}`, // is not a manifest
		"gamma/mcp.json":       `{"mcpServers": {}}`,
		".hidden.json":         matrix("hidden"),
		"delta/findagent.json": `{}`,
	}, func(_ *rig, o *Options) {
		o.CanRun = func(m *manifest.Manifest) error {
			if m.Agent().ID == "matrix://agent/gamma" {
				return errors.New("gamma agents cannot be run yet")
			}
			return nil
		}
	})
	if a := r.ask(r.admin, "GET", "/readyz", ""); a.status != 503 {
		t.Errorf("before the agents are proven, /readyz returned %d", a.status)
	}
	if a := r.ask("", "GET", "/readyz", ""); a.status != 503 || a.code() != "unavailable" || strings.Contains(a.body, "starting") {
		t.Errorf("before the agents are proven, /readyz without a key returned %d: %s", a.status, a.body)
	}
	r.Prove(t.Context())
	if a := r.ask("", "GET", "/readyz", ""); a.status != 200 || strings.TrimSpace(a.body) != `{"status":"ok"}` {
		t.Errorf("without a key: %d %s", a.status, a.body)
	}
	if a := r.ask("ambit_wrong", "GET", "/readyz", ""); a.status != 401 {
		t.Errorf("with a wrong key: %d %s", a.status, a.body)
	}
	if a := r.ask(r.admin, "GET", "/readyz", ""); a.status != 200 {
		t.Errorf("after the agents are proven, /readyz returned %d", a.status)
	}
	a := r.ask(r.admin, "GET", "/api/v1/agents", "")
	want := []string{"alpha/ready", "alpha/rejected", "broken/rejected", "delta/rejected", "gamma/rejected", "zz-again/rejected"}
	if got := names(a.doc, "agents"); !slices.Equal(got, want) {
		t.Errorf("the agents are %q, want %q", got, want)
	}
	for _, want := range []string{"beta/alpha.json and alpha.json both have the name alpha", "zz-again.json and alpha.json both have the id matrix://agent/alpha", "gamma agents cannot be run yet", "broken.json:1:"} {
		if !strings.Contains(a.body, want) {
			t.Errorf("no agent reports %q: %s", want, a.body)
		}
	}
	if strings.Contains(a.body, r.folder) {
		t.Errorf("the list reveals the daemon's paths: %s", a.body)
	}
	// The details of an agent list all problems of its manifest.
	broken := r.ask(r.admin, "GET", "/api/v1/agents/broken", "")
	if list := broken.doc["diagnostics"].([]any); broken.status != 200 || len(list) == 0 || list[0].(map[string]any)["line"] != 1.0 {
		t.Errorf("the details of the broken agent are %s", broken.body)
	}
	alpha := r.ask(r.admin, "GET", "/api/v1/agents/alpha", "")
	if alpha.doc["id"] != "matrix://agent/alpha" || len(alpha.doc["tools"].([]any)) != 1 || alpha.doc["servers"].([]any)[0].(map[string]any)["ok"] != true {
		t.Errorf("the details of alpha are %s", alpha.body)
	}
	for _, path := range []string{"/mcp/broken", "/api/v1/agents/broken/call"} {
		if a := r.ask(r.admin, "POST", path, `{"tool":"echo"}`); a.status != 503 || a.code() != "agent_rejected" {
			t.Errorf("%s answered %d: %s", path, a.status, a.body)
		}
	}
	if a := r.ask(r.admin, "POST", "/mcp/unknown", "{}"); a.status != 404 {
		t.Errorf("a request for an unknown agent returned %d", a.status)
	}
	r.agent("alpha").state.Store(Quarantined)
	if a := r.ask(r.admin, "GET", "/api/v1/agents", ""); !strings.Contains(a.body, `"state":"quarantined","error":"server_drifted: server demo`) {
		t.Errorf("the list does not show the drifted agent: %s", a.body)
	}
}

// The description of an agent names no tool that the policy denies to the caller. An administrator sees all tools.
func TestAgentAsEachCallerSeesIt(t *testing.T) {
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, func(_ *rig, o *Options) {
		o.Hidden = func(a *agent.Agent, name string, c *call.Call) []bool {
			hidden := make([]bool, len(a.Tools))
			for i := range hidden {
				hidden[i] = name == "alpha" && c.Principal == "eve" && c.Attributes.Kind == identity.ByKey
			}
			return hidden
		}
	})
	r.Prove(t.Context())
	for _, tt := range []struct {
		key   string
		tools int
	}{
		{r.admin, 1},
		{r.key(identity.KeySpec{Name: "bob", Principal: "bob", Agents: []string{"alpha"}}), 1},
		{r.key(identity.KeySpec{Name: "eve", Principal: "eve", Agents: []string{"alpha"}}), 0},
	} {
		a := r.ask(tt.key, "GET", "/api/v1/agents/alpha", "")
		list, _ := a.doc["tools"].([]any)
		if a.status != 200 || len(list) != tt.tools || tt.tools == 0 && strings.Contains(a.body, "echo") {
			t.Errorf("%d tools, want %d: %s", len(list), tt.tools, a.body)
		}
	}
}

func TestFindNames(t *testing.T) {
	toml, err := manifest.Load("../../../agents/examples/wordcount/agent.toml", manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	text := toml.Source.Text
	r := &rig{t: t, folder: t.TempDir()}
	r.write("agent.toml", text)                                               // named after the agent in the manifest
	r.write("flat.toml", strings.Replace(text, "wordcount", "flat", 1))       // named after the file
	r.write("folder/agent.toml", strings.Replace(text, "wordcount", "in", 1)) // named after the folder
	r.write("folder/other.toml", strings.Replace(text, "wordcount", "x", 1))  // ignored
	r.write("installed/name.json", matrix("installed"))
	found, err := Find(r.folder, r.folder+"/missing")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range found {
		if f.Problem != nil {
			t.Errorf("%s: %v", f.Path, f.Problem)
		}
		got = append(got, f.Name)
	}
	if want := []string{agent.Slug(toml.Agent().Name), "flat", "folder", "name"}; !slices.Equal(got, want) {
		t.Errorf("the names are %q, want %q", got, want)
	}
}

func TestStrict(t *testing.T) {
	r := &rig{t: t, folder: t.TempDir()}
	r.write("alpha.json", matrix("alpha"))
	r.write("broken.json", `{"schema_version": 1, "agent": "x"}`)
	_, err := New(Options{Folders: []string{r.folder}, Strict: true, Start: r.start})
	if strict, ok := errors.AsType[*StrictError](err); !ok || len(strict.Rejected) != 1 || strict.Rejected[0].Name != "broken" {
		t.Errorf("New returned %v, want a StrictError for broken", err)
	}
}

// If a refusal has a time until a retry, the body and the Retry-After header of the response contain it.
func TestRetryAfter(t *testing.T) {
	refusal := call.Refuse("act", call.ServerUnavailable, "it rests").Again()
	refusal.RetryAfter = 12400 * time.Millisecond
	w := httptest.NewRecorder()
	refusedProblem(refusal, "x").write(w)
	if got := w.Header().Get("Retry-After"); got != "13" || !strings.Contains(w.Body.String(), `"retry_after":12.4`) {
		t.Errorf("Retry-After %q, %s", got, w.Body)
	}
	if err := describedBy("POST", "/api/v1/agents/alpha/call", w.Code, w.Header().Get("Content-Type"), w.Body.Bytes()); err != nil {
		t.Error(err)
	}
}

func TestProduction(t *testing.T) {
	remote := `{"schema_version": 1, "agent": "matrix://agent/remote", "allowed_side_effects": ["read"], "servers": [
  {"alias": "far", "transport": "streamable-http", "endpoint": "https://tools.example.com/mcp", "version": "1.0.0",
   "tools": [{"name": "echo", "side_effect_class": "read"}]}]}`
	pinned := func(id string) string {
		return strings.Replace(matrix(id), strings.Repeat("0", 64), strings.Repeat("a", 64), 1)
	}
	// The agents zero and zeroed have the same id. The agent zero is rejected because its server is
	// not pinned. The agent zeroed must not get the grants and the memory of that id.
	r := newRig(t, map[string]string{"zero.json": matrix("zero"), "remote.json": remote, "pinned.json": pinned("pinned"), "zeroed.json": pinned("zero")}, func(_ *rig, o *Options) { o.Production = true })
	a := r.ask(r.admin, "GET", "/api/v1/agents", "")
	if got := names(a.doc, "agents"); !slices.Equal(got, []string{"pinned/starting", "remote/rejected", "zero/rejected", "zeroed/rejected"}) {
		t.Errorf("in production, the agents are %q: %s", got, a.body)
	}
}

func TestCall(t *testing.T) {
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, nil)
	key := r.key(identity.KeySpec{Principal: "ci"})
	a := r.ask(key, "POST", "/api/v1/agents/alpha/call", `{"tool":"echo","arguments":{"n":12345678901234567890},"idempotency_key":"k1"}`)
	if a.status != 200 || !strings.Contains(a.body, `alpha ci {\"n\":12345678901234567890} k1`) || !strings.Contains(a.body, `"structuredContent":{"n":12345678901234567890}`) {
		t.Errorf("a call got %d: %s", a.status, a.body)
	}
	a = r.ask(key, "POST", "/api/v1/agents/alpha/call", `{"tool":"nothing"}`)
	e, _ := a.doc["error"].(map[string]any)
	if a.status != 404 || e["code"] != "unknown_tool" || e["stage"] != "resolve" || e["effect"] != "none" || e["retryable"] != false || e["call_id"] == "" {
		t.Errorf("a refusal is %d: %s", a.status, a.body)
	}
	for body, says := range map[string]string{
		`{"tool":"echo","input":{}}`: `\"/input\"`, `{"tool":7}`: `\"/tool\"`,
	} {
		if a := r.ask(key, "POST", "/api/v1/agents/alpha/call", body); a.status != 400 || !strings.Contains(string(a.body), says) {
			t.Errorf("%s: %d: %s", body, a.status, a.body)
		}
	}
	for name, body := range map[string]string{
		"no tool": `{}`, "not JSON": `{`, "unknown member": `{"tool":"echo","principal":"root@local"}`, "twice": `{"tool":"echo","tool":"x"}`, "nothing": ``, "two": `{"tool":"echo"}{}`, "case": `{"Tool":"echo"}`,
	} {
		if a := r.ask(key, "POST", "/api/v1/agents/alpha/call", body); a.status != 400 || a.code() != "bad_request" {
			t.Errorf("%s: %d: %s", name, a.status, a.body)
		}
	}
	if a := r.ask(key, "GET", "/api/v1/agents/alpha/call", ""); a.status != 405 || a.header.Get("Allow") != "POST" {
		t.Errorf("GET of a call: %d, %q", a.status, a.header.Get("Allow"))
	}
	if a := r.ask(key, "GET", "/nothing", ""); a.status != 404 || a.code() != "not_found" {
		t.Errorf("an unknown address: %d", a.status)
	}
	if a := r.ask(key, "GET", "/api/v1/openapi.json", ""); a.doc["openapi"] != "3.1.0" {
		t.Error("the daemon does not serve its OpenAPI description")
	}
}

func TestJournal(t *testing.T) {
	r := newRig(t, nil, nil)
	j := r.options.Journal.(*journal.Journal)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	err := r.db.Write(t.Context(), func(tx state.Tx) error {
		for i := range 25 {
			name := "alpha"
			if i%5 == 0 {
				name = "beta"
			}
			rec := &journal.Record{Time: at.Add(time.Duration(i) * time.Second), Call: fmt.Sprintf("%032d", i), Agent: name, ID: "matrix://agent/" + name, Principal: "p", Tool: "echo", Decision: journal.Allow, Arguments: json.RawMessage(`{"a":1}`)}
			if i%2 == 0 {
				rec.Decision, rec.Code = journal.Deny, "rate_limited"
			}
			if _, err := j.Append(tx, rec); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// page reads all pages of a query. It returns the ids of the calls and the number of pages.
	page := func(key, query string) (calls []string, pages int) {
		t.Helper()
		next := ""
		for {
			a := r.ask(key, "GET", "/api/v1/journal?"+query+next, "")
			if a.status != 200 {
				t.Fatalf("%s: %s", query, a.body)
			}
			pages++
			for _, rec := range a.doc["records"].([]any) {
				calls = append(calls, strings.TrimLeft(rec.(map[string]any)["call"].(string)[:31], "0")+rec.(map[string]any)["call"].(string)[31:])
			}
			if a.doc["next"] == "" {
				return calls, pages
			}
			next = "&cursor=" + a.doc["next"].(string)
		}
	}
	beta := r.key(identity.KeySpec{Agents: []string{"beta"}, Principal: "p"})
	other := r.key(identity.KeySpec{Agents: []string{"beta"}, Principal: "q"})
	for _, tt := range []struct {
		name, key, query, want string
		pages                  int
	}{
		{"all", r.admin, "", "24 23 22 21 20 19 18 17 16 15 14 13 12 11 10 9 8 7 6 5 4 3 2 1 0", 1},
		{"in pages", r.admin, "limit=10", "24 23 22 21 20 19 18 17 16 15 14 13 12 11 10 9 8 7 6 5 4 3 2 1 0", 3},
		{"filtered", r.admin, "decision=deny&code=rate_limited&limit=10", "24 22 20 18 16 14 12 10 8 6 4 2 0", 2},
		{"of one agent", r.admin, "agent=beta", "20 15 10 5 0", 1},
		{"in a time range", r.admin, "since=2026-01-01T00:00:03Z&until=2026-01-01T00:00:05Z", "5 4 3", 1},
		{"scoped", beta, "", "20 15 10 5 0", 1},
		{"a key for one agent, in pages", beta, "limit=2", "20 15 10 5 0", 3},
		{"a key for one agent asks for another agent", beta, "agent=alpha", "", 1},
		{"another principal's", other, "", "", 1},
		{"the records of another principal, by name", other, "principal=p", "", 1},
		{"a key for one agent asks for another agent by id", beta, "agent=matrix://agent/alpha", "", 1},
		{"unknown ones", r.admin, "unknown=true", "", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			calls, pages := page(tt.key, tt.query)
			if got := strings.Join(calls, " "); got != tt.want || pages != tt.pages {
				t.Errorf("%d pages: %s\nwant %d: %s", pages, got, tt.pages, tt.want)
			}
		})
	}
	for _, query := range []string{"limit=0", "limit=1001", "limit=x", "since=yesterday", "cursor=x", "cursor=0:-1", "agnet=beta"} {
		if a := r.ask(r.admin, "GET", "/api/v1/journal?"+query, ""); a.status != 400 {
			t.Errorf("%s: %d", query, a.status)
		}
	}
	a := r.ask(r.admin, "GET", "/api/v1/journal/checkpoint", "")
	if c, err := j.Key().Open([]byte(a.doc["checkpoint"].(string))); err != nil || c.Size != 25 || a.doc["key"] != j.Key().String() {
		t.Errorf("the checkpoint is %+v, %v", c, err)
	}
}
