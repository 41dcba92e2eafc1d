package gateway

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/gateway/policy"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// shelf is a server with resources that no manifest declares. It records the params of the requests it gets.
type shelf struct {
	absent
	asked []string
}

func (s *shelf) Forward(_ context.Context, f *call.Forward) (jsontext.Value, error) {
	s.asked = append(s.asked, string(f.Params))
	return jsontext.Value(`{"contents":[]}`), nil
}

// Forwarded requests pass the guardrails, count towards the quota and are journaled.
func TestForward(t *testing.T) {
	tests := []struct {
		name, method, params string
		code                 call.Code
		asked                string // params that the server gets
		kept                 string // arguments in the journal
	}{
		{"plain", "resources/read", `{"uri":"file:///a"}`, "", `{"uri":"file:///a"}`, `{"uri":"file:///a"}`},
		{"a list", "resources/list", ``, "", ``, ``},
		{"unsubscribe", "resources/unsubscribe", `{"uri":"file:///a"}`, "", `{"uri":"file:///a"}`, `{"uri":"file:///a"}`},
		{"not exposed", "prompts/get", `{"name":"a"}`, call.PolicyDenied, "", `{"name":"a"}`},
		{"personal", "resources/read", `{"uri":"mail:bob@example.com"}`, "", `{"uri":"mail:[email]"}`, `{"uri":"mail:[email]"}`},
		{"denied", "resources/read", `{"uri":"drop table"}`, call.DeniedPattern, "", `{"uri":"drop table"}`},
		{"too long", "resources/read", `{"uri":"` + strings.Repeat("x", 100) + `"}`, call.InputTooLong, "", `{"uri":"` + strings.Repeat("x", 100) + `"}`},
		{"a secret", "resources/read", `{"password":"hunter2hunter2"}`, "", `{"password":"hunter2hunter2"}`, `{"password":"[secret]"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &shelf{}
			g := New(railed(agent.Guardrails{PII: []string{"email"}, DenyPatterns: []string{"drop table"}, MaxLength: 100}), Options{
				Binding: s, Store: open(t, statetest.Open(t)), Expose: Exposed{Resources}, Quotas: &limit.Quotas{Quota: limit.Quota{PerDay: 1}},
			})
			ask := func() error {
				_, err := g.Forward(t.Context(), &call.Forward{Server: "s", Method: tt.method, Params: jsontext.Value(tt.params), Principal: "me"})
				return err
			}
			if err := ask(); codeOf(err) != tt.code {
				t.Errorf("the request ended with %v", err)
			}
			if tt.code == "" && (len(s.asked) != 1 || s.asked[0] != tt.asked) || tt.code != "" && s.asked != nil {
				t.Errorf("the server got the params %q", s.asked)
			}
			entries, err := g.store.Journal.Show(t.Context(), journal.Filter{})
			if err != nil || len(entries) != 1 {
				t.Fatalf("%d records: %v", len(entries), err)
			}
			if r := entries[0]; string(r.Arguments) != tt.kept || r.Tool != "s:"+tt.method || (r.ArgumentsMAC == "") != (tt.params == "") {
				t.Errorf("the journal has %s %s, MAC %q", r.Tool, r.Arguments, r.ArgumentsMAC)
			}
			want := tt.code
			if tt.method == "resources/read" && tt.code == "" {
				want = call.RateLimited
			}
			if err := ask(); codeOf(err) != want {
				t.Errorf("with a quota of one request a day, the second request ended with %v, want %q", err, want)
			}
		})
	}
}

// A policy that forbids a path forbids it in every request that reaches a server, in every dialect.
func TestForwardPassesTheGate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.cedar")
	rules := `forbid (principal, action, resource) when { context.paths_any_under.contains("/etc") };
forbid (principal, action, resource) when { resource.name == "prompts/get" && context.arguments.name == "hidden" };
forbid (principal, action, resource in Server::"closed");
permit (principal, action, resource in Server::"s");`
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	live := policy.Open(policy.Options{File: file, Log: func(m string) { t.Error(m) }})
	for _, tt := range []struct {
		server, method, params string
		allowed                bool
	}{
		{"s", "resources/read", `{"uri":"file:///srv/a"}`, true},
		{"s", "resources/read", `{"uri":"file:///etc/passwd"}`, false},
		{"s", "resources/read", `{"uri":"file://localhost/etc/passwd"}`, false},
		{"s", "resources/read", `{"uri":"file:/etc/passwd"}`, false},
		{"s", "resources/read", `{"uri":"file:///srv/../etc/passwd"}`, false},
		{"s", "resources/read", `{"uri":"file:///srv/%2e%2e/etc/passwd"}`, false},
		{"s", "resources/subscribe", `{"uri":"file:///etc/passwd"}`, false},
		{"s", "resources/unsubscribe", `{"uri":"file:///etc/passwd"}`, true},
		{"s", "resources/list", ``, true},
		{"closed", "resources/list", ``, false},
		{"s", "prompts/get", `{"name":"open"}`, true},
		{"s", "prompts/get", `{"name":"hidden"}`, false},
		{"s", "prompts/get", `{"name":"open","arguments":{"file":"/etc/passwd"}}`, false},
		{"s", "completion/complete", `{"ref":{"type":"ref/resource","uri":"file:///{path}"},"argument":{"name":"path","value":"/etc/pas"}}`, false},
	} {
		for _, dialect := range []agent.Dialect{agent.Matrix, agent.GPARS, agent.FindAgent, agent.Covenant} {
			s := &shelf{}
			a := railed(agent.Guardrails{})
			a.Dialect = dialect
			g := New(a, Options{
				Binding: s, Store: open(t, statetest.Open(t)), Expose: Exposed{Resources, Prompts}, Rules: gate.Rules{Policy: live},
			})
			_, err := g.Forward(t.Context(), &call.Forward{Server: tt.server, Method: tt.method, Params: jsontext.Value(tt.params), Principal: "me"})
			if want := map[bool]call.Code{false: call.PolicyDenied}[tt.allowed]; codeOf(err) != want || (len(s.asked) > 0) != tt.allowed {
				t.Errorf("%s of %s on %s, %s: got %v, and the server got %q", dialect, tt.method, tt.server, tt.params, err, s.asked)
			}
		}
	}
}
