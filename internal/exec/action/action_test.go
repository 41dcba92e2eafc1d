package action

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/manifest"
)

func TestPrompt(t *testing.T) {
	tool := &agent.Tool{Name: "outline", Binding: agent.Prompt{Template: "For {range}, as {\"a\": {}} says: {n} {range}"}}
	b := New(&agent.Agent{Name: "A"}, Options{})
	act := func(arguments string) (call.Result, error) {
		return b.Act(t.Context(), tool, &call.Call{ID: "1", Arguments: jsontext.Value(arguments)})
	}
	result, err := act(`{"range":"<last> {n}\n","n":[1, 2]}`)
	if got := read(t, result, err); got.Content[0].Text != "For <last> {n}\n, as {\"a\": {}} says: [1,2] <last> {n}\n" {
		t.Errorf("the prompt is %s", result.Raw)
	}
	_, err = act(`{"range":"x"}`)
	wantCode(t, err, call.InputInvalid, call.NoEffect)
}

func TestOtherBindings(t *testing.T) {
	for _, other := range []agent.Binding{nil, agent.OnServer{}, agent.Native{}, agent.RunProgram{}} {
		_, err := New(&agent.Agent{}, Options{}).Act(t.Context(), &agent.Tool{Name: "x", Binding: other}, &call.Call{})
		wantCode(t, err, call.UnknownTool, call.NoEffect)
	}
}

type narrow struct{}

func (narrow) Allows(string) bool { return false }
func (narrow) Name() string       { return "narrow" }

func TestCompose(t *testing.T) {
	tool := agent.Tool{Name: "measure", Binding: agent.Compose{Agent: "wordcount", Tool: "count"}}
	var got *call.Call
	answers := func(result call.Result, err error) Options {
		return Options{Name: "reporter", Agents: callers(func(_ context.Context, name string, c *call.Call) (call.Result, error) {
			if name != "wordcount" {
				t.Errorf("the tool called the agent %s, want wordcount", name)
			}
			got = c
			return result, err
		})}
	}
	c := &call.Call{ID: "parent", Tool: "measure", Arguments: jsontext.Value(`{"text":"x"}`), Principal: "ann@local", By: "owner@local", Gone: make(chan struct{}), Skill: narrow{}, Client: &call.Client{Key: "k"}}
	raw := jsontext.Value(`{"content":[],"isError":true}`)
	result, err := New(&agent.Agent{}, answers(call.Result{Raw: raw, IsError: true}, nil)).Act(t.Context(), &tool, c)
	if err != nil || !result.IsError || string(result.Raw) != string(raw) {
		t.Errorf("result = %+v, %v; want the result of the inner call", result, err)
	}
	if got.Tool != "count" || got.Parent != "parent" || got.ID != "" || got.Principal != "ann@local" || got.By != "owner@local" || got.Gone != c.Gone || got.Skill != c.Skill || got.Client != nil ||
		string(got.Arguments) != `{"text":"x"}` || got.IdempotencyKey != "" {
		t.Errorf("the inner call is %+v", got)
	}

	// The inner call of an idempotent call is idempotent too.
	repeatable := tool
	repeatable.Policy.Idempotent = true
	if _, err := New(&agent.Agent{}, answers(call.Result{}, nil)).Act(t.Context(), &repeatable, c); err != nil || got.IdempotencyKey != "compose/reporter/parent" {
		t.Errorf("idempotency key %q, error %v; want the id of the outer call", got.IdempotencyKey, err)
	}
	keyed := *c
	keyed.IdempotencyKey = "k1"
	if _, err := New(&agent.Agent{}, answers(call.Result{}, nil)).Act(t.Context(), &tool, &keyed); err != nil || got.IdempotencyKey != "compose/reporter/k1" {
		t.Errorf("idempotency key %q, error %v; want the key of the outer call", got.IdempotencyKey, err)
	}

	no := call.Uncertain("guard", call.OutcomeUnknown, "unknown")
	_, err = New(&agent.Agent{}, answers(call.Result{}, no)).Act(t.Context(), &tool, c)
	if r := wantCode(t, err, call.OutcomeUnknown, call.EffectUnknown); r.Message != "agent wordcount: unknown" || no.Message != "unknown" || r.Stage != "guard" {
		t.Errorf("refusal = %+v, want the inner refusal with the name of the agent", r)
	}
	other := errors.New("other")
	if _, err = New(&agent.Agent{}, answers(call.Result{}, other)).Act(t.Context(), &tool, c); !errors.Is(err, other) {
		t.Error(err)
	}
	_, err = New(&agent.Agent{}, Options{}).Act(t.Context(), &tool, c)
	wantCode(t, err, call.ServerUnavailable, call.NoEffect)
}

// group is a group of agents that call each other.
type group struct {
	agents map[string]*agent.Agent
	calls  []string
}

func (h *group) CallAgent(ctx context.Context, name string, c *call.Call) (call.Result, error) {
	a := h.agents[name]
	h.calls = append(h.calls, name+"/"+c.Tool+"<"+c.Parent)
	inner := *c
	inner.ID = name
	return New(a, Options{Name: name, Agents: h}).Act(ctx, a.Tool("", c.Tool), &inner)
}

// composing returns a group of agents. For "a/t>b/u", the tool t of agent a calls the tool u of agent b. For "a/t", the
// tool t of agent a is a prompt.
func composing(pairs ...string) *group {
	h := &group{agents: map[string]*agent.Agent{}}
	for _, p := range pairs {
		from, to, _ := strings.Cut(p, ">")
		name, tool, _ := strings.Cut(from, "/")
		t := agent.Tool{Name: tool, Binding: agent.Prompt{Template: "done"}}
		if to != "" {
			other, otherTool, _ := strings.Cut(to, "/")
			t.Binding = agent.Compose{Agent: other, Tool: otherTool}
		}
		if h.agents[name] == nil {
			h.agents[name] = &agent.Agent{Name: name}
		}
		h.agents[name].Tools = append(h.agents[name].Tools, t)
	}
	return h
}

func TestComposeEnds(t *testing.T) {
	run := func(h *group) (call.Result, error) {
		return h.CallAgent(t.Context(), "a", &call.Call{Tool: "t", Parent: "top"})
	}
	h := composing("a/t>b/t", "b/t>a/u", "a/u>c/t", "c/t")
	result, err := run(h)
	if got := read(t, result, err); got.Content[0].Text != "done" || !slices.Equal(h.calls, []string{"a/t<top", "b/t<a", "a/u<b", "c/t<a"}) {
		t.Errorf("got the result %s after the calls %v", result.Raw, h.calls)
	}
	for _, cycle := range [][]string{{"a/t>a/t"}, {"a/t>b/t", "b/t>a/t"}, {"a/t>b/t", "b/t>c/t", "c/t>b/t"}} {
		h := composing(cycle...)
		_, err := run(h)
		if r := wantCode(t, err, call.PolicyDenied, call.NoEffect); !strings.Contains(r.Message, "cycle") || len(h.calls) != len(cycle) {
			t.Errorf("%v: %s after %v", cycle, r.Message, h.calls)
		}
	}
	var long []string
	for i := range 20 {
		long = append(long, fmt.Sprintf("%c/t>%c/t", 'a'+i, 'b'+i))
	}
	h = composing(append(long, "u/t")...)
	_, err = run(h)
	if r := wantCode(t, err, call.PolicyDenied, call.NoEffect); !strings.Contains(r.Message, "more than 8 calls") || len(h.calls) != maxDepth+1 {
		t.Errorf("%s after %d calls", r.Message, len(h.calls))
	}
}

func TestDefinition(t *testing.T) {
	a := seedAgent(t)
	want := `{"name":"get_traffic_summary","description":"Fetch a traffic summary for a date range.","inputSchema":{"properties":{"range":{"type":"string"}},"type":"object"},"annotations":{"readOnlyHint":true}}`
	if got := string(Definition(a, &a.Tools[0])); got != want {
		t.Errorf("Definition = %s, want %s", got, want)
	}
	yes := true
	for _, tt := range []struct {
		name string
		tool agent.Tool
		want string
	}{
		{"bare", agent.Tool{Name: "x", Binding: agent.Prompt{}}, `{"name":"x","inputSchema":{"type":"object"}}`},
		{
			"all", agent.Tool{
				Name: "x", Description: "a <b>", InputSchema: `{"properties":{}}`, OutputSchema: `{"type":"object"}`, Binding: agent.HTTP{},
				Annotations: agent.Annotations{Title: "X", Destructive: &yes},
			}, `{"name":"x","title":"X","description":"a <b>","inputSchema":{"properties":{},"type":"object"},"outputSchema":{"type":"object"},"annotations":{"title":"X","destructiveHint":true}}`,
		},
		{"the output is a list", agent.Tool{Name: "x", OutputSchema: `{"type":"array"}`, Binding: agent.HTTP{}}, `{"name":"x","inputSchema":{"type":"object"}}`},
		{"a prompt has no structure", agent.Tool{Name: "x", OutputSchema: `{"type":"object"}`, Binding: agent.Prompt{}}, `{"name":"x","inputSchema":{"type":"object"}}`},
		{"the input schema is true", agent.Tool{Name: "x", InputSchema: `true`, Binding: agent.Compose{}}, `{"name":"x","inputSchema":{"type":"object"}}`},
		{"on a server", agent.Tool{Name: "x", Binding: agent.OnServer{Alias: "a"}}, ""},
		{"no binding", agent.Tool{Name: "x"}, ""},
	} {
		if got := string(Definition(&agent.Agent{}, &tt.tool)); got != tt.want {
			t.Errorf("%s: Definition = %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestShippedExample checks that every tool of the shipped example has a definition.
func TestShippedExample(t *testing.T) {
	m, err := manifest.Load("../../../agents/examples/mcp-tool/findagent.json", manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := m.Agent()
	for i := range a.Tools {
		if d := jsontext.Value(Definition(a, &a.Tools[i])); !d.IsValid() || len(d) == 0 {
			t.Errorf("%s: Definition = %q, want JSON", a.Tools[i].Name, d)
		}
	}
	tool := a.Tool("", "increase_campaign_budget")
	b := New(a, Options{Credentials: token(canary)}).(*binding)
	req, err := b.request(t.Context(), tool, tool.Binding.(agent.HTTP), &call.Call{ID: "1", Arguments: jsontext.Value(`{"campaign":"c1","amount":40.50,"currency":"EUR","reason":"it \"sold\" out"}`)})
	if err != nil {
		t.Fatal(err)
	}
	body := make([]byte, req.ContentLength)
	if _, err := req.Body.Read(body); err != nil || string(body) != `{"amount": 40.50, "currency": "EUR", "reason": "it \"sold\" out"}` || req.URL.Path != "/v1/campaigns/c1/budget-increases" {
		t.Errorf("the request is %s with the body %s, error %v", req.URL, body, err)
	}
}
