package manifest_test

import (
	"strings"
	"testing"

	"github.com/ambit-run/ambit/manifest"
)

const matrixBase = `{
  "schema_version": 1,
  "agent": "matrix://agent/base",
  "description": "base",
  "allowed_side_effects": ["read", "write"],
  "servers": [
    {
      "alias": "fs", "transport": "stdio", "command": "npx", "args": ["-y", "pkg@1.0.0", "/workspace"],
      "env": ["TOKEN=$env:FS_TOKEN"], "version": "1.0.0",
      "package_digest": "sha256:a239da270c403c42eb03e1ca7cca07c858085819797b74856ddbb91b50491b1a",
      "tools": [
        {"name": "read", "side_effect_class": "read"},
        {"name": "write", "side_effect_class": "write", "timeout_ms": 1000},
        {"name": "exec", "side_effect_class": "shell"}
      ]
    },
    {"alias": "web", "transport": "http", "endpoint": "https://mcp.example.com/mcp", "version": "2.0.0", "tools": [{"name": "get", "side_effect_class": "read"}]}
  ]
}`

var networkBase = strings.NewReplacer(`["read", "write"]`, `["read", "network"]`, `"shell"`, `"network"`).Replace(matrixBase)

const findagentBase = `{
  "name": "Base Agent", "kind": "mcp-tool",
  "system_prompt": "You are a careful assistant that carries out its orders, and nothing else at all.",
  "example_prompts": ["Do it."],
  "tools": [
    {"name": "pay", "description": "Pays.", "input_schema": {"type": "object", "properties": {"amount": {"type": "number"}}},
     "action": {"type": "http", "method": "POST", "url": "https://api.example.com/pay", "body_template": "{amount}", "auth_ref": "token"}},
    {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}}, "annotations": {"readOnlyHint": true},
     "action": {"type": "http", "method": "GET", "url": "https://api.example.com/look?q={q}"}}
  ],
  "credential_slots": [{"ref": "token", "label": "Token", "allowed_hosts": ["api.example.com"]}],
  "guardrails": {
    "input": {"max_length": 1000, "deny_patterns": ["ignore previous"], "pii_redaction": ["email", "phone"]},
    "output": {"on_leak": "block", "on_result": "redact", "on_injection": "redact", "schema": {"type": "object"}},
    "actions": {"pay": {"approval": "human", "max_amount": {"per_call": "10.00", "per_day": "100.00", "currency": "EUR"}, "rate_limit": "10/hour"}}
  },
  "auth": "api-key"
}`

const covenantBase = `[agent]
id = "a@local"
name = "a"
version = "1.0.0"
runtime = "python3"
entry = "main.py"
[capabilities]
required = ["tool.x"]
optional = ["memory.read"]
[resources]
cpu_ms_per_task = 1000
network = "outbound-https-only"
[settlement]
budget_credits_per_hour = 100
priority = "normal"
`

const gparsBase = `{"id": "org:x/agent:y", "required_mcp_servers": [{"server_id": "registry.openmcp.org/fs", "version": ">=1.0.0", "permission_scopes": ["read"]}]}`

// TestDiff makes one change to a manifest in each case. If the change widens, the reverse change must not widen. A
// change with an unclear direction ("both") must count as widening in both directions.
func TestDiff(t *testing.T) {
	tests := []struct {
		name, base, old, new string
		want                 string // widened, narrowed, changed, both
		what                 string
	}{
		{"side effect", matrixBase, `["read", "write"]`, `["read", "write", "network"]`, "widened", "side effect"},
		{"blocked tool becomes callable", matrixBase, `["read", "write"]`, `["read", "write", "shell"]`, "widened", "tool fs/exec"},
		{"new tool", matrixBase, `{"name": "read", "side_effect_class": "read"},`, `{"name": "read", "side_effect_class": "read"}, {"name": "read2", "side_effect_class": "read"},`, "widened", "tool"},
		{"new blocked tool", matrixBase, `{"name": "read", "side_effect_class": "read"},`, `{"name": "read", "side_effect_class": "read"}, {"name": "x", "side_effect_class": "shell"},`, "changed", "tool"},
		{"class raised", matrixBase, `"name": "read", "side_effect_class": "read"`, `"name": "read", "side_effect_class": "write"`, "both", "tool fs/read"},
		{"class hidden", matrixBase, `"name": "exec", "side_effect_class": "shell"`, `"name": "exec", "side_effect_class": "read"`, "widened", "tool fs/exec"},
		{"longer timeout", matrixBase, `"timeout_ms": 1000`, `"timeout_ms": 2000`, "widened", "tool fs/write timeout_ms"},
		{"another program", matrixBase, `"pkg@1.0.0", "/workspace"`, `"pkg@1.0.0", "/"`, "both", "server fs"},
		{"another version", matrixBase, `"version": "2.0.0"`, `"version": "2.0.1"`, "changed", "server web version"},
		{"another digest", matrixBase, "sha256:a239", "sha256:b239", "both", "server fs"},
		{"digest dropped", matrixBase, "sha256:a239da270c403c42eb03e1ca7cca07c858085819797b74856ddbb91b50491b1a", "sha256:" + strings.Repeat("0", 64), "widened", "server fs"},
		{"another host", matrixBase, "mcp.example.com", "mcp.example.org", "both", "host"},
		{"another secret", matrixBase, "$env:FS_TOKEN", "$env:FS_TOKEN$env:OTHER", "widened", "secret"},
		{"argument split", matrixBase, `"-y", "pkg@1.0.0"`, `"-y pkg@1.0.0"`, "both", "server fs"},
		{"setting", matrixBase, `"TOKEN=$env:FS_TOKEN"`, `"TOKEN=$env:FS_TOKEN", "NODE_OPTIONS=--import=x"`, "both", "server fs env"},
		{"native tool with the same name", matrixBase, `{"name": "exec", "side_effect_class": "shell"}
      ]`, `{"name": "exec", "side_effect_class": "shell"}, {"name": "new_one", "side_effect_class": "read"}
      ]`, "widened", "tool"},
		{"server writes", matrixBase, `"allowed_side_effects": ["read", "write"]`, `"allowed_side_effects": ["read"]`, "narrowed", "server fs access"},
		{"server runs programs", matrixBase, `["read", "write"]`, `["read", "write", "shell"]`, "widened", "server fs access"},
		{"more files", matrixBase, `"/workspace"`, `"/workspace", "/srv"`, "widened", "server fs access"},
		{"fewer files", matrixBase, `"/workspace"`, `"/workspace/sub"`, "narrowed", "server fs access"},
		{"one host instead of any", networkBase, `"TOKEN=$env:FS_TOKEN"`, `"TOKEN=$env:FS_TOKEN", "URL=https://a.example.com"`, "narrowed", "server fs access"},
		{"new server", matrixBase, `{"alias": "web"`, `{"alias": "more", "transport": "stdio", "command": "x", "args": ["/srv"], "version": "1.0.0",
      "package_digest": "sha256:a239da270c403c42eb03e1ca7cca07c858085819797b74856ddbb91b50491b1a", "tools": [{"name": "r", "side_effect_class": "read"}]}, {"alias": "web"`, "widened", "server more access"},
		{"proposal", matrixBase, `"env": ["TOKEN=$env:FS_TOKEN"], `, `"env": ["TOKEN=$env:FS_TOKEN"], "x-ambit": {"reach": {"read": ["/usr/share"]}}, `, "widened", "server fs proposal"},
		{"proposal of a required server", gparsBase, `}]}`, `}], "extensions": {"run.ambit": {"reach": {"registry.openmcp.org/fs": {"exec": ["git"]}}}}}`, "widened", "server registry.openmcp.org/fs proposal"},
		{"description", matrixBase, `"description": "base"`, `"description": "other"`, "changed", "description"},

		{"slot host", findagentBase, `"allowed_hosts": ["api.example.com"]`, `"allowed_hosts": ["api.example.com", "evil.example.org"]`, "widened", "credential slot token host"},
		{"slot scope", findagentBase, `"label": "Token"`, `"label": "Token", "type": "json", "scopes": ["admin"]`, "widened", "credential slot token scope"},
		{"request host", findagentBase, "https://api.example.com/look", "https://other.example.org/look", "widened", "host"},
		{"request path", findagentBase, "https://api.example.com/look", "https://api.example.com/delete", "both", "tool look"},
		{"method", findagentBase, `"GET"`, `"HEAD"`, "both", "tool look"},
		{"credential attached", findagentBase, `"https://api.example.com/look?q={q}"`, `"https://api.example.com/look?q={q}", "auth_ref": "token"`, "widened", "tool look"},
		{"approval", findagentBase, `"approval": "human", `, ``, "widened", "tool pay"},
		{"spend per call", findagentBase, `"per_call": "10.00"`, `"per_call": "10.01"`, "widened", "tool pay"},
		{"spend per day dropped", findagentBase, `"per_day": "100.00", `, ``, "widened", "tool pay"},
		{"same amount", findagentBase, `"10.00"`, `"10"`, "same", ""},
		{"rate", findagentBase, "10/hour", "11/hour", "widened", "tool pay"},
		{"rate unit", findagentBase, "10/hour", "10/minute", "widened", "tool pay"},
		{"rates that cannot be compared", findagentBase, "10/hour", "100/day", "both", "tool pay"},
		{"rate dropped", findagentBase, `, "rate_limit": "10/hour"`, ``, "widened", "tool pay"},
		{"max_length", findagentBase, `"max_length": 1000`, `"max_length": 2000`, "widened", "guardrail max_length"},
		{"max_length dropped", findagentBase, `"max_length": 1000, `, ``, "widened", "guardrail max_length"},
		{"deny pattern dropped", findagentBase, `["ignore previous"]`, `[]`, "widened", "guardrail deny_patterns"},
		{"pii dropped", findagentBase, `["email", "phone"]`, `["email"]`, "widened", "guardrail pii_redaction"},
		{"output schema dropped", findagentBase, `, "schema": {"type": "object"}`, ``, "widened", "guardrail output schema"},
		{"on_leak", findagentBase, `"on_leak": "block"`, `"on_leak": "redact"`, "widened", "guardrail on_leak"},
		{"on_result", findagentBase, `"on_result": "redact", `, ``, "widened", "guardrail on_result"},
		{"on_injection", findagentBase, `"on_injection": "redact"`, `"on_injection": "mark"`, "widened", "guardrail on_injection"},
		{"stricter on_injection", findagentBase, `"on_injection": "redact"`, `"on_injection": "deny"`, "narrowed", "guardrail on_injection"},
		{"idempotent", findagentBase, `"approval": "human"`, `"approval": "human", "idempotent": true`, "widened", "tool pay"},
		{"auth", findagentBase, `"auth": "api-key"`, `"auth": "none"`, "widened", "auth"},
		{"input schema", findagentBase, `{"q": {"type": "string"}}`, `{"q": {}}`, "both", "tool look input schema"},
		{"slot env", findagentBase, `"label": "Token"`, `"label": "Token", "env": "OTHER_KEY"`, "both", "credential slot token"},
		{"kind", findagentBase, `"kind": "mcp-tool"`, `"kind": "autonomous-agent"`, "both", "kind"},
		{"prompt", findagentBase, "nothing else at all", "nothing else whatsoever", "changed", "prompt"},

		{"capability", covenantBase, `["tool.x"]`, `["tool.x", "tool.y"]`, "widened", "capability"},
		{"optional capability", covenantBase, `["memory.read"]`, `["memory.read", "memory.write"]`, "widened", "optional capability"},
		{"wall clock", covenantBase, "1000", "2000", "widened", "cpu_ms_per_task"},
		{"network", covenantBase, `"outbound-https-only"`, `"full"`, "widened", "network"},
		{"sandbox", covenantBase, "[resources]", "[sandbox]\nrequired = true\nbackend = \"linux-gvisor\"\n[resources]", "narrowed", "program isolation"},
		{"network off", covenantBase, `"outbound-https-only"`, `"off"`, "narrowed", "network"},
		{"no secret", matrixBase, `"env": ["TOKEN=$env:FS_TOKEN"], `, ``, "narrowed", "server fs env"},
		{"budget dropped", covenantBase, "budget_credits_per_hour = 100", "budget_credits_per_hour = 0", "widened", "budget_credits_per_hour"},
		{"budget", covenantBase, "budget_credits_per_hour = 100", "budget_credits_per_hour = 50", "narrowed", "budget_credits_per_hour"},
		{"priority", covenantBase, `priority = "normal"`, `priority = "high"`, "widened", "priority"},
		{"another entry", covenantBase, "main.py", "other.py", "both", "program"},

		{"scope", gparsBase, `["read"]`, `["read", "write"]`, "widened", "server registry.openmcp.org/fs scope"},
		{"server", gparsBase, `"required_mcp_servers": [`, `"required_mcp_servers": [{"server_id": "registry.openmcp.org/bash", "version": "1.0.0", "permission_scopes": ["execute"]}, `, "widened", "server"},
		{"constraint", gparsBase, ">=1.0.0", ">=2.0.0", "both", "server registry.openmcp.org/fs"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			name := "x.json"
			if tt.base == covenantBase {
				name = "x.toml"
			}
			if strings.Count(tt.base, tt.old) == 0 {
				t.Fatalf("%q is not in the base manifest", tt.old)
			}
			load := func(text string) *manifest.Manifest {
				m, _ := manifest.Parse(name, []byte(text), manifest.Options{})
				if !m.Valid() {
					t.Fatal(listing(m))
				}
				return m
			}
			before, after := load(tt.base), load(strings.Replace(tt.base, tt.old, tt.new, 1))
			forward := manifest.Diff(before.Agent(), after.Agent())
			back := manifest.Diff(after.Agent(), before.Agent())
			has := func(list []manifest.Change) bool {
				for _, c := range list {
					if c.What == tt.what {
						return true
					}
				}
				return false
			}
			switch tt.want {
			case "widened":
				if !has(forward.Widened) || has(back.Widened) && !strings.Contains(tt.name, "hidden") {
					t.Errorf("want %s %q\nforward %+v\nback %+v", tt.want, tt.what, forward, back)
				}
			case "narrowed":
				if has(forward.Widened) || !has(forward.Narrowed) {
					t.Errorf("want %s %q\nforward %+v", tt.want, tt.what, forward)
				}
			case "changed":
				if !has(forward.Changed) || len(forward.Widened) > 0 {
					t.Errorf("want %s %q\nforward %+v", tt.want, tt.what, forward)
				}
			case "both":
				if !has(forward.Widened) || !has(back.Widened) {
					t.Errorf("want %s %q\nforward %+v\nback %+v", tt.want, tt.what, forward, back)
				}
			case "same":
				if len(forward.Widened)+len(forward.Narrowed)+len(forward.Changed) > 0 {
					t.Errorf("want %s %q\nforward %+v", tt.want, tt.what, forward)
				}
			}
		})
	}
}

// A program that loses its network access and a server that loses a secret can do less, so Diff lists nothing in
// Widened.
func TestDiffOnlyNarrows(t *testing.T) {
	for _, tt := range []struct{ file, base, old, new string }{
		{"x.toml", covenantBase, `"outbound-https-only"`, `"off"`},
		{"x.json", matrixBase, `"env": ["TOKEN=$env:FS_TOKEN"], `, ``},
	} {
		before, _ := manifest.Parse(tt.file, []byte(tt.base), manifest.Options{})
		after, _ := manifest.Parse(tt.file, []byte(strings.Replace(tt.base, tt.old, tt.new, 1)), manifest.Options{})
		if d := manifest.Diff(before.Agent(), after.Agent()); len(d.Widened) > 0 || len(d.Narrowed) == 0 {
			t.Errorf("without %s: %+v", tt.old, d)
		}
	}
}
