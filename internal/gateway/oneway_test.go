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

// server is a binding that always returns the same answer or error.
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

// Answers that parsers can read in several ways are refused.
func TestAnswersAreReadInOneWay(t *testing.T) {
	for name, tt := range map[string]struct {
		result call.Result
		plain  bool // set if the tool declares no schema
		code   call.Code
	}{
		"clean":              {result: call.Result{Raw: jsontext.Value(fine)}},
		"error and no error": {result: call.Result{Raw: jsontext.Value(`{"content":[],"isError":true,"isError":false}`), IsError: true}, code: call.OutputInvalid},
		"escaped":            {result: call.Result{Raw: jsontext.Value(`{"content":[],"isError":true,"isErr\u006fr":false}`), IsError: true}, code: call.OutputInvalid},
		"another case":       {result: call.Result{Raw: jsontext.Value(`{"content":[],"isError":true,"iserror":false}`), IsError: true}, code: call.OutputInvalid},
		"two structures":     {result: call.Result{Raw: jsontext.Value(`{"content":[],"structuredContent":{"ok":true},"structuredContent":{}}`)}, code: call.OutputInvalid},
		"a result that is both complete and incomplete": {
			result: call.Result{Raw: jsontext.Value(`{"resultType":"complete","resultType":"input_required","inputRequests":{"q":{"method":"sampling/createMessage"}}}`)},
			plain:  true, code: call.OutputInvalid,
		},
		"two codes": {
			result: call.Result{Raw: jsontext.Value(`{"content":[],"isError":true}`), IsError: true, Failure: jsontext.Value(`{"code":1,"code":2,"message":"no"}`)},
			code:   call.OutputInvalid,
		},
		"duplicate in the checked value": {result: call.Result{Raw: jsontext.Value(`{"content":[],"structuredContent":{"ok":true,"ok":"<script>"}}`)}, code: call.OutputInvalid},
		"duplicate in the text":          {result: call.Result{Raw: jsontext.Value(`{"content":[{"type":"text","text":"{\"ok\":true,\"ok\":1}"}]}`)}, code: call.OutputInvalid},
		"two texts":                      {result: call.Result{Raw: jsontext.Value(`{"content":[{"type":"text","text":"{\"ok\":true}","text":"{}"}]}`)}, code: call.OutputInvalid},
		"duplicate in an unused member":  {result: call.Result{Raw: jsontext.Value(`{"content":[{"type":"odd","a":1,"a":2}]}`)}, plain: true},
	} {
		t.Run(name, func(t *testing.T) {
			a := railed(agent.Guardrails{})
			// The schema accepts every value, so an answer can be refused only because it is ambiguous.
			if a.Tools[0].OutputSchema = `{"properties":{"ok":{}}}`; tt.plain {
				a.Tools[0].OutputSchema = ""
			}
			g := New(a, Options{Binding: &server{result: tt.result}, Store: open(t, statetest.Open(t))})
			result, err := g.Call(t.Context(), &call.Call{Tool: "tell", Principal: "me"})
			if codeOf(err) != tt.code || (err == nil) != (tt.code == "") || tt.code != "" && result.Raw != nil {
				t.Errorf("the call ended with %v and %s", err, result.Raw)
			}
			if stopped, ok := errors.AsType[*call.Refusal](err); ok && stopped.Effect != call.EffectDone {
				t.Errorf("the refusal has effect %s, want %s", stopped.Effect, call.EffectDone)
			}
		})
	}
}

// A forwarded request is refused if its params or its answer are ambiguous, that is, if parsers can read them in
// several ways. Ambiguous notifications and requests from a server are refused too.
func TestForwardIsReadInOneWay(t *testing.T) {
	for name, tt := range map[string]struct {
		params, answer string
		stopped        error
		code           call.Code
	}{
		"clean":                  {params: `{"uri":"a"}`, answer: `{"contents":[]}`},
		"two URIs":               {params: `{"uri":"a","uri":"b"}`, answer: `{}`, code: call.InputInvalid},
		"two nested URIs":        {params: `{"ref":{"uri":"a","\u0075ri":"b"}}`, answer: `{}`, code: call.InputInvalid},
		"not an object":          {params: `[1]`, answer: `{}`, code: call.InputInvalid},
		"two result types":       {params: `{"uri":"a"}`, answer: `{"resultType":"complete","resultType":"input_required"}`, code: call.OutputInvalid},
		"two error messages":     {params: `{"uri":"a"}`, stopped: &call.Answer{Raw: jsontext.Value(`{"code":1,"message":"a","message":"b"}`)}, code: call.OutputInvalid},
		"an error of the server": {params: `{"uri":"a"}`, stopped: &call.Answer{Raw: jsontext.Value(`{"code":1,"message":"a"}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{answer: jsontext.Value(tt.answer), stopped: tt.stopped}
			g := New(railed(agent.Guardrails{}), Options{Binding: s, Store: open(t, statetest.Open(t)), Expose: Exposed{Resources}})
			_, err := g.Forward(t.Context(), &call.Forward{Server: "s", Method: "resources/read", Params: jsontext.Value(tt.params), Principal: "me"})
			if codeOf(err) != tt.code || (len(s.asked) == 0) != (tt.code == call.InputInvalid) {
				t.Errorf("the request ended with %v, and the server got the params %q", err, s.asked)
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
	w.guardNotify(t.Context(), tell, discardIn)("notifications/progress", twice)
	if _, err := w.client(t.Context(), &call.Client{Asker: e}, discardIn).Asker.Ask(t.Context(), "elicitation/create", twice); codeOf(err) != call.OutputInvalid {
		t.Errorf("the server's request ended with %v", err)
	}
	if e.heard != nil {
		t.Errorf("the client received %q", e.heard)
	}
}

// An error from a binding may quote a server. Credentials in the error are removed for the caller
// and the journal.
func TestRefusalsAreScanned(t *testing.T) {
	quoted := `server s went away during the call: HTTP status 500: "{\"tokens\":[\"` + leaked + `\",\"` + held + `\"]}"`
	redacted := `server s went away during the call: HTTP status 500: "{\"tokens\":[\"[secret:github-pat]\",\"[secret:token]\"]}"`
	for name, tt := range map[string]struct {
		onLeak  agent.OnLeak
		stopped error
		want    string
	}{
		"redacted":   {"", call.Refuse(stageAct, call.ServerUnavailable, "%s", quoted), redacted},
		"no refusal": {"", errors.New(quoted), redacted},
		"withheld":   {agent.LeakBlock, call.Refuse(stageAct, call.ServerUnavailable, "%s", quoted), withheld},
		"no secret":  {agent.LeakBlock, call.Refuse(stageAct, call.ServerUnavailable, "no \xff luck"), "no \xff luck"},
	} {
		t.Run(name, func(t *testing.T) {
			if r, ok := tt.stopped.(*call.Refusal); ok {
				r.Hint = r.Message
			}
			s := &server{stopped: tt.stopped, wait: make(chan struct{})}
			g := New(railed(agent.Guardrails{OnLeak: tt.onLeak}), Options{
				Binding: s, Store: open(t, statetest.Open(t)), Expose: Exposed{Resources},
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
				t.Errorf("the call ended with %v", err)
			}
			close(s.wait)
			g.Close() // wait until the late answer is recorded
			_, err := g.Call(t.Context(), &call.Call{Tool: "tell", Principal: "me"})
			check("the call", err)
			_, err = g.Forward(t.Context(), &call.Forward{Server: "s", Method: "resources/read", Params: jsontext.Value(`{"uri":"a"}`), Principal: "me"})
			check("the request", err)
			var text strings.Builder
			if err := g.store.Journal.Export(t.Context(), &text); err != nil {
				t.Fatal(err)
			}
			if said := text.String(); strings.Contains(said, leaked) || strings.Contains(said, held) || !strings.Contains(said, `"server_unavailable"`) {
				t.Errorf("the journal contains %s", said)
			}
		})
	}
}

// If the guardrails or an earlier check stop a call, the journal contains no personal data from the
// call.
func TestRefusedCallsAreImpersonal(t *testing.T) {
	g := New(railed(agent.Guardrails{PII: []string{"email"}, DenyPatterns: []string{"xyzzy"}}), Options{Binding: &server{}, Store: open(t, statetest.Open(t))})
	for tool, code := range map[string]call.Code{"nosuch": call.UnknownTool, "tell": call.DeniedPattern} {
		_, err := g.Call(t.Context(), &call.Call{Tool: tool, Principal: "me", Arguments: jsontext.Value(`{"text":"write xyzzy to ada@example.com"}`)})
		if codeOf(err) != code {
			t.Errorf("%s ended with %v", tool, err)
		}
	}
	entries, err := g.store.Journal.Show(t.Context(), journal.Filter{})
	if err != nil || len(entries) != 2 {
		t.Fatalf("the journal has %+v, %v", entries, err)
	}
	for _, e := range entries {
		if string(e.Arguments) != `{"text":"write xyzzy to [email]"}` {
			t.Errorf("the record of the %s refusal has the arguments %s", e.Code, e.Arguments)
		}
	}
}

// A credential that is stored while a call runs is not in the journal, although the intent described the same arguments.
func TestArgumentsAreScannedAgain(t *testing.T) {
	m := &mouth{says: fine}
	g := New(railed(agent.Guardrails{}), Options{Binding: m, Store: open(t, statetest.Open(t)), Known: func() ([]guard.Known, error) {
		if m.heard == "" {
			return nil, nil
		}
		return []guard.Known{{Name: "token", Value: held}}, nil
	}})
	if _, err := g.Call(t.Context(), &call.Call{Tool: "tell", Principal: "me", Arguments: jsontext.Value(`{"text":"` + held + `"}`)}); err != nil {
		t.Fatal(err)
	}
	entries, err := g.store.Journal.Show(t.Context(), journal.Filter{})
	if err != nil || len(entries) != 1 || strings.Contains(string(entries[0].Arguments), held) {
		t.Errorf("the journal has %+v, %v", entries, err)
	}
}

// hinted is an error that has a hint of its own.
type hinted struct{ error }

func (hinted) Hint() string { return "fix it" }

// If the known secrets cannot be read, the messages of errors are withheld.
func TestRefusalsWithoutAVault(t *testing.T) {
	broken := errors.New("the vault cannot be opened")
	if hint := hintOf(errors.Join(broken, hinted{broken})); hint != "fix it" {
		t.Errorf("the hint is %q, want the error's own", hint)
	}
	for name, s := range map[string]*server{
		"a refusal": {stopped: call.Refuse(stageAct, call.ServerUnavailable, "HTTP status 500: %s", held)},
		"an answer": {result: call.Result{Raw: jsontext.Value(`{"content":[{"type":"text","text":"` + held + `"}]}`)}},
	} {
		g := New(railed(agent.Guardrails{}), Options{Binding: s, Store: open(t, statetest.Open(t)), Known: func() ([]guard.Known, error) { return nil, broken }})
		_, err := g.Call(t.Context(), &call.Call{Tool: "tell", Principal: "me"})
		r, ok := errors.AsType[*call.Refusal](err)
		if !ok || !strings.HasSuffix(r.Message, ": "+broken.Error()) || r.Hint != vaultHint || strings.Contains(r.Message, held) {
			t.Errorf("%s ended with %#v", name, err)
		}
	}
}

// A call cannot be approved if it has inputResponses that no server requested. The approver would not see these
// responses.
func TestUnaskedAnswersAreNotApproved(t *testing.T) {
	g := New(careful(), Options{Binding: &server{result: call.Result{Raw: jsontext.Value(fine)}}, Store: open(t, statetest.Open(t)), Approvals: Approvals{TTL: time.Millisecond}})
	unasked := &call.Call{Tool: "do_asked", Principal: "me", More: jsontext.Value(`{"inputResponses":{"q":{"action":"accept"}}}`)}
	if _, err := g.Call(t.Context(), unasked); codeOf(err) != call.InputInvalid {
		t.Errorf("the call ended with %v", err)
	}
	if list, err := approval.List(t.Context(), g.store, time.Now()); err != nil || len(list) != 0 {
		t.Errorf("an approval is pending: %+v, %v", list, err)
	}
	// If the server requested a response, the response belongs to a call that a person has already approved.
	asked := *unasked
	asked.ID, asked.Continues = "", NewID()
	if _, err := g.Call(t.Context(), &asked); err != nil {
		t.Errorf("the call ended with %v", err)
	}
}
