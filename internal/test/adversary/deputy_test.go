package adversary

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// deputies writes two agents. The agent deputy forwards every call to the agent bank, and has no guardrails.
func (w *world) deputies() {
	w.t.Helper()
	tools := func(action func(name string) map[string]any) (list []any) {
		for _, name := range []string{"free", "forbidden", "rationed", "asked"} {
			list = append(list, map[string]any{
				"name": name, "description": "Repeats its input.", "action": action(name),
				"input_schema": map[string]any{"type": "object", "properties": map[string]any{"text": map[string]any{"type": "string"}}},
			})
		}
		return list
	}
	write := func(name string, tools []any, guardrails map[string]any) {
		doc, err := json.Marshal(map[string]any{
			"name": name, "system_prompt": "You repeat your input, word for word and without any change.", "kind": "mcp-tool",
			"tools": tools, "guardrails": guardrails, "example_prompts": []string{"Say it."},
		})
		if err != nil {
			w.t.Fatal(err)
		}
		w.write("agents/"+name+"/findagent.json", string(doc))
	}
	write("deputy", tools(func(name string) map[string]any {
		return map[string]any{"type": "compose", "agent": "bank", "tool": name}
	}), map[string]any{})
	write("bank", tools(func(string) map[string]any {
		return map[string]any{"type": "prompt-template", "template": "The bank got: {text}"}
	}), map[string]any{
		"input":   map[string]any{"max_length": 40},
		"actions": map[string]any{"rationed": map[string]any{"rate_limit": "1/day"}, "asked": map[string]any{"approval": "human"}},
	})
	w.write("home/policy.cedar", `forbid (principal == Agent::"bank", action == Action::"call", resource == Tool::"bank/forbidden");`)
}

// TestDeputyIsNotConfused covers an agent that calls other agents. A key for this agent gives no rights
// over the other agents. The gate, guardrails, limits and approvals of the other agents apply to the
// original caller. The journal records both calls.
func TestDeputyIsNotConfused(t *testing.T) {
	w := newWorld(t)
	w.deputies()
	key, stderr, code := w.ambit("key", "new", "--agents", "deputy")
	if code != 0 {
		t.Fatal(stderr)
	}
	key = strings.TrimSpace(key)
	who := "key:" + strings.Split(key, "_")[1]
	d := w.serve()
	if a := d.ask(key, "bank", "free", "hello"); a.status != http.StatusForbidden || !strings.Contains(a.body, `"code":"forbidden"`) {
		t.Fatalf("the key gives access to the other agent: %+v", a)
	}
	for _, tool := range []string{"free", "rationed"} {
		if a := d.ask(key, "deputy", tool, "hello"); a.status != http.StatusOK || !strings.Contains(a.body, "The bank got: hello") {
			t.Fatalf("calling %s, which the bank allows: got %+v", tool, a)
		}
	}
	for _, tt := range []struct{ tool, text, code string }{
		{"forbidden", "hello", "policy_denied"},
		{"free", strings.Repeat("long ", 20), "input_too_long"},
		{"rationed", "again", "rate_limited"},
		{"asked", "hello", "approval_denied"},
	} {
		came := make(chan answer, 1)
		go func() { came <- d.ask(key, "deputy", tt.tool, tt.text) }()
		a := d.refuse(came)
		if a.status < 400 || !strings.Contains(a.body, `"code":"`+tt.code+`"`) || !strings.Contains(a.body, "agent bank: ") || strings.Contains(a.body, "The bank got") {
			t.Errorf("want the code %s: got %+v", tt.code, a)
		}
		outer, inner := d.recorded("deputy", tt.code), d.recorded("bank", tt.code)
		if outer.Call == "" || inner.Parent != outer.Call {
			t.Errorf("%s: the parent of the bank's record is %q, want the deputy's call %q", tt.code, inner.Parent, outer.Call)
		}
		for agent, r := range map[string]record{"deputy": outer, "bank": inner} {
			if r.Decision != "deny" || r.Tool != tt.tool || r.Principal != who {
				t.Errorf("%s: the journal records for %s: %+v", tt.code, agent, r)
			}
		}
	}
}

// record is a call's record in the journal.
type record struct{ Call, Parent, Tool, Principal, Decision string }

// recorded returns the agent's only record with the given code.
func (d *daemon) recorded(agent, code string) record {
	d.t.Helper()
	_, body := d.send("GET", "/api/v1/journal?agent="+agent+"&code="+code, "", nil)
	var found struct{ Records []record }
	if err := json.Unmarshal([]byte(body), &found); err != nil {
		d.t.Fatal(err)
	}
	if len(found.Records) != 1 {
		d.t.Errorf("%s: the journal has %[3]d records of %[2]s, want 1: %[4]s", code, agent, len(found.Records), body)
		return record{}
	}
	return found.Records[0]
}

// answer is the outcome of a call.
type answer struct {
	status int
	body   string
	err    error
}

// ask calls a tool with a key.
func (d *daemon) ask(key, agent, tool, text string) (a answer) {
	body := `{"tool":"` + tool + `","arguments":{"text":"` + text + `"}}`
	req, err := http.NewRequestWithContext(d.t.Context(), "POST", d.url+"/api/v1/agents/"+agent+"/call", strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	came, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, string(came), err}
}

// refuse waits for the answer to a call. If the call has an approval request, refuse denies the
// request.
func (d *daemon) refuse(came <-chan answer) answer {
	d.t.Helper()
	for {
		select {
		case a := <-came:
			return a
		case <-time.After(10 * time.Millisecond): // poll interval
		}
		_, body := d.send("GET", "/api/v1/approvals", "", nil)
		var waiting struct{ Approvals []struct{ ID string } }
		if err := json.Unmarshal([]byte(body), &waiting); err != nil {
			d.t.Fatal(err)
		}
		for _, q := range waiting.Approvals {
			d.send("POST", "/api/v1/approvals/"+q.ID, `{"decision":"deny"}`, nil)
		}
	}
}
