package gateway

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// server is a binding with a given answer.
type server struct {
	result  call.Result
	answer  jsontext.Value
	stopped error
	asked   []string
	wait    chan struct{}
}

func (s *server) Act(context.Context, *agent.Tool, *call.Call) (call.Result, error) {
	if s.wait != nil {
		<-s.wait
	}
	return s.result, s.stopped
}

func (s *server) Forward(_ context.Context, f *call.Forward) (jsontext.Value, error) {
	s.asked = append(s.asked, string(f.Params))
	return s.answer, s.stopped
}

// Ambiguous answers are refused.
func TestAnswersAreReadInOneWay(t *testing.T) {
	for name, tt := range map[string]struct {
		result call.Result
		plain  bool // the tool declares no schema
		code   call.Code
	}{
		"clean":             {result: call.Result{Raw: jsontext.Value(fine)}},
		"an error, and not": {result: call.Result{Raw: jsontext.Value(`{"content":[],"isError":true,"isError":false}`), IsError: true}, code: call.OutputInvalid},
		"escaped":           {result: call.Result{Raw: jsontext.Value(`{"content":[],"isError":true,"isErr\u006fr":false}`), IsError: true}, code: call.OutputInvalid},
		"another case":      {result: call.Result{Raw: jsontext.Value(`{"content":[],"isError":true,"iserror":false}`), IsError: true}, code: call.OutputInvalid},
		"two structures":    {result: call.Result{Raw: jsontext.Value(`{"content":[],"structuredContent":{"ok":true},"structuredContent":{}}`)}, code: call.OutputInvalid},
		"complete, and not": {
			result: call.Result{Raw: jsontext.Value(`{"resultType":"complete","resultType":"input_required","inputRequests":{"q":{"method":"sampling/createMessage"}}}`)},
			plain:  true, code: call.OutputInvalid,
		},
		"two codes": {
			result: call.Result{Raw: jsontext.Value(`{"content":[],"isError":true}`), IsError: true, Failure: jsontext.Value(`{"code":1,"code":2,"message":"no"}`)},
			code:   call.OutputInvalid,
		},
		"twice in what is checked":  {result: call.Result{Raw: jsontext.Value(`{"content":[],"structuredContent":{"ok":true,"ok":"<script>"}}`)}, code: call.OutputInvalid},
		"twice in the text":         {result: call.Result{Raw: jsontext.Value(`{"content":[{"type":"text","text":"{\"ok\":true,\"ok\":1}"}]}`)}, code: call.OutputInvalid},
		"two texts":                 {result: call.Result{Raw: jsontext.Value(`{"content":[{"type":"text","text":"{\"ok\":true}","text":"{}"}]}`)}, code: call.OutputInvalid},
		"twice in an unused member": {result: call.Result{Raw: jsontext.Value(`{"content":[{"type":"odd","a":1,"a":2}]}`)}, plain: true},
	} {
		t.Run(name, func(t *testing.T) {
			a := railed(agent.Guardrails{})
			// It takes everything, so that it refuses none of them by what they are.
			if a.Tools[0].OutputSchema = `{"properties":{"ok":{}}}`; tt.plain {
				a.Tools[0].OutputSchema = ""
			}
			g := New(a, Options{Binding: &server{result: tt.result}, Books: open(t, statetest.Open(t))})
			result, err := g.Call(t.Context(), &call.Call{Tool: "tell", Principal: "me"})
			if codeOf(err) != tt.code || (err == nil) != (tt.code == "") || tt.code != "" && result.Raw != nil {
				t.Errorf("it ended with %v and %s", err, result.Raw)
			}
			if stopped, ok := errors.AsType[*call.Refusal](err); ok && stopped.Effect != call.EffectDone {
				t.Errorf("its effect is %s", stopped.Effect)
			}
		})
	}
}

// The same holds for what is no call, in both directions, and for what a server
// says meanwhile.
func TestForwardIsReadInOneWay(t *testing.T) {
	for name, tt := range map[string]struct {
		params, answer string
		stopped        error
		code           call.Code
	}{
		"clean":               {params: `{"uri":"a"}`, answer: `{"contents":[]}`},
		"two places":          {params: `{"uri":"a","uri":"b"}`, answer: `{}`, code: call.InputInvalid},
		"two places inside":   {params: `{"ref":{"uri":"a","\u0075ri":"b"}}`, answer: `{}`, code: call.InputInvalid},
		"no object":           {params: `[1]`, answer: `{}`, code: call.InputInvalid},
		"an answer twice":     {params: `{"uri":"a"}`, answer: `{"resultType":"complete","resultType":"input_required"}`, code: call.OutputInvalid},
		"an error with two":   {params: `{"uri":"a"}`, stopped: &call.Answer{Raw: jsontext.Value(`{"code":1,"message":"a","message":"b"}`)}, code: call.OutputInvalid},
		"an error of its own": {params: `{"uri":"a"}`, stopped: &call.Answer{Raw: jsontext.Value(`{"code":1,"message":"a"}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{answer: jsontext.Value(tt.answer), stopped: tt.stopped}
			g := New(railed(agent.Guardrails{}), Options{Binding: s, Books: open(t, statetest.Open(t)), Expose: Exposed{Resources}})
			_, err := g.Forward(t.Context(), &call.Forward{Server: "s", Method: "resources/read", Params: jsontext.Value(tt.params), Principal: "me"})
			if codeOf(err) != tt.code || (len(s.asked) == 0) != (tt.code == call.InputInvalid) {
				t.Errorf("it ended with %v, and the server was asked %q", err, s.asked)
			}
			entries, err := g.store.Journal.Show(t.Context(), journal.Filter{})
			if err != nil || len(entries) != 1 || entries[0].Code != string(tt.code) || entries[0].ArgumentsSize != len(tt.params) {
				t.Errorf("the journal has %+v, %v", entries, err)
			}
		})
	}
	w := newGuards(railed(agent.Guardrails{}), Options{})
	e := &ear{}
	tell := func(_ string, params jsontext.Value) { e.heard = append(e.heard, string(params)) }
	twice := jsontext.Value(`{"message":"a","message":"b"}`)
	w.hear(tell)("notifications/progress", twice)
	if _, err := w.client(&call.Client{Asker: e}).Asker.Ask(t.Context(), "elicitation/create", twice); codeOf(err) != call.OutputInvalid {
		t.Errorf("the question ended with %v", err)
	}
	if e.heard != nil {
		t.Errorf("it heard %q", e.heard)
	}
}

// The error of a binding may quote a server: credentials in it reach neither the caller
// nor the journal.
func TestRefusalsAreScanned(t *testing.T) {
	quoted := `server s went away during the call: HTTP status 500: "{\"tokens\":[\"` + leaked + `\",\"` + held + `\"]}"`
	redacted := `server s went away during the call: HTTP status 500: "{\"tokens\":[\"[secret:github-pat]\",\"[secret:token]\"]}"`
	for name, tt := range map[string]struct {
		onLeak  agent.OnLeak
		stopped error
		want    string
	}{
		"redacted":       {"", call.Refuse(stageAct, call.ServerUnavailable, "%s", quoted), redacted},
		"no refusal":     {"", errors.New(quoted), redacted},
		"withheld":       {agent.LeakBlock, call.Refuse(stageAct, call.ServerUnavailable, "%s", quoted), withheld},
		"nothing to see": {agent.LeakBlock, call.Refuse(stageAct, call.ServerUnavailable, "no \xff luck"), "no \xff luck"},
	} {
		t.Run(name, func(t *testing.T) {
			if r, ok := tt.stopped.(*call.Refusal); ok {
				r.Hint = r.Message
			}
			s := &server{stopped: tt.stopped, wait: make(chan struct{})}
			g := New(railed(agent.Guardrails{OnLeak: tt.onLeak}), Options{
				Binding: s, Books: open(t, statetest.Open(t)), Expose: Exposed{Resources},
				Known: func() ([]guard.Known, error) { return []guard.Known{{Name: "token", Value: held}}, nil },
			})
			check := func(what string, err error) {
				t.Helper()
				r, ok := errors.AsType[*call.Refusal](err)
				if _, refused := tt.stopped.(*call.Refusal); !ok || r.Message != tt.want || refused && r.Hint != tt.want {
					t.Errorf("%s ended with %#v", what, err)
				}
			}
			if _, err := g.Call(t.Context(), &call.Call{Tool: "tell", Principal: "me", Timeout: time.Millisecond}); codeOf(err) != call.TimedOut {
				t.Errorf("it ended with %v", err)
			}
			close(s.wait)
			g.Close() // the late answer is recorded
			_, err := g.Call(t.Context(), &call.Call{Tool: "tell", Principal: "me"})
			check("the call", err)
			_, err = g.Forward(t.Context(), &call.Forward{Server: "s", Method: "resources/read", Params: jsontext.Value(`{"uri":"a"}`), Principal: "me"})
			check("the request", err)
			var text strings.Builder
			if err := g.store.Journal.Export(t.Context(), &text); err != nil {
				t.Fatal(err)
			}
			if said := text.String(); strings.Contains(said, leaked) || strings.Contains(said, held) || !strings.Contains(said, `"server_unavailable"`) {
				t.Errorf("the journal says %s", said)
			}
		})
	}
}

// Personal data is not journaled either for a call that stopped before the guardrails, or
// at them.
func TestRefusedCallsAreImpersonal(t *testing.T) {
	g := New(railed(agent.Guardrails{PII: []string{"email"}, DenyPatterns: []string{"xyzzy"}}), Options{Binding: &server{}, Books: open(t, statetest.Open(t))})
	for tool, code := range map[string]call.Code{"nosuch": call.UnknownTool, "tell": call.DeniedPattern} {
		_, err := g.Call(t.Context(), &call.Call{Tool: tool, Principal: "me", Arguments: jsontext.Value(`{"text":"write xyzzy to ada@example.com"}`)})
		if codeOf(err) != code {
			t.Errorf("%s ended with %v", tool, err)
		}
	}
	entries, err := g.store.Journal.Show(t.Context(), journal.Filter{})
	if err != nil || len(entries) != 2 {
		t.Fatalf("%+v, %v", entries, err)
	}
	for _, e := range entries {
		if string(e.Arguments) != `{"text":"write xyzzy to [email]"}` {
			t.Errorf("%s is journaled with %s", e.Code, e.Arguments)
		}
	}
}

// If the known secrets cannot be read, errors are withheld.
func TestRefusalsWithoutAVault(t *testing.T) {
	broken := errors.New("the vault cannot be opened")
	for name, s := range map[string]*server{
		"a refusal": {stopped: call.Refuse(stageAct, call.ServerUnavailable, "HTTP status 500: %s", held)},
		"an answer": {result: call.Result{Raw: jsontext.Value(`{"content":[{"type":"text","text":"` + held + `"}]}`)}},
	} {
		g := New(railed(agent.Guardrails{}), Options{Binding: s, Books: open(t, statetest.Open(t)), Known: func() ([]guard.Known, error) { return nil, broken }})
		_, err := g.Call(t.Context(), &call.Call{Tool: "tell", Principal: "me"})
		r, ok := errors.AsType[*call.Refusal](err)
		if !ok || !strings.HasSuffix(r.Message, ": "+broken.Error()) || r.Hint != vaultHint || strings.Contains(r.Message, held) {
			t.Errorf("%s ended with %#v", name, err)
		}
	}
}

// A person approves what is shown: a call with unrequested inputResponses cannot be
// approved.
func TestUnaskedAnswersAreNotApproved(t *testing.T) {
	g := New(careful(), Options{Binding: &server{result: call.Result{Raw: jsontext.Value(fine)}}, Books: open(t, statetest.Open(t)), Approvals: Approvals{TTL: time.Millisecond}})
	unasked := &call.Call{Tool: "do_asked", Principal: "me", More: jsontext.Value(`{"inputResponses":{"q":{"action":"accept"}}}`)}
	if _, err := g.Call(t.Context(), unasked); codeOf(err) != call.InputInvalid {
		t.Errorf("it ended with %v", err)
	}
	if list, err := approval.List(t.Context(), g.store, time.Now()); err != nil || len(list) != 0 {
		t.Errorf("a person is asked %+v, %v", list, err)
	}
	// The answer to a question of the server's is part of the call that was approved.
	asked := *unasked
	asked.ID, asked.Continues = "", NewID()
	if _, err := g.Call(t.Context(), &asked); err != nil {
		t.Errorf("it ended with %v", err)
	}
}
