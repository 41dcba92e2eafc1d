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
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// shelf is a server with resources that no manifest declares. It records the params of the requests that it gets.
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

// A policy that forbids a path forbids it in every request to a server, in manifests of every dialect.
func TestForwardPassesTheGate(t *testing.T) {
	const ofURIs = `forbid (principal, action, resource) when { resource.name == "resources/read" && context.arguments.uri like "memo://hr*" };`
	rules := `forbid (principal, action, resource) when { context.paths_any_under.contains("/etc") };
forbid (principal, action, resource) when { resource.name == "prompts/get" && context.arguments.name == "hidden" };
forbid (principal, action, resource in Server::"closed");
forbid (principal, action, resource == Tool::"unread/resources/read");
permit (principal, action, resource in Server::"unread");
permit (principal, action, resource in Server::"s");`
	// A rule that compares URIs makes the policy refuse URIs that are not canonical. Without such a rule, only the paths in
	// a URI decide.
	lives := map[bool]*policy.Live{}
	for comparesURIs, text := range map[bool]string{true: rules + "\n" + ofURIs, false: rules} {
		file := filepath.Join(t.TempDir(), "policy.cedar")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		lives[comparesURIs] = policy.Open(policy.Options{File: file, Log: func(m string) { t.Error(m) }})
	}
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
		{"s", "resources/read", `{"uri":"fs://srv/a"}`, true},
		{"s", "resources/read", `{"uri":"memo://insights"}`, true},
		{"s", "resources/read", `{"uri":"https://example.com/etc/passwd"}`, true},
		{"s", "resources/read", `{"uri":"fs://etc/passwd"}`, false},
		{"s", "resources/read", `{"uri":"fs:///etc/passwd"}`, false},
		{"s", "resources/read", `{"uri":"fs:/etc/passwd"}`, false},
		{"s", "resources/read", `{"uri":"fs:etc/passwd"}`, false},
		{"s", "resources/read", `{"uri":"fs://host/etc/"}`, false},
		{"s", "resources/read", `{"uri":"fs://srv/../etc/passwd"}`, false},
		{"s", "resources/read", `{"uri":"fs://srv/%2e%2e/etc/passwd"}`, false},
		{"s", "resources/read", `{"uri":"fs://%2Fetc%2Fpasswd"}`, false},
		{"s", "resources/read", `{"uri":"FS://srv//etc"}`, false},
		{"s", "resources/read", `{"uri":"fs://read?path=%2Fetc%2Fpasswd"}`, false},
		{"s", "resources/read", `{"uri":"fs://read?a=1;path=/etc/passwd"}`, false},
		{"s", "resources/read", `{"uri":"fs://read?path=/etc%zz"}`, false},
		{"s", "resources/read", `{"uri":"fs://read#/etc/passwd"}`, false},
		{"s", "resources/read", `{"uri":"fs://srv/a","path":"/etc/passwd"}`, false},
		{"s", "resources/read", `{"uri":"fs://etc/passwd","resource":{}}`, false},
		{"s", "resources/subscribe", `{"uri":"fs://etc/passwd"}`, false},
		{"s", "resources/list", ``, true},
		{"closed", "resources/list", ``, false},
		{"s", "prompts/get", `{"name":"open"}`, true},
		{"s", "prompts/get", `{"name":"hidden"}`, false},
		{"s", "prompts/get", `{"name":"open","arguments":{"file":"/etc/passwd"}}`, false},
		{"s", "completion/complete", `{"ref":{"type":"ref/resource","uri":"file:///{path}"},"argument":{"name":"path","value":"/etc/pas"}}`, false},
		{"s", "completion/complete", `{"ref":{"type":"ref/resource","uri":"file:///{path}"},"argument":{"name":"path","value":"/srv"}}`, true},
		{"unread", "completion/complete", `{"ref":{"type":"ref/resource","uri":"memo://{id}"},"argument":{"name":"id","value":""}}`, false},
		{"s", "completion/complete", `{"ref":{"type":"ref/resource","uri":"memo://hr"},"argument":{"name":"id","value":""}}`, false},
		{"s", "completion/complete", `{"ref":{"type":"ref/prompt","name":"open"},"argument":{"name":"who","value":"a"}}`, true},
		{"s", "completion/complete", `{"ref":{"type":"ref/prompt","name":"hidden"},"argument":{"name":"who","value":"a"}}`, false},
		{"s", "resources/subscribe", `{"uri":"memo://hr"}`, false},
		{"s", "resources/subscribe", `{"uri":"memo://lunch"}`, true},
	} {
		for i, dialect := range []agent.Dialect{agent.Matrix, agent.GPARS, agent.FindAgent, agent.Covenant} {
			s := &shelf{}
			live := lives[i%2 == 0 || strings.Contains(tt.params, "memo://hr")]
			a := railed(agent.Guardrails{})
			a.Dialect = dialect
			g := New(a, Options{
				Binding: s, Store: open(t, statetest.Open(t)), Expose: Exposed{Resources, Prompts}, Rules: gate.Rules{Policy: live},
			})
			_, err := g.Forward(t.Context(), &call.Forward{Server: tt.server, Method: tt.method, Params: jsontext.Value(tt.params), Principal: "me"})
			if want := map[bool]call.Code{false: call.PolicyDenied}[tt.allowed]; codeOf(err) != want || (len(s.asked) > 0) != tt.allowed {
				t.Errorf("%s: the request %s to the server %s with %s ended with %v, and the server got %q", dialect, tt.method, tt.server, tt.params, err, s.asked)
			}
		}
	}
}

// noTools is a skill that allows no tools.
type noTools struct{}

func (noTools) Allows(string) bool { return false }
func (noTools) Name() string       { return "reader.md" }

// Rules about the skill apply to forwarded requests. The list of tools in a skill does not.
func TestForwardUnderASkill(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.cedar")
	rule := `forbid (principal, action, resource) when { context has skill && context.skill == "reader.md" && resource.name == "resources/read" };`
	if err := os.WriteFile(file, []byte(rule), 0o600); err != nil {
		t.Fatal(err)
	}
	g := New(railed(agent.Guardrails{}), Options{
		Binding: &shelf{}, Store: open(t, statetest.Open(t)), Expose: Exposed{Resources, Prompts},
		Rules: gate.Rules{Policy: policy.Open(policy.Options{File: file})},
	})
	for _, tt := range []struct {
		method string
		skill  call.Allowlist
		want   call.Code
	}{
		{"resources/read", nil, ""},
		{"resources/read", noTools{}, call.PolicyDenied},
		{"prompts/get", noTools{}, ""},
	} {
		_, err := g.Forward(t.Context(), &call.Forward{Server: "s", Method: tt.method, Principal: "me", Skill: tt.skill})
		if codeOf(err) != tt.want {
			t.Errorf("%s under %v: %v", tt.method, tt.skill, err)
		}
	}
}

// The agent's own prompts pass the gate and count toward the quota.
func TestOwnPromptPassesTheGate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.cedar")
	rules := `forbid (principal, action, resource == Tool::"desk/prompts/get") when { context.arguments.name == "hidden" };
forbid (principal, action, resource) when { context has skill };`
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		skill call.Allowlist
		want  call.Code
		used  int // these prompts count toward the quota
	}{
		{"open", nil, "", 1},
		{"open", noTools{}, call.PolicyDenied, 0},
		{"hidden", nil, call.PolicyDenied, 0},
	} {
		g := New(railed(agent.Guardrails{}), Options{
			Name: "desk", Binding: &shelf{}, Store: open(t, statetest.Open(t)), Quotas: &limit.Quotas{Quota: limit.Quota{PerDay: 1}},
			Rules: gate.Rules{Policy: policy.Open(policy.Options{File: file})},
		})
		fetched := 0
		ask := func(name string, skill call.Allowlist) error {
			params := jsontext.Value(`{"name":"` + name + `"}`)
			_, err := g.Prompt(t.Context(), &call.Forward{Method: "prompts/get", Params: params, Principal: "me", Skill: skill}, name,
				func(context.Context, string) (jsontext.Value, error) {
					fetched++
					return jsontext.Value(`{"messages":[]}`), nil
				})
			return err
		}
		if err := ask(tt.name, tt.skill); codeOf(err) != tt.want || fetched != tt.used {
			t.Errorf("%s under %v: %v, fetched %d times", tt.name, tt.skill, err, fetched)
		}
		want := map[int]call.Code{1: call.RateLimited}[tt.used]
		if err := ask("open", nil); codeOf(err) != want {
			t.Errorf("%s under %v, then a second prompt: %v, want %q", tt.name, tt.skill, err, want)
		}
		entries, err := g.store.Journal.Show(t.Context(), journal.Filter{})
		if err != nil || len(entries) != 2 {
			t.Errorf("%d records: %v", len(entries), err)
		}
	}
}

// keptRequest is a server that keeps the last request.
type keptRequest struct {
	absent
	last *call.Forward
}

func (k *keptRequest) Forward(_ context.Context, f *call.Forward) (jsontext.Value, error) {
	k.last = f
	return jsontext.Value(`{}`), nil
}

// Before a request is repeated, it passes the gate again and is recorded again. The rules in force at that time apply.
func TestRepeatedRequestPassesTheGate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.cedar")
	write := func(rules string) {
		t.Helper()
		if err := home.Replace(file, 0o600, []byte(rules)); err != nil {
			t.Fatal(err)
		}
	}
	write(`// nothing`)
	k := &keptRequest{}
	g := New(railed(agent.Guardrails{}), Options{
		Binding: k, Store: open(t, statetest.Open(t)), Expose: Exposed{Resources},
		Rules: gate.Rules{Policy: policy.Open(policy.Options{File: file})},
	})
	lost := false
	ctx, cancel := context.WithCancel(call.WithStanding(t.Context(), func(context.Context) error {
		if lost {
			return call.Refuse(gate.Stage, call.CapabilityMissing, "the key was revoked")
		}
		return nil
	}))
	_, err := g.Forward(ctx, &call.Forward{Server: "s", Method: "resources/subscribe", Params: jsontext.Value(`{"uri":"file:///a"}`), Principal: "me"})
	if err != nil {
		t.Fatal(err)
	}
	cancel() // the request itself has ended
	again := func(want call.Code) {
		t.Helper()
		if err := k.last.Again(t.Context()); codeOf(err) != want {
			t.Errorf("got %v, want %q", err, want)
		}
		last, err := g.store.Journal.Show(t.Context(), journal.Filter{Limit: 1})
		if err != nil || last[0].Tool != "s:resources/subscribe" || last[0].Code != string(want) || last[0].Principal != "me" {
			t.Errorf("the journal has %+v: %v", last, err)
		}
	}
	again("")
	write(`forbid (principal, action, resource) when { resource.name == "resources/subscribe" };`)
	again(call.PolicyDenied)
	write(`// nothing again`)
	again("")
	lost = true
	again(call.CapabilityMissing)
}
