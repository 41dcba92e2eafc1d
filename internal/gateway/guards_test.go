package gateway

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// leaked is a made-up credential in a well-known format.
var leaked = "ghp" + "_x7Kd92LmQp4RtVz8Wb3Ns6Yc1Hf5Jg0AeUoI"

// held is a credential in no known format. ambit finds it only because it is stored.
const held = "correct horse battery staple"

// mouth is a binding that answers each call with the text in its field says. It records the arguments of the calls.
type mouth struct {
	heard string
	says  string
	wait  chan struct{}
}

func (m *mouth) Act(_ context.Context, _ *agent.Tool, c *call.Call) (call.Result, error) {
	m.heard = string(c.Arguments)
	if m.wait != nil {
		<-m.wait
	}
	return call.Result{Raw: jsontext.Value(m.says)}, nil
}

// railed returns an agent with the given guardrails and one tool.
func railed(rails agent.Guardrails) *agent.Agent {
	return &agent.Agent{
		Name: "Railed", ID: "railed", Digest: "sha256:r", Guardrails: rails,
		Tools: []agent.Tool{{
			Name: "tell", SideEffect: agent.Write, Binding: agent.OnServer{Alias: "s"},
			InputSchema:  `{"type":"object","properties":{"n":{"type":"integer"}}}`,
			OutputSchema: `{"type":"object","required":["ok"]}`,
		}},
		Servers: []agent.Server{{Alias: "s"}},
	}
}

const fine = `{"content":[],"structuredContent":{"ok":true}}`

func saying(s string) string {
	b, err := jsontext.AppendQuote(nil, s)
	if err != nil {
		panic(err)
	}
	return `{"content":[{"type":"text","text":` + string(b) + `}],"structuredContent":{"ok":true}}`
}

func TestGuards(t *testing.T) {
	tests := []struct {
		name, args, says string
		rails            agent.Guardrails
		operator         guard.Operator
		code             call.Code
		heard, outcome   string // what the binding and the caller get; not checked if empty
		detail           string // the detail in the journal record; not checked if empty
	}{
		{name: "clean", args: `{"n":1}`, says: fine, heard: `{"n":1}`, outcome: fine},
		{name: "schema", args: `{"n":"x"}`, says: fine, code: call.InputInvalid},
		{name: "too long", args: `{"s":"` + strings.Repeat("x", 50) + `"}`, says: fine, rails: agent.Guardrails{MaxLength: 20}, code: call.InputTooLong},
		{name: "operator's cap", args: `{"s":"` + strings.Repeat("x", 50) + `"}`, says: fine, rails: agent.Guardrails{MaxLength: 100}, operator: guard.Operator{Guardrails: agent.Guardrails{MaxLength: 20}}, code: call.InputTooLong},
		{name: "denied", args: `{"s":"please DROP TABLE users"}`, says: fine, rails: agent.Guardrails{DenyPatterns: []string{"(?i)drop table"}}, code: call.DeniedPattern},
		{name: "personal", args: `{"to":"bob@example.com","n":3}`, says: fine, rails: agent.Guardrails{PII: []string{"email"}}, heard: `{"to":"[email]","n":3}`, outcome: fine, detail: "pii email at /to"},
		{
			name: "personal result", args: `{}`, says: saying("write to bob@example.com"), outcome: saying("write to [email]"),
			rails: agent.Guardrails{PII: []string{"email"}, OnResult: agent.ResultRedact}, detail: "pii email at /content/0/text",
		},
		{name: "personal result kept", args: `{}`, says: saying("write to bob@example.com"), outcome: saying("write to bob@example.com"), rails: agent.Guardrails{PII: []string{"email"}}},
		{name: "secret", args: `{}`, says: saying("the key is " + leaked), outcome: saying("the key is [secret:github-pat]"), detail: "secret github-pat at /content/0/text"},
		{name: "secret blocked", args: `{}`, says: saying("the key is " + leaked), rails: agent.Guardrails{OnLeak: "block"}, code: call.SecretLeak},
		{name: "held", args: `{}`, says: saying("it is " + held), outcome: saying("it is [secret:token]"), detail: "secret token at /content/0/text"},
		{name: "shape", args: `{}`, says: `{"content":[],"structuredContent":{}}`, code: call.OutputInvalid},
		{name: "operator's shape", args: `{}`, says: fine, operator: guard.Operator{Guardrails: agent.Guardrails{OutputSchema: `{"required":["more"]}`}}, code: call.OutputInvalid},
		{name: "not JSON", args: `{}`, says: `{"content":`, code: call.OutputInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := &mouth{says: tt.says}
			g := New(railed(tt.rails), Options{
				Binding: m, Store: open(t, statetest.Open(t)), Operator: tt.operator,
				Known: func() ([]guard.Known, error) { return []guard.Known{{Name: "token", Value: held}}, nil },
			})
			result, err := g.Call(t.Context(), &call.Call{Tool: "tell", Arguments: jsontext.Value(tt.args), Principal: "me"})
			if codeOf(err) != tt.code || tt.code == "" && err != nil {
				t.Errorf("the call ended with %v", err)
			}
			if tt.heard != "" && m.heard != tt.heard {
				t.Errorf("the binding got %s, want %s", m.heard, tt.heard)
			}
			if tt.outcome != "" && string(result.Raw) != tt.outcome {
				t.Errorf("the caller got %s, want %s", result.Raw, tt.outcome)
			}
			if tt.code != "" && result.Raw != nil {
				t.Errorf("a refused call returned the result %s", result.Raw)
			}
			entries, err := g.store.Journal.Show(t.Context(), journal.Filter{})
			if err != nil || len(entries) != 1 {
				t.Fatalf("%d records: %v", len(entries), err)
			}
			if tt.detail != "" && entries[0].Detail != tt.detail {
				t.Errorf("the journal has the detail %q, want %q", entries[0].Detail, tt.detail)
			}
			said := string(entries[0].Arguments) + entries[0].Detail
			for _, secret := range []string{leaked, held, "bob@example.com"} {
				if strings.Contains(said, secret) && tt.name != "clean" {
					t.Errorf("the journal contains a secret or personal data: %s", said)
				}
			}
		})
	}
}

// TestCredentialsChange checks that every scan finds the credentials that exist at that moment, even if earlier scans
// looked for other credentials.
func TestCredentialsChange(t *testing.T) {
	var now []guard.Known
	m := &mouth{}
	g := New(railed(agent.Guardrails{}), Options{
		Binding: m, Store: open(t, statetest.Open(t)),
		Known: func() ([]guard.Known, error) { return now, nil },
	})
	first, second := guard.Known{Name: "token", Value: "first-value-7421"}, guard.Known{Name: "token", Value: "second-value-8532"}
	for _, now = range [][]guard.Known{nil, {first}, {second}, {first, second}, {second, first}} {
		for _, k := range append(now, guard.Known{Value: "no value of ours"}) {
			m.says = saying("it is " + k.Value)
			result, err := g.Call(t.Context(), &call.Call{Tool: "tell", Principal: "me"})
			if err != nil {
				t.Fatal(err)
			}
			if outcome := strings.Contains(string(result.Raw), k.Value); outcome != (k.Name == "") {
				t.Errorf("with %v known, the caller got %s", now, result.Raw)
			}
		}
	}
}

// TestScanFails checks that a result is withheld if the known credentials cannot be read.
func TestScanFails(t *testing.T) {
	g := New(railed(agent.Guardrails{}), Options{
		Binding: &mouth{says: fine}, Store: open(t, statetest.Open(t)),
		Known: func() ([]guard.Known, error) { return nil, errors.New("the vault is broken") },
	})
	result, err := g.Call(t.Context(), &call.Call{Tool: "tell", Principal: "me"})
	if codeOf(err) != call.SecretLeak || result.Raw != nil {
		t.Errorf("the call ended with %v and %s", err, result.Raw)
	}
}

// TestLateAnswerIsScanned checks that a late answer is stored without its secrets, and returned to a repeated call
// with the same key.
func TestLateAnswerIsScanned(t *testing.T) {
	m := &mouth{says: saying("the key is " + leaked), wait: make(chan struct{})}
	g := New(railed(agent.Guardrails{}), Options{Binding: m, Store: open(t, statetest.Open(t))})
	ask := func() (call.Result, error) {
		return g.Call(t.Context(), &call.Call{Tool: "tell", Principal: "me", IdempotencyKey: "k", Timeout: time.Millisecond})
	}
	if _, err := ask(); codeOf(err) != call.TimedOut {
		t.Fatal(err)
	}
	close(m.wait)
	g.Close()
	result, err := ask()
	if err != nil || !strings.Contains(string(result.Raw), "[secret:github-pat]") || strings.Contains(string(result.Raw), leaked) {
		t.Errorf("the late answer is %s, %v", result.Raw, err)
	}
}

// chatty is a binding whose server puts a text in its notifications, its request to the client and its failure.
type chatty struct {
	says  string
	asked jsontext.Value
}

func (b *chatty) Act(ctx context.Context, t *agent.Tool, c *call.Call) (call.Result, error) {
	leak := jsontext.Value(`{"message":"it is ` + b.says + `"}`)
	c.OnNotify("notifications/progress", leak)
	c.Client.Notify("notifications/message", leak)
	answer, err := c.Client.Asker.Ask(ctx, "elicitation/create", leak)
	if err != nil {
		return call.Result{}, err
	}
	b.asked = answer
	return call.Result{Raw: jsontext.Value(`{"content":[],"isError":true}`), IsError: true, Failure: leak}, nil
}

// ear is a client that records what it receives.
type ear struct{ heard []string }

func (e *ear) Ask(_ context.Context, _ string, params jsontext.Value) (jsontext.Value, error) {
	e.heard = append(e.heard, string(params))
	return jsontext.Value(`{}`), nil
}

// TestNothingIsSaidUnscanned checks that a secret is redacted in everything that a server sends to a client besides
// results: notifications, requests and failures.
func TestNothingIsSaidUnscanned(t *testing.T) {
	saysOnly(t, agent.Guardrails{}, leaked, `{"message":"it is [secret:github-pat]"}`)
}

// TestPersonalDataOfServers checks the same messages for personal data, which is redacted only if the guardrails say
// so.
func TestPersonalDataOfServers(t *testing.T) {
	rails := agent.Guardrails{PII: []string{"phone"}}
	saysOnly(t, rails, "+49 30 901820", `{"message":"it is +49 30 901820"}`)
	rails.OnResult = agent.ResultRedact
	saysOnly(t, rails, "+49 30 901820", `{"message":"it is [phone]"}`)
}

// saysOnly checks that a client receives only the given message from a server.
func saysOnly(t *testing.T, rails agent.Guardrails, says, want string) {
	t.Helper()
	e := &ear{}
	tell := func(_ string, params jsontext.Value) { e.heard = append(e.heard, string(params)) }
	g := New(railed(rails), Options{Binding: &chatty{says: says}, Store: open(t, statetest.Open(t))})
	result, err := g.Call(t.Context(), &call.Call{Tool: "tell", Principal: "me", OnNotify: tell, Client: &call.Client{Notify: tell, Asker: e}})
	if err != nil {
		t.Fatal(err)
	}
	e.heard = append(e.heard, string(result.Failure))
	if len(e.heard) != 4 {
		t.Errorf("the client received %d messages, want 4: %q", len(e.heard), e.heard)
	}
	for _, h := range e.heard {
		if h != want {
			t.Errorf("the client received %s, want %s", h, want)
		}
	}
}

// TestJournalHoldsNoCredential puts credentials in every field of a call that a caller controls.
func TestJournalHoldsNoCredential(t *testing.T) {
	g := New(railed(agent.Guardrails{}), Options{
		Binding: &mouth{says: fine}, Store: open(t, statetest.Open(t)),
		Known: func() ([]guard.Known, error) { return []guard.Known{{Name: "token", Value: held}}, nil },
	})
	for _, c := range []call.Call{
		{Tool: "tell", Arguments: jsontext.Value(`{"a":"` + held + `","` + held + `":1}`)},
		{Tool: "tell", Arguments: jsontext.Value(`{"` + leaked + `":"` + leaked + `"}`)},
		{Tool: leaked},
	} {
		c.Principal = "me"
		_, _ = g.Call(t.Context(), &c)
	}
	var text strings.Builder
	if err := g.store.Journal.Export(t.Context(), &text); err != nil {
		t.Fatal(err)
	}
	if s := text.String(); strings.Contains(s, held) || strings.Contains(s, leaked) || strings.Count(s, `"tool"`) != 3 {
		t.Errorf("the journal contains %s", s)
	}
}

// TestRailsHoldBesideTheArguments checks that deny patterns also apply to the metadata and the further params of a
// call.
func TestRailsHoldBesideTheArguments(t *testing.T) {
	g := New(railed(agent.Guardrails{DenyPatterns: []string{"(?i)drop table"}}), Options{Binding: &mouth{says: fine}, Store: open(t, statetest.Open(t))})
	for _, c := range []*call.Call{
		{Tool: "tell", Meta: jsontext.Value(`{"a":"DROP TABLE x"}`)},
		{Tool: "tell", More: jsontext.Value(`{"inputResponses":{"a":"DROP TABLE x"}}`)},
	} {
		c.Principal = "me"
		if _, err := g.Call(t.Context(), c); codeOf(err) != call.DeniedPattern {
			t.Errorf("the call ended with %v", err)
		}
	}
}
