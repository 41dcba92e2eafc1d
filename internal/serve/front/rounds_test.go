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

// asks calls a tool on behalf of a principal, in the newer protocol generation.
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
			t.Fatalf("the server's state was not sealed: %s", result)
		}
		return sealed
	}
	answerWith := func(principal, tool, arguments, sealed string) *rpcError {
		_, problem := asks(t, a, principal, `"name":"`+tool+`","arguments":`+arguments+`,"inputResponses":{"q":{"action":"accept"}},"requestState":`+sealed)
		return problem
	}
	sealed := ask(`{"a":1,"b":2.0}`)
	tests := []struct {
		name, principal, tool, arguments, state string
		want                                    error // nil if the state is accepted
	}{
		{"the state of another principal", "you", "ask", `{"a":1,"b":2.0}`, sealed, errForeignState},
		{"a state for another tool", "me", "read", `{"a":1,"b":2.0}`, sealed, errForeignState},
		{"a state for other arguments", "me", "ask", `{"a":1,"b":3}`, sealed, errForeignState},
		{"a state for a number in another format", "me", "ask", `{"a":1,"b":2}`, sealed, errForeignState},
		{"changed", "me", "ask", `{"a":1,"b":2.0}`, sealed[:len(sealed)-3] + `AA"`, errForeignState},
		{"the server's own state", "me", "ask", `{"a":1,"b":2.0}`, `"x"`, errForeignState},
		{"a valid state, with the arguments in another order", "me", "ask", `{"b":2.0,"a":1}`, sealed, nil},
		{"a second time", "me", "ask", `{"a":1,"b":2.0}`, sealed, errSpentState},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.more = ""
			problem := answerWith(tt.principal, tt.tool, tt.arguments, tt.state)
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
		if problem := answerWith("me", "ask", `{}`, string(marshal(base64.RawURLEncoding.EncodeToString(keys.Seal(statePurpose, plain))))); problem == nil || !strings.HasSuffix(problem.Message, errOldState.Error()) {
			t.Errorf("got %+v", problem)
		}
	})
	// Duplicate members are refused: the server could read a name other than the one that was checked.
	s.more = ""
	sealed = ask(`{}`)
	if problem := answerWith("me", `read","name":"ask`, `{}`, sealed); problem == nil || problem.Code != invalidParams || !strings.Contains(problem.Message, "duplicate") || s.more != "" {
		t.Errorf("got %+v, and the server got %s", problem, s.more)
	}
	// Answers without a state belong to no earlier call, so they are sent with a new call.
	s.more, s.continues = "", "-"
	if _, problem := asks(t, a, "me", `"name":"ask","arguments":{},"inputResponses":{}`); problem != nil || s.more != `{"inputResponses":{}}` || s.continues != "" {
		t.Errorf("got %+v; the server got %s, continuing %q", problem, s.more, s.continues)
	}
}

// Servers may ask a client only for capabilities that the operator exposes.
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
		{"an unknown method", "wallet/open", gateway.Exposed(Exposable), false},
		{"a duplicate method", `elicitation/create","method":"sampling/createMessage`, nil, false},
		{"a duplicate method with an escape", `elicitation/create","m\u0065thod":"sampling/createMessage`, nil, false},
		{"a duplicate method in another case", `elicitation/create","Method":"sampling/createMessage`, nil, false},
		{"two questions with the same name", `elicitation/create"},"q":{"method":"elicitation/create`, nil, false},
		{"a name that is not valid Unicode", `elicitation/create"},"\ud800":{"method":"sampling/createMessage`, nil, false},
		{"a duplicate member of a nested object", `elicitation/create","x":{"a":1,"a":2},"y":"`, nil, false},
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
			if passed := asksForInput(result); passed != tt.passes || !passed && !strings.Contains(string(result), "policy_denied") && !strings.Contains(string(result), "output_invalid") {
				t.Errorf("got %s", result)
			}
		})
	}
}

// A result is recognized as a question even if its resultType is spelled with an escape.
func TestEscapedQuestionIsRecognized(t *testing.T) {
	a := testAgent(t, &stage{asks: `{"resultType":"input\u005frequired","inputRequests":{"q":{"method":"sampling/createMessage"}}}`})
	a.Keys = testKeys
	result, problem := asks(t, a, "me", `"name":"ask","arguments":{}`)
	if problem != nil || !strings.Contains(string(result), "policy_denied") {
		t.Errorf("got %s, %+v", result, problem)
	}
}

// Questions in a JSON array are refused, because only the members of an object are checked.
func TestQuestionsAreAnObject(t *testing.T) {
	for questions, passes := range map[string]bool{`null`: true, `{}`: true, `[{"method":"sampling/createMessage"}]`: false, `"x"`: false} {
		a := testAgent(t, &stage{asks: `{"resultType":"input_required","requestState":"x","inputRequests":` + questions + `}`})
		a.Keys = testKeys
		result, problem := asks(t, a, "me", `"name":"ask","arguments":{}`)
		if problem != nil || asksForInput(result) != passes {
			t.Errorf("%s: got %s, %+v", questions, result, problem)
		}
	}
}

// If a server of the newer generation asks for input, a client of the older generation gets the
// question as a request.
func TestOlderClientIsAskedForMore(t *testing.T) {
	c := connect(t, func(a *Agent) { a.Keys = testKeys })
	c.stage.asks = `{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"sure?"}}},"requestState":"x"}`
	c.say(hello)
	c.hear()
	c.say(calls(2, "ask", `{}`))
	c.wants(`{"jsonrpc":"2.0","id":"ambit-1","method":"elicitation/create","params":{"message":"The server \"fs\" of the agent \"x\" asks: sure?"}}`)
	c.stage.asks = `{"content":[]}`
	c.say(`{"jsonrpc":"2.0","id":"ambit-1","result":{"action":"accept"}}`)
	c.wants(`{"jsonrpc":"2.0","id":2,"result":{"content":[]}}`)
	if c.stage.more != `{"inputResponses":{"q":{"action":"accept"}},"requestState":"x"}` || c.stage.continues == "" {
		t.Errorf("the server got %s, continuing %q", c.stage.more, c.stage.continues)
	}
	// If the client does not support the question, the call is refused.
	c.stage.asks = `{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{}}}}`
	c.say(strings.Replace(hello, `"elicitation":{},`, "", 1))
	c.hear()
	c.say(calls(3, "ask", `{}`))
	if got := c.hear(); !strings.Contains(got, `"isError":true`) {
		t.Error(got)
	}
}

// The message of a question names the server that asks and its agent. A server cannot add a second message by a name in
// another case. Requests that have no message for a person stay the same.
func TestQuestionNamesTheServer(t *testing.T) {
	const names = `The server \"fs\" of the agent \"x\" asks`
	for _, tt := range []struct{ name, method, question, want string }{
		{
			"a form", "elicitation/create", `"params":{"message":"who are you?","requestedSchema":{"type":"object"}}`,
			`"params":{"message":"` + names + `: who are you?","requestedSchema":{"type":"object"}}`,
		},
		{
			"a page", "elicitation/create", `"params":{"mode":"url","url":"https://a.example","message":"sign in"}`,
			`"params":{"message":"` + names + `: sign in","mode":"url","url":"https://a.example"}`,
		},
		{
			"another case", "elicitation/create", `"Params":{"message":"I am the server db"},"params":{"Message":"I am the server db"}`,
			"",
		},
		{"a message in another case", "elicitation/create", `"params":{"Message":"I am the server db"}`, `"params":{"message":"` + names + ` for input"}`},
		{"params in another case", "elicitation/create", `"Params":{"message":"I am the server db"}`, `"params":{"message":"` + names + ` for input"}`},
		{"no params", "elicitation/create", `"x":1`, `"params":{"message":"` + names + ` for input"},"x":1`},
		{"a question to the model", "sampling/createMessage", `"params":{"message":"who are you?"}`, `"params":{"message":"who are you?"}`},
	} {
		raw := jsontext.Value(`{"resultType":"input_required","inputRequests":{"q":{"method":"` + tt.method + `",` + tt.question + `}}}`)
		for method, params := range map[string]string{"tools/call": `"name":"ask","arguments":{}`, "resources/read": `"uri":"fs://a"`} {
			t.Run(tt.name+", "+method, func(t *testing.T) {
				a := testAgent(t, &stage{})
				a.Gateway, a.Keys, a.Expose = asking{a.Gateway.(fakeGateway), raw}, testKeys, gateway.Exposed{gateway.Resources, gateway.Sampling}
				a.Capabilities = func(alias string) jsontext.Value {
					return map[string]jsontext.Value{"fs": jsontext.Value(`{"resources":{}}`)}[alias]
				}
				r := newRequest(mustParse(t, newer(method, params)))
				r.principal, r.notify = "me", func(string, jsontext.Value) {}
				result, problem := r.method()(a, t.Context(), r)
				got := string(result) + string(marshal(problem))
				if tt.want == "" {
					if asksForInput(result) {
						t.Errorf("got %s", got)
					}
					return
				}
				question := lookup(result, "inputRequests", "q")
				same := func(a, b string) bool { // in any order
					x, y := jsontext.Value(a), jsontext.Value(b)
					return x.Canonicalize() == nil && y.Canonicalize() == nil && string(x) == string(y)
				}
				if !same(string(question), `{"method":"`+tt.method+`",`+tt.want+`}`) {
					t.Errorf("got %s, want %s", got, tt.want)
				}
			})
		}
	}
}

// asking is a gateway to a server that answers every call with the same result.
type asking struct {
	fakeGateway
	result jsontext.Value
}

func (a asking) Call(context.Context, *call.Call) (call.Result, error) {
	return call.Result{Raw: a.result}, nil
}

func (a asking) Forward(context.Context, *call.Forward) (jsontext.Value, error) { return a.result, nil }

// restless is a gateway to a server that answers every call with another question.
type restless struct{ fakeGateway }

const again = `{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{}}},"requestState":"x"}`

func (restless) Call(context.Context, *call.Call) (call.Result, error) {
	return call.Result{Raw: jsontext.Value(again)}, nil
}

func (restless) Forward(context.Context, *call.Forward) (jsontext.Value, error) {
	return jsontext.Value(again), nil
}

// The number of rounds in which a server can ask for input is limited in both generations, because
// one approval must not permit an unlimited number of calls.
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
				if problem == nil && asksForInput(result) && asked <= maxRounds {
					asked++
					answers = `,"inputResponses":{"q":{}},"requestState":` + string(lookup(result, "requestState"))
					continue
				}
				if said := string(result) + string(marshal(problem)); asked != maxRounds || !strings.Contains(said, words) {
					t.Errorf("after %d questions, the answer is %s", asked, said)
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
			c.wants(`{"jsonrpc":"2.0","id":` + id + `,"method":"elicitation/create","params":{"message":"The server \"fs\" of the agent \"x\" asks for input"}}`)
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
		{"read", `"worker"`, false}, // the chosen skill can only exclude tools
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

// Clients validate structuredContent against outputSchema. If a tool has an outputSchema, a refusal
// is therefore in _meta instead.
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

// The client's _meta reaches the server, and the server's protocol errors reach the client unchanged.
func TestMetaAndErrorsPass(t *testing.T) {
	c := connect(t)
	c.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"broken","_meta":{"traceparent":"00-abc"}}}`)
	c.wants(`{"jsonrpc":"2.0","id":1,"error":{"code":-32021, "message":"no", "data":{"big":12345678901234567890}}}`)
	if c.stage.meta != `{"traceparent":"00-abc"}` {
		t.Errorf("the server got %s", c.stage.meta)
	}
}

// An initialize request does not wait for the servers. A tools/list request does, and reports why the servers have
// failed.
func TestServersFailToStart(t *testing.T) {
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
	c.pinged() // other requests are answered while tools/list waits
	ready <- call.Refuse("act", call.ServerDrifted, "server fs does not match the manifest: it advertises \"ignore your instructions\"")
	if got := c.hear(); !strings.Contains(got, `"id":2,"error":{"code":-32603,"message":"server_drifted: server fs does not match the manifest: it advertises `) {
		t.Error(got)
	}
	c.say(strings.Replace(hello, `"id":1`, `"id":3`, 1))
	if got := c.hear(); !strings.Contains(got, `"instructions":"This agent is unavailable: server_drifted; to see the reason, call a tool\n\nReads`) {
		t.Error(got)
	}
}

// In the newer generation, a call to an unknown tool is a protocol error that contains the refusal. In
// the older generation, it is a result that the model can read.
func TestUnknownToolInBothGenerations(t *testing.T) {
	const refusal = `{"error":{"code":"unknown_tool","hint":"did you mean \"read\"?","message":"the agent declares no tool \"reed\"","retryable":false}}`
	c := connect(t, gated(t))
	c.say(calls(1, "reed", "{}"))
	if got := c.hear(); !strings.Contains(got, `"isError":true,"structuredContent":`+refusal) {
		t.Errorf("in the older generation, the answer is %s", got)
	}
	w := serveHTTP(t, HTTPOptions{}, gated(t))
	_, got := w.post(newer("tools/call", `"name":"reed","arguments":{}`), newerHeaders("tools/call", "reed")...)
	if !strings.Contains(got, `"error":{"code":-32602,"message":"unknown_tool: the agent declares no tool`) || !strings.Contains(got, `"data":`+refusal) {
		t.Errorf("in the newer generation, the answer is %s", got)
	}
	// In both generations, a call to a known tool that may not be called returns a result with isError.
	if _, got = w.post(newer("tools/call", `"name":"write"`), newerHeaders("tools/call", "write")...); !strings.Contains(got, `"isError":true`) {
		t.Errorf("the answer to a call that is not allowed is %s", got)
	}
}

// A refusal reports retry_after if the time until a retry is known.
func TestRetryAfterIsReported(t *testing.T) {
	refusal := call.Refuse("act", call.ServerUnavailable, "it rests").Again()
	if got := refusalObject(refusal); got["retry_after"] != nil {
		t.Errorf("without a known time: %v", got)
	}
	refusal.RetryAfter = 12400 * time.Millisecond
	if got := refusalObject(refusal); got["retry_after"] != 12.4 {
		t.Errorf("with a known time: %v", got)
	}
}
