package gateway

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
	"github.com/ambit-run/ambit/internal/supply/skill"
	"github.com/ambit-run/ambit/manifest"
)

const digest = "sha256:a239da270c403c42eb03e1ca7cca07c858085819797b74856ddbb91b50491b1a"

const text = `{
  "schema_version": 1, "agent": "matrix://agent/x", "allowed_side_effects": ["read", "chain"],
  "servers": [
    {"alias": "fs", "transport": "stdio", "command": "x", "version": "1.0.0", "package_digest": "` + digest + `",
     "tools": [{"name": "read", "side_effect_class": "read", "timeout_ms": 5000}, {"name": "write", "side_effect_class": "write"}, {"name": "list", "side_effect_class": "read"}]},
    {"alias": "db", "transport": "stdio", "command": "y", "version": "2.0.0", "package_digest": "sha256:0000000000000000000000000000000000000000000000000000000000000000",
     "tools": [{"name": "list", "side_effect_class": "read"}]}
  ],
  "native_tools": [{"namespace": "payments", "name": "send", "version": "1.0.0", "digest": "` + digest + `"}]
}`

func testAgent(t *testing.T) *agent.Agent {
	t.Helper()
	m, err := manifest.Parse("x.json", []byte(text), manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m.Agent()
}

// recorder is a binding that records its calls and the deadline of the last call.
type recorder struct {
	calls    []string
	deadline time.Duration
}

func (r *recorder) Act(ctx context.Context, tool *agent.Tool, c *call.Call) (call.Result, error) {
	r.calls = append(r.calls, tool.URI.String()+" "+string(c.Arguments))
	if d, ok := ctx.Deadline(); ok {
		r.deadline = time.Until(d)
	}
	return call.Result{Raw: jsontext.Value(`{"content":[]}`)}, nil
}

func TestCall(t *testing.T) {
	onlyList, err := skill.ParseTools("§TOOLS\nmatrix://tool/mcp/fs/list@1.0.0\n")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, tool, args string
		skill            call.Allowlist
		code             call.Code // empty if the call is allowed
		stage            string
	}{
		{"by name", "read", `{"path":"a"}`, nil, "", ""},
		{"no arguments", "read", ``, nil, "", ""},
		{"by URI", "matrix://tool/mcp/fs/read@1.0.0", `{}`, nil, "", ""},
		{"by digest", "matrix://tool/mcp/fs/read@" + digest, `{}`, nil, "", ""},
		{"by the name with its server", "db_list", `{}`, nil, "", ""},

		{"unpinned", "matrix://tool/mcp/fs/read", `{}`, nil, call.UnpinnedTool, "resolve"},
		{"latest", "matrix://tool/mcp/fs/read@latest", `{}`, nil, call.UnpinnedTool, "resolve"},
		{"not a URI", "matrix://tool/mcp/fs", `{}`, nil, call.InvalidURI, "resolve"},
		{"other version", "matrix://tool/mcp/fs/read@1.0.1", `{}`, nil, call.VersionMismatch, "resolve"},
		{"other digest", "matrix://tool/mcp/fs/read@" + strings.Replace(digest, "a239", "b239", 1), `{}`, nil, call.VersionMismatch, "resolve"},
		{"placeholder digest", "matrix://tool/mcp/db/list@sha256:" + strings.Repeat("0", 64), `{}`, nil, call.VersionMismatch, "resolve"},
		{"other server", "matrix://tool/mcp/web/read@1.0.0", `{}`, nil, call.UnknownTool, "resolve"},
		{"unknown", "delete", `{}`, nil, call.UnknownTool, "resolve"},
		{"ambiguous", "list", `{}`, nil, call.UnknownTool, "resolve"},
		{"empty", "", `{}`, nil, call.UnknownTool, "resolve"},

		{"side effect", "write", `{}`, nil, call.SideEffectDenied, "gate"},
		{"side effect by URI", "matrix://tool/mcp/fs/write@1.0.0", `{}`, nil, call.SideEffectDenied, "gate"},
		{"native", "matrix://tool/payments/send@1.0.0", `{}`, nil, call.NativeToolNotImplemented, "gate"},
		{"skill allows", "fs_list", `{}`, onlyList, "", ""},
		{"skill forbids", "read", `{}`, onlyList, call.NotInSkillAllowlist, "gate"},

		{"not an object", "read", `[1]`, nil, call.InputInvalid, "admit"},
		{"not JSON", "read", `{"a":`, nil, call.InputInvalid, "admit"},
		{"duplicate key", "read", `{"a":1,"a":2}`, nil, call.InputInvalid, "admit"},
		{"more than one", "read", `{} {}`, nil, call.InputInvalid, "admit"},
		{"too deep", "read", `{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, nil, call.InputInvalid, "admit"},
		{"exponent", "read", `{"a":1e999999}`, nil, call.InputInvalid, "admit"},
		{"long number", "read", `{"a":` + strings.Repeat("1", 1001) + `}`, nil, call.InputInvalid, "admit"},
		{"many values", "read", `{"a":[` + strings.Repeat("1,", 100_000) + `1]}`, nil, call.InputInvalid, "admit"},
		{"too long", "read", `{"a":"` + strings.Repeat("x", maxArguments) + `"}`, nil, call.InputTooLong, "admit"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			servers := &recorder{}
			g := New(testAgent(t), Options{Binding: servers, Store: open(t, statetest.Open(t))})
			_, err := g.Call(t.Context(), &call.Call{Tool: tt.tool, Arguments: jsontext.Value(tt.args), Skill: tt.skill})
			if tt.code == "" {
				if err != nil || len(servers.calls) != 1 {
					t.Errorf("got %v, calls %v", err, servers.calls)
				}
				return
			}
			r, ok := errors.AsType[*call.Refusal](err)
			if !ok || r.Code != tt.code || r.Stage != tt.stage || r.Effect != call.NoEffect || r.Message == "" {
				t.Errorf("got %v (%+v), want %s at %s", err, r, tt.code, tt.stage)
			}
			if len(servers.calls) != 0 {
				t.Errorf("a refused call was carried out: %v", servers.calls)
			}
			if ok && strings.Contains(r.Message, "xxxx") {
				t.Error("the refusal repeats the arguments")
			}
		})
	}
}

func TestWhyGivesEveryReason(t *testing.T) {
	onlyList, err := skill.ParseTools("§TOOLS\nnone\n")
	if err != nil {
		t.Fatal(err)
	}
	servers := &recorder{}
	g := New(testAgent(t), Options{Binding: servers, Store: open(t, statetest.Open(t))})
	allowed, reasons := g.Why(t.Context(), &call.Call{Tool: "write", Skill: onlyList})
	var codes []string
	for _, r := range reasons {
		if !r.Allowed {
			codes = append(codes, string(r.Code))
		}
	}
	if allowed || strings.Join(codes, " ") != "side_effect_denied not_in_skill_allowlist" {
		t.Errorf("allowed=%t, %v", allowed, codes)
	}
	if allowed, _ := g.Why(t.Context(), &call.Call{Tool: "read"}); !allowed || len(servers.calls) != 0 {
		t.Errorf("Why denied an allowed call or made a call: allowed=%t, calls %v", allowed, servers.calls)
	}
}

func TestCallIsBoundedByTheToolsTime(t *testing.T) {
	servers := &recorder{}
	g := New(testAgent(t), Options{Binding: servers, Store: open(t, statetest.Open(t))})
	if _, err := g.Call(t.Context(), &call.Call{Tool: "read"}); err != nil {
		t.Fatal(err)
	}
	if servers.deadline <= 0 || servers.deadline > 5*time.Second {
		t.Errorf("the tool has timeout_ms 5000 and got %v", servers.deadline)
	}
	if _, err := g.Call(t.Context(), &call.Call{Tool: "fs_list"}); err != nil {
		t.Fatal(err)
	}
	if servers.deadline <= 5*time.Second || servers.deadline > defaultTimeout {
		t.Errorf("a tool without timeout_ms got %v", servers.deadline)
	}
}

func TestServedName(t *testing.T) {
	a := testAgent(t)
	var names []string
	for i := range a.Tools {
		names = append(names, ServedName(a, &a.Tools[i]))
	}
	if got := strings.Join(names, " "); got != "read write fs_list db_list send" {
		t.Errorf("served as %s", got)
	}
}

// The ids of calls are random UUIDs without hyphens. Covenant programs get them as the ids of intents.
func TestNewID(t *testing.T) {
	form, seen := regexp.MustCompile(`^[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}$`), map[string]bool{}
	for range 200 {
		id := NewID()
		if !form.MatchString(id) || seen[id] {
			t.Fatalf("%s is not a new UUID of version 4", id)
		}
		seen[id] = true
	}
}
