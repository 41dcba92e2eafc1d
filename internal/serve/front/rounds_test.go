package front

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/supply/skill"
)

type agentTool = agent.Tool

func contextWithCancel(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(t.Context())
}

// asks calls a tool in the newer generation, as a principal.
func asks(t *testing.T, a *Agent, principal, params string) (result jsontext.Value, problem *rpcError) {
	t.Helper()
	r := newRequest(mustParse(t, newer("tools/call", params)))
	r.principal, r.notify = principal, func(string, jsontext.Value) {}
	return r.method()(a, t.Context(), r)
}

func TestRequestState(t *testing.T) {
	s := &stage{began: make(chan string, 10), release: make(chan struct{})}
	a := testAgent(t, s)
	a.Keys = testKeys
	ask := func(arguments string) string {
		t.Helper()
		result, problem := asks(t, a, "me", `"name":"ask","arguments":`+arguments)
		if problem != nil {
			t.Fatal(problem.Message)
		}
		sealed := string(lookup(result, "requestState"))
		if sealed == `"x"` || len(sealed) < 100 || string(lookup(result, "resultType")) != `"input_required"` {
			t.Fatalf("the server's state passed as it was: %s", result)
		}
		return sealed
	}
	goes := func(principal, tool, arguments, sealed string) *rpcError {
		_, problem := asks(t, a, principal, `"name":"`+tool+`","arguments":`+arguments+`,"inputResponses":{"q":{"action":"accept"}},"requestState":`+sealed)
		return problem
	}
	sealed := ask(`{"a":1,"b":2.0}`)
	tests := []struct {
		name, principal, tool, arguments, state string
		want                                    error // nil: it is accepted
	}{
		{"of another principal", "you", "ask", `{"a":1,"b":2.0}`, sealed, errForeignState},
		{"for another tool", "me", "read", `{"a":1,"b":2.0}`, sealed, errForeignState},
		{"for other arguments", "me", "ask", `{"a":1,"b":3}`, sealed, errForeignState},
		{"for a number written otherwise", "me", "ask", `{"a":1,"b":2}`, sealed, errForeignState},
		{"changed", "me", "ask", `{"a":1,"b":2.0}`, sealed[:len(sealed)-3] + `AA"`, errForeignState},
		{"the server's own", "me", "ask", `{"a":1,"b":2.0}`, `"x"`, errForeignState},
		{"as it should be, in another order", "me", "ask", `{"b":2.0,"a":1}`, sealed, nil},
		{"a second time", "me", "ask", `{"a":1,"b":2.0}`, sealed, errSpentState},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.more = ""
			problem := goes(tt.principal, tt.tool, tt.arguments, tt.state)
			switch {
			case tt.want == nil && (problem != nil || s.more != `{"inputResponses":{"q":{"action":"accept"}},"requestState":"x"}`):
				t.Errorf("got %+v, and the server got %s", problem, s.more)
			case tt.want != nil && (problem == nil || problem.Code != invalidParams || !strings.HasSuffix(problem.Message, tt.want.Error()) || s.more != ""):
				t.Errorf("got %+v, and the server got %q; want %v", problem, s.more, tt.want)
			}
		})
	}
	t.Run("expired", func(t *testing.T) {
		keys, err := testKeys()
		if err != nil {
			t.Fatal(err)
		}
		r := newRequest(mustParse(t, newer("tools/call", `"name":"ask","arguments":{}`)))
		r.principal = "me"
		plain, err := json.Marshal(state{Binding: a.binding(r), ID: "x", Until: time.Now().Add(-time.Second).Unix()})
		if err != nil {
			t.Fatal(err)
		}
		if problem := goes("me", "ask", `{}`, string(marshal(base64.RawURLEncoding.EncodeToString(keys.Seal(statePurpose, plain))))); problem == nil || !strings.HasSuffix(problem.Message, errOldState.Error()) {
			t.Errorf("got %+v", problem)
		}
	})
	// A state is bound to what the front reads, and the server reads the same.
	s.more = ""
	sealed = ask(`{}`)
	if problem := goes("me", `read","name":"ask`, `{}`, sealed); problem == nil || problem.Code != invalidParams || !strings.Contains(problem.Message, "duplicate") || s.more != "" {
		t.Errorf("got %+v, and the server got %s", problem, s.more)
	}
	// Answers without a state belong to no call: it is a new one.
	s.more, s.continues = "", "-"
	if _, problem := asks(t, a, "me", `"name":"ask","arguments":{},"inputResponses":{}`); problem != nil || s.more != `{"inputResponses":{}}` || s.continues != "" {
		t.Errorf("got %+v; the server got %s, continuing %q", problem, s.more, s.continues)
	}
}

// Servers may ask only for what the operator exposes.
func TestServersAskOnlyWhatIsExposed(t *testing.T) {
	tests := []struct {
		name, method string
		expose       gateway.Exposed
		passes       bool
	}{
		{"elicitation", "elicitation/create", nil, true},
		{"sampling", "sampling/createMessage", nil, false},
		{"sampling, exposed", "sampling/createMessage", gateway.Exposed{gateway.Sampling}, true},
		{"roots", "roots/list", gateway.Exposed{gateway.Sampling}, false},
		{"roots, exposed", "roots/list", gateway.Exposed{Roots}, true},
		{"something new", "wallet/open", gateway.Exposed(Exposable), false},
		{"one thing and another", `elicitation/create","method":"sampling/createMessage`, nil, false},
		{"escaped", `elicitation/create","m\u0065thod":"sampling/createMessage`, nil, false},
		{"another case", `elicitation/create","Method":"sampling/createMessage`, nil, false},
		{"two questions of one name", `elicitation/create"},"q":{"method":"elicitation/create`, nil, false},
		{"a name that is no text", `elicitation/create"},"\ud800":{"method":"sampling/createMessage`, nil, false},
		{"further inside", `elicitation/create","x":{"a":1,"a":2},"y":"`, nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &stage{asks: `{"resultType":"input_required","inputRequests":{"q":{"method":"` + tt.method + `","params":{}}}}`}
			a := testAgent(t, s)
			a.Keys, a.Expose = testKeys, tt.expose
			result, problem := asks(t, a, "me", `"name":"ask","arguments":{}`)
			if problem != nil {
				t.Fatal(problem.Message)
			}
			if passed := asksMore(result); passed != tt.passes || !passed && !strings.Contains(string(result), "policy_denied") && !strings.Contains(string(result), "output_invalid") {
				t.Errorf("got %s", result)
			}
		})
	}
}

// A question is one also where a letter of the word is escaped.
func TestEscapedQuestionIsOne(t *testing.T) {
	a := testAgent(t, &stage{asks: `{"resultType":"input\u005frequired","inputRequests":{"q":{"method":"sampling/createMessage"}}}`})
	a.Keys = testKeys
	result, problem := asks(t, a, "me", `"name":"ask","arguments":{}`)
	if problem != nil || !strings.Contains(string(result), "policy_denied") {
		t.Errorf("got %s, %+v", result, problem)
	}
}

// Questions in a list are refused, because they are not checked.
func TestQuestionsAreAnObject(t *testing.T) {
	for questions, passes := range map[string]bool{`null`: true, `{}`: true, `[{"method":"sampling/createMessage"}]`: false, `"x"`: false} {
		a := testAgent(t, &stage{asks: `{"resultType":"input_required","requestState":"x","inputRequests":` + questions + `}`})
		a.Keys = testKeys
		result, problem := asks(t, a, "me", `"name":"ask","arguments":{}`)
		if problem != nil || asksMore(result) != passes {
			t.Errorf("%s: got %s, %+v", questions, result, problem)
		}
	}
}

// A client of the older generation is asked what a newer server asks.
func TestOlderClientIsAskedForMore(t *testing.T) {
	c := connect(t, func(a *Agent) { a.Keys = testKeys })
	c.stage.asks = `{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"sure?"}}},"requestState":"x"}`
	c.say(hello)
	c.hear()
	c.say(calls(2, "ask", `{}`))
	c.wants(`{"jsonrpc":"2.0","id":"ambit-1","method":"elicitation/create","params":{"message":"sure?"}}`)
	c.stage.asks = `{"content":[]}`
	c.say(`{"jsonrpc":"2.0","id":"ambit-1","result":{"action":"accept"}}`)
	c.wants(`{"jsonrpc":"2.0","id":2,"result":{"content":[]}}`)
	if c.stage.more != `{"inputResponses":{"q":{"action":"accept"}},"requestState":"x"}` || c.stage.continues == "" {
		t.Errorf("the server got %s, continuing %q", c.stage.more, c.stage.continues)
	}
	// A client that cannot be asked gets a refusal.
	c.stage.asks = `{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{}}}}`
	c.say(strings.Replace(hello, `"elicitation":{},`, "", 1))
	c.hear()
	c.say(calls(3, "ask", `{}`))
	if got := c.hear(); !strings.Contains(got, `"isError":true`) {
		t.Error(got)
	}
}

// restless is a gateway to a server that always asks again.
type restless struct{ fakeGateway }

const again = `{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{}}},"requestState":"x"}`

func (restless) Call(context.Context, *call.Call) (call.Result, error) {
	return call.Result{Raw: jsontext.Value(again)}, nil
}

func (restless) Forward(context.Context, *call.Forward) (jsontext.Value, error) {
	return jsontext.Value(again), nil
}

// A server that asks again and again is asked no further, in either generation: one
// approval is not for calls without end.
func TestQuestionsHaveAnEnd(t *testing.T) {
	const words = "the server asked for input 10 times, which is the limit"
	open := func(a *Agent) {
		a.Gateway, a.Keys, a.Expose = restless{a.Gateway.(fakeGateway)}, testKeys, gateway.Exposed{gateway.Resources}
		a.Capabilities = func(alias string) jsontext.Value {
			return map[string]jsontext.Value{"fs": jsontext.Value(`{"resources":{}}`)}[alias]
		}
	}
	for method, params := range map[string]string{"tools/call": `"name":"ask","arguments":{}`, "resources/read": `"uri":"fs://a"`} {
		t.Run("newer, "+method, func(t *testing.T) {
			a := testAgent(t, &stage{})
			open(a)
			asked, answers := 0, ""
			for {
				r := newRequest(mustParse(t, newer(method, params+answers)))
				r.principal, r.notify = "me", func(string, jsontext.Value) {}
				result, problem := r.method()(a, t.Context(), r)
				if problem == nil && asksMore(result) && asked <= maxRounds {
					asked++
					answers = `,"inputResponses":{"q":{}},"requestState":` + string(lookup(result, "requestState"))
					continue
				}
				if said := string(result) + string(marshal(problem)); asked != maxRounds || !strings.Contains(said, words) {
					t.Errorf("after %d questions it said %s", asked, said)
				}
				return
			}
		})
	}
	t.Run("older", func(t *testing.T) {
		c := connect(t, open)
		c.say(hello)
		c.hear()
		c.say(calls(2, "ask", `{}`))
		for i := 1; i <= maxRounds; i++ {
			id := fmt.Sprintf(`"ambit-%d"`, i)
			c.wants(`{"jsonrpc":"2.0","id":` + id + `,"method":"elicitation/create","params":{}}`)
			c.say(`{"jsonrpc":"2.0","id":` + id + `,"result":{"action":"accept"}}`)
		}
		if got := c.hear(); !strings.Contains(got, words) {
			t.Error(got)
		}
	})
}

func TestSkillByName(t *testing.T) {
	only := func(tools string) call.Allowlist {
		list, err := skill.ParseTools("§TOOLS\n" + tools + "\n")
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	c := connect(t, gated(t), func(a *Agent) {
		a.Skill = only("matrix://tool/mcp/fs/work@1.0.0\nmatrix://tool/mcp/fs/fail@1.0.0")
		a.Skills = map[string]call.Allowlist{"worker": only("matrix://tool/mcp/fs/work@1.0.0\nmatrix://tool/mcp/fs/read@1.0.0")}
	})
	tests := []struct {
		tool, skill string
		allowed     bool
	}{
		{"work", "", true},
		{"fail", "", true},
		{"read", "", false},
		{"work", `"worker"`, true},
		{"fail", `"worker"`, false},
		{"read", `"worker"`, false}, // it can only narrow
		{"work", `"boss"`, false},   // not registered
	}
	for _, tt := range tests {
		meta := ""
		if tt.skill != "" {
			meta = `,"_meta":{"ambit/skill":` + tt.skill + `}`
		}
		c.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tt.tool + `"` + meta + `}}`)
		if got := c.hear(); strings.Contains(got, "not_in_skill_allowlist") == tt.allowed {
			t.Errorf("%s under %q: %s", tt.tool, tt.skill, got)
		}
	}
	c.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","_meta":{"ambit/skill":7}}}`)
	if got := c.hear(); !strings.Contains(got, `"code":-32602`) {
		t.Error(got)
	}
}

// Clients hold structuredContent to outputSchema, so a refusal of such a tool
// keeps out of it.
func TestRefusalOfAToolWithOutputSchema(t *testing.T) {
	c := connect(t, func(a *Agent) {
		a.Definition = func(t *agentTool) []byte {
			return []byte(`{"name":"` + t.Name + `","outputSchema":{"type":"object","required":["x"]}}`)
		}
	})
	c.say(calls(1, "refuse", `{"code":"rate_limited"}`))
	got := c.hear()
	if strings.Contains(got, "structuredContent") || !strings.Contains(got, `"_meta":{"ambit/error":{"code":"rate_limited"`) || !strings.Contains(got, `"isError":true`) {
		t.Error(got)
	}
}

// The client's _meta reaches the server, and its errors the client.
func TestMetaAndErrorsPass(t *testing.T) {
	c := connect(t)
	c.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"broken","_meta":{"traceparent":"00-abc"}}}`)
	c.wants(`{"jsonrpc":"2.0","id":1,"error":{"code":-32021, "message":"no", "data":{"big":12345678901234567890}}}`)
	if c.stage.meta != `{"traceparent":"00-abc"}` {
		t.Errorf("the server got %s", c.stage.meta)
	}
}

// Initialize does not wait for the servers; a list does, and reports why they are not ready.
func TestServersThatDoNotCome(t *testing.T) {
	ready := make(chan error)
	var why error
	c := connect(t, func(a *Agent) {
		a.Ready = func(ctx context.Context) error {
			if why != nil {
				return why
			}
			select {
			case why = <-ready:
				return why
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	c.say(hello)
	if got := c.hear(); !strings.Contains(got, `"instructions":"Reads <files> & more."`) {
		t.Error(got)
	}
	c.say(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	c.pinged() // the list is held, and nothing else is
	ready <- call.Refuse("act", call.ServerDrifted, "server fs is not what the manifest says")
	if got := c.hear(); !strings.Contains(got, `"id":2,"error":{"code":-32603,"message":"server_drifted: server fs is not what the manifest says (`) {
		t.Error(got)
	}
	c.say(strings.Replace(hello, `"id":1`, `"id":3`, 1))
	if got := c.hear(); !strings.Contains(got, `"instructions":"This agent is unavailable: server_drifted: server fs is not what`) {
		t.Error(got)
	}
}

// An unknown tool is an error of the protocol in the newer generation, and holds
// the refusal; in the older one a model reads it.
func TestUnknownToolInBothGenerations(t *testing.T) {
	const refusal = `{"error":{"code":"unknown_tool","hint":"did you mean \"read\"?","message":"the agent declares no tool \"reed\"","retryable":false}}`
	c := connect(t, gated(t))
	c.say(calls(1, "reed", "{}"))
	if got := c.hear(); !strings.Contains(got, `"isError":true,"structuredContent":`+refusal) {
		t.Errorf("in the older generation: %s", got)
	}
	w := serveHTTP(t, HTTPOptions{}, gated(t))
	_, got := w.post(newer("tools/call", `"name":"reed","arguments":{}`), newerHeaders("tools/call", "reed")...)
	if !strings.Contains(got, `"error":{"code":-32602,"message":"unknown_tool: the agent declares no tool`) || !strings.Contains(got, `"data":`+refusal) {
		t.Errorf("in the newer generation: %s", got)
	}
	// Tools that exist, but may not be called, are refused in band in both generations.
	if _, got = w.post(newer("tools/call", `"name":"write"`), newerHeaders("tools/call", "write")...); !strings.Contains(got, `"isError":true`) {
		t.Errorf("a tool that is denied: %s", got)
	}
}

// A refusal with a known retry time includes it.
func TestRetryAfterIsReported(t *testing.T) {
	refusal := call.Refuse("act", call.ServerUnavailable, "it rests").Again()
	if got := refusalObject(refusal); got["retry_after"] != nil {
		t.Errorf("it says %v", got)
	}
	refusal.RetryAfter = 12400 * time.Millisecond
	if got := refusalObject(refusal); got["retry_after"] != 12.4 {
		t.Errorf("it says %v", got)
	}
}
