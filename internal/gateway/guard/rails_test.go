package guard_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard"
)

func TestTheManifestCanOnlyTighten(t *testing.T) {
	off := false
	tests := []struct {
		name     string
		operator guard.Operator
		manifest agent.Guardrails
		want     guard.Rails
	}{
		{"nothing", guard.Operator{}, agent.Guardrails{}, guard.Rails{OnLeak: "redact", OnInjection: "mark"}},
		{
			"the manifest alone",
			guard.Operator{},
			agent.Guardrails{MaxLength: 10, DenyPatterns: []string{"x"}, PII: []string{"email"}, OnLeak: "block", OnInjection: "deny", OutputSchema: "{}"},
			guard.Rails{MaxLength: 10, Input: guard.InputRules{Deny: []string{"x"}, DenyDefaults: true, PII: []string{"email"}}, OnLeak: "block", OnInjection: "deny", Schemas: []string{"{}"}},
		},
		{
			"a less strict manifest changes nothing",
			guard.Operator{Guardrails: agent.Guardrails{MaxLength: 10, DenyPatterns: []string{"x"}, PII: []string{"email"}, OnLeak: "block", OnInjection: "redact", OutputSchema: "{}"}},
			agent.Guardrails{MaxLength: 99, OnLeak: "redact", OnInjection: "mark"},
			guard.Rails{MaxLength: 10, Input: guard.InputRules{Deny: []string{"x"}, DenyDefaults: true, PII: []string{"email"}}, OnLeak: "block", OnInjection: "redact", Schemas: []string{"{}"}},
		},
		{
			"both",
			guard.Operator{Guardrails: agent.Guardrails{MaxLength: 100, DenyPatterns: []string{"x"}, PII: []string{"email"}, OutputSchema: "true"}},
			agent.Guardrails{MaxLength: 50, DenyPatterns: []string{"y", "x"}, PII: []string{"iban", "email"}, OutputSchema: "{}"},
			guard.Rails{MaxLength: 50, Input: guard.InputRules{Deny: []string{"x", "y"}, DenyDefaults: true, PII: []string{"email", "iban"}}, OnLeak: "redact", OnInjection: "mark", Schemas: []string{"true", "{}"}},
		},
		{
			"only the operator can switch the built-in patterns off",
			guard.Operator{DenyDefaults: &off},
			agent.Guardrails{DenyPatterns: []string{"y"}},
			guard.Rails{Input: guard.InputRules{Deny: []string{"y"}}, OnLeak: "redact"},
		},
		{
			"the manifest can have results searched",
			guard.Operator{DenyDefaults: &off},
			agent.Guardrails{OnInjection: "mark"},
			guard.Rails{OnLeak: "redact", OnInjection: "mark"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := guard.Merge(tt.operator, tt.manifest); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestOperatorFile(t *testing.T) {
	o, err := guard.ParseOperator("guardrails.json", []byte(`{
  "input": {"max_length": 1000, "deny_patterns": ["drop table"], "deny_defaults": true, "pii_redaction": ["email", "iban"]},
  "output": {"on_leak": "block", "schema": {"type": "object"}, "secret_leak_scan": true},
  "flow": {"mode": "deny", "strict": true, "tools": {"mail/send": "off"}, "agents": {"desk": "ask"}},
  "approval": {"tools": ["write_file"], "agents": ["desk"]}
}`))
	if err != nil {
		t.Fatal(err)
	}
	flow := guard.FlowRules{
		Mode: guard.FlowDeny, Strict: true, Tools: map[string]string{"mail/send": guard.FlowOff}, Agents: map[string]string{"desk": guard.FlowAsk},
	}
	if approval := (guard.ApprovalRules{Tools: []string{"write_file"}, Agents: []string{"desk"}}); !reflect.DeepEqual(o.Flow, flow) ||
		!reflect.DeepEqual(o.Approval, approval) {
		t.Errorf("got the rules %+v and %+v", o.Flow, o.Approval)
	}
	if o.MaxLength != 1000 || len(o.DenyPatterns) != 1 || len(o.PII) != 2 || o.OnLeak != "block" || o.OutputSchema != `{"type": "object"}` || o.DenyDefaults == nil || !*o.DenyDefaults {
		t.Errorf("got %+v", o)
	}
	if _, err := guard.ParseOperator("guardrails.json", []byte(`{}`)); err != nil {
		t.Errorf("an empty object was rejected: %v", err)
	}
}

func TestOperatorFileReportsEveryMistake(t *testing.T) {
	_, err := guard.ParseOperator("guardrails.json", []byte(`{
  "inputs": {},
  "input": {"max_length": -1, "deny_patterns": ["(", "ok", "x*"], "pii_redaction": ["e-mail", "iban", "iban"], "deny_default": true},
  "output": {"on_leak": "ignore", "schema": {"type": "objekt"}, "secret_leak_scan": false},
  "flow": {"mode": "never", "tools": ["mail"], "agents": {"desk": "sometimes"}},
  "approval": {"tools": "write_file"}
}`))
	var file *guard.FileError
	if !errors.As(err, &file) {
		t.Fatalf("got %v", err)
	}
	var at []string
	for _, d := range file.Diagnostics {
		at = append(at, d.Pointer)
	}
	for _, want := range []string{
		"/inputs", "/input/max_length", "/input/deny_patterns/0", "/input/deny_patterns/2", "/input/pii_redaction/0", "/input/pii_redaction/2",
		"/input/deny_default", "/output/on_leak", "/output/schema/type", "/output/secret_leak_scan",
		"/flow/mode", "/flow/tools", "/flow/agents/desk", "/approval/tools",
	} {
		if !strings.Contains("\n"+strings.Join(at, "\n")+"\n", "\n"+want+"\n") {
			t.Errorf("no diagnostic for %s; got %v", want, at)
		}
	}
	if !strings.Contains(err.Error(), "line 3, column ") || !strings.Contains(err.Error(), "deny_defaults") {
		t.Errorf("the message has no position or no hint:\n%v", err)
	}
	for _, bad := range []string{``, `[]`, `{"input":{},"input":{}}`, `{"input":1}`, `{} x`, `// c` + "\n{}"} {
		if _, err := guard.ParseOperator("guardrails.json", []byte(bad)); err == nil {
			t.Errorf("ParseOperator accepted %q", bad)
		}
	}
}

func TestSchemaErrorsHideValues(t *testing.T) {
	s := guard.NewSchema(`{"type":"object","required":["id"],"additionalProperties":false,"properties":{
		"id":{"type":"integer","maximum":9007199254740993},"tags":{"type":"array","items":{"type":"string","pattern":"^[a-z]+$","maxLength":5}},"kind":{"enum":["a","b"]},
		"either":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`)
	tests := []struct {
		name, value string
		want        []string
	}{
		{"fits", `{"id":1,"tags":["ab"],"kind":"a"}`, nil},
		{"exact numbers", `{"id":9007199254740993}`, nil},
		{"too large by one", `{"id":9007199254740994}`, []string{`/id is more than 9007199254740993`}},
		{"missing", `{}`, []string{` needs id`}},
		{"type", `{"id":"hunter2"}`, []string{`/id must be integer, not string`}},
		{"deep", `{"id":1,"tags":["ok","HUNTER2"]}`, []string{`/tags/1 is longer than 5 characters`, `/tags/1 does not match the pattern "^[a-z]+$"`}},
		{"unknown", `{"id":1,"hunter2":1}`, []string{` has 1 member that the schema does not allow`}},
		{"unknown words", `{"id":1,"tag":[],"what":1,"hunter2":1}`, []string{` has 3 members that the schema does not allow: tag, what`}},
		{"enum", `{"id":1,"kind":"hunter2"}`, []string{`/kind is not one of the allowed values`}},
		{"choices", `{"id":1,"either":5}`, []string{`/either matches none of the allowed alternatives`}},
		{"not JSON", `{"id":`, []string{` is not JSON`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			problems, err := s.Check(t.Context(), jsontext.Value(tt.value))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range problems {
				got = append(got, p.Pointer+" "+p.Message)
			}
			if !sameSet(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			for _, r := range []*call.Refusal{s.Input(t.Context(), jsontext.Value(tt.value)), s.Output(jsontext.Value(tt.value))} {
				if (r == nil) != (tt.want == nil) {
					t.Errorf("got the refusal %v", r)
				}
				if r != nil && strings.Contains(strings.ToLower(r.Message), "hunter2") {
					t.Errorf("the message contains the value: %s", r.Message)
				}
			}
		})
	}
}

// A value with a duplicate key at any depth does not match a schema, because parsers could read it differently.
func TestCheckedValueIsReadInOneWay(t *testing.T) {
	for value, fits := range map[string]bool{
		`{"ok":true}`:                          true,
		`{"ok":false,"ok":true}`:               false,
		`{"ok":true,"a":[{"b":1,"\u0062":2}]}`: false,
	} {
		for _, schema := range []string{`{"properties":{"ok":{"const":true}}}`, ""} {
			stopped := guard.NewSchema(schema).Output(jsontext.Value(value))
			if (stopped == nil) != (fits || schema == "") {
				t.Errorf("%s with the schema %q: got %v", value, schema, stopped)
			}
			if stopped != nil && (stopped.Code != call.OutputInvalid || stopped.Effect != call.EffectDone || !strings.Contains(stopped.Message, "duplicate key")) {
				t.Errorf("%s is refused with %+v", value, stopped)
			}
		}
	}
}

func TestSchemaWords(t *testing.T) {
	for _, tt := range []struct{ schema, value, want string }{
		{`{"const":1}`, `2`, "is not the required value"},
		{`{"minLength":2}`, `"a"`, "is shorter than 2 characters"},
		{`{"minItems":1}`, `[]`, "has fewer than 1 item"},
		{`{"maxItems":1}`, `[1,2]`, "has more than 1 item"},
		{`{"minProperties":2}`, `{"a":1}`, "has fewer than 2 members"},
		{`{"maxProperties":1}`, `{"a":1,"b":2}`, "has more than 1 member"},
		{`{"minimum":5}`, `4`, "is less than 5"},
		{`{"exclusiveMinimum":5}`, `5`, "must be more than 5"},
		{`{"exclusiveMaximum":5}`, `5`, "must be less than 5"},
		{`{"multipleOf":3}`, `4`, "is not a multiple of 3"},
		{`{"uniqueItems":true}`, `[1,1]`, "has a duplicate item"},
		{`{"properties":{"a":false}}`, `{"a":1}`, "is not allowed here"},
		{`{"oneOf":[{"type":"number"},{"type":"integer"}]}`, `1`, "does not match exactly one of the allowed alternatives"},
		{`{"not":{"type":"string"}}`, `"x"`, "matches a schema that it must not match"},
		{`{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, "needs b"},
	} {
		problems, err := guard.NewSchema(tt.schema).Check(t.Context(), jsontext.Value(tt.value))
		if err != nil || len(problems) == 0 || problems[len(problems)-1].Message != tt.want && problems[0].Message != tt.want {
			t.Errorf("%s: got the problems %v, %v", tt.schema, problems, err)
		}
	}
	many := `[` + strings.TrimSuffix(strings.Repeat(`"x",`, 100), ",") + `]`
	if problems, err := guard.NewSchema(`{"items":{"type":"number"}}`).Check(t.Context(), jsontext.Value(many)); err != nil || len(problems) >= 100 || len(problems) == 0 {
		t.Errorf("%d problems, %v", len(problems), err)
	}
}

func sameSet(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for _, x := range a {
		found := false
		for _, y := range b {
			found = found || x == y
		}
		if !found {
			return false
		}
	}
	return true
}

func TestSchemasStayAtHome(t *testing.T) {
	// A file with a valid schema exists at the address. A reference to the file must still be refused.
	file := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(file, []byte(`{"type":"object"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"an existing file": `{"$ref":` + quote("file://"+filepath.ToSlash(file)) + `}`,
		"http":             `{"$ref":"https://example.com/schema.json"}`,
		"file":             `{"$ref":"file:///etc/passwd"}`,
		"bad":              `{"type":5}`,
		"json":             `{`,
		"large":            `{"description":"` + strings.Repeat("x", 2<<20) + `"}`,
	} {
		s := guard.NewSchema(text)
		if _, err := s.Check(t.Context(), jsontext.Value(`{}`)); err == nil {
			t.Errorf("%s: Check accepted an invalid schema", name)
		}
		if in, out := s.Input(t.Context(), jsontext.Value(`{}`)), s.Output(jsontext.Value(`{}`)); in == nil || in.Code != call.InputInvalid || out == nil || out.Code != call.OutputInvalid || out.Effect != call.EffectDone {
			t.Errorf("%s: refusals %v and %v", name, in, out)
		}
	}
	if problems, err := guard.NewSchema("").Check(t.Context(), jsontext.Value(`1`)); err != nil || problems != nil {
		t.Error("an empty schema did not accept the value")
	}
	local := guard.NewSchema(`{"$defs":{"n":{"type":"integer"}},"properties":{"a":{"$ref":"#/$defs/n"}}}`)
	if problems, err := local.Check(t.Context(), jsontext.Value(`{"a":"x"}`)); err != nil || len(problems) != 1 || problems[0].Pointer != "/a" {
		t.Errorf("got the problems %v, %v", problems, err)
	}
}
