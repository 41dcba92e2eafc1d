package gpars

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/convert"
)

func TestCompile(t *testing.T) {
	m, list := parse(t, `{
		"id": "org:example/agent:researcher-v1", "version": "1.2.3",
		"required_mcp_servers": [{"server_id": "r.io/a", "version": "1||2 - 3", "permission_scopes": ["read"]}],
		"optional_mcp_servers": [
			{"server_id": "r.io/a", "version": "9", "permission_scopes": ["all"]},
			{"server_id": "r.io/b", "version": "*", "permission_scopes": ["list"]}
		]
	}`, false)
	if len(list) != 1 {
		t.Fatalf("unexpected diagnostics: %+v", list)
	}
	want := &agent.Agent{
		Dialect: agent.GPARS, ID: "org:example/agent:researcher-v1", Name: "researcher-v1", Version: "1.2.3", Kind: agent.ToolServers,
		Requirements: []agent.Requirement{
			{Server: "r.io/a", Version: "1 || 2 - 3", Scopes: []string{"read"}},
			{Server: "r.io/b", Version: "*", Scopes: []string{"list"}, Optional: true},
		},
	}
	if got := m.Compile(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestName(t *testing.T) {
	for id, want := range map[string]string{
		"org:example/agent:researcher-v1":     "researcher-v1",
		"researcher":                          "researcher",
		"urn:example:agents:researcher:1.0.0": "researcher",
		"urn:example:researcher:v2":           "researcher",
		"https://example.com/agents/writer/":  "writer",
		"research@local":                      "research",
		"matrix://agent/neo":                  "neo",
		"1.0":                                 "1.0",
		"://":                                 "://",
		"@x":                                  "@x",
		"вася":                                "вася",
	} {
		if got := nameOf(id); got != want {
			t.Errorf("nameOf(%q) = %q, want %q", id, got, want)
		}
	}
}

// A manifest that is parsed and encoded again must not change.
func TestPrint(t *testing.T) {
	text := `{"id":"a","version":"1.2.3","required_mcp_servers":[{"server_id":"r.io/a","version":"1","permission_scopes":[]}],` +
		`"optional_mcp_servers":[{"server_id":"r.io/b"}]}`
	m, _ := parse(t, text, false)
	if b, err := json.Marshal(m); err != nil || string(b) != text {
		t.Errorf("error %v\ngot  %s\nwant %s", err, b, text)
	}
}

// matrixAgent returns a Matrix agent with many parts that GPARS cannot express.
func matrixAgent() *agent.Agent {
	return &agent.Agent{
		Dialect: agent.Matrix, ID: "matrix://agent/neo", Name: "neo", Description: "Does things.", Kind: agent.ToolServers,
		SideEffects: agent.SideEffectPolicy{Restricted: true, Allowed: []agent.SideEffect{agent.Read, agent.Write}},
		Servers: []agent.Server{
			{
				Alias: "fs", Transport: agent.Stdio, Command: "npx", Args: []string{"-y", "@modelcontextprotocol/server-filesystem@2026.8.31", "."},
				Version: "2026.8.31", Digest: "sha256:" + strings.Repeat("a", 64), Env: []agent.Setting{{Name: "TOKEN", Value: "secret"}},
			},
			{
				Alias: "fs2", Transport: agent.Stdio, Command: "npx", Args: []string{"@modelcontextprotocol/server-filesystem", "/srv"},
				Version: "2026.1.1", Placeholder: true, Digest: "sha256:" + strings.Repeat("0", 64),
			},
			{
				Alias: "crm", Transport: agent.StreamableHTTP, Endpoint: "https://crm.example.com/mcp",
				Version: "sha256:" + strings.Repeat("b", 64), Headers: []agent.Setting{{Name: "Authorization", Value: "Bearer secret"}},
			},
			{Alias: "sh", Transport: agent.Stdio, Command: "sh-server", Version: "1.0.0"},
		},
		Tools: []agent.Tool{
			{Name: "read_file", SideEffect: agent.Read, Binding: agent.OnServer{Alias: "fs"}},
			{Name: "send_file", SideEffect: agent.Network, Binding: agent.OnServer{Alias: "fs"}},
			{Name: "write_file", SideEffect: agent.Write, Binding: agent.OnServer{Alias: "fs2"}},
			{Name: "list", SideEffect: agent.Read, Binding: agent.OnServer{Alias: "crm"}},
			{Name: "run", SideEffect: agent.Shell, Binding: agent.OnServer{Alias: "sh"}},
			{Name: "pay", SideEffect: agent.Chain, Binding: agent.Native{Namespace: "payments"}},
		},
	}
}

func TestFromMatrix(t *testing.T) {
	var n convert.Notes
	m, err := From(matrixAgent(), &n)
	if err != nil {
		t.Fatal(err)
	}
	want := []ServerEntry{
		{"registry.openmcp.org/filesystem", "2026.8.31 || 2026.1.1", []string{"read", "write"}},
		{"registry.openmcp.org/crm", ">=0.0.0", []string{"read"}},
	}
	if m.ID != "matrix://agent/neo" || !reflect.DeepEqual(m.RequiredMCPServers, want) {
		t.Errorf("unexpected result: %+v", m)
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if _, list := parse(t, string(b), true); len(list) > 0 {
		t.Errorf("the result has problems: %+v", list)
	}
	wantLost := []string{
		"server fs: command", "server fs: env", "server fs: package_digest", "server fs: tools",
		"server fs2", "server fs2: command", "server fs2: tools",
		"server crm: version", "server crm: endpoint", "server crm: headers", "server crm: tools",
		"server sh", "native tool payments/pay", "allowed_side_effects", "description",
	}
	if got := whats(n.Lost); !slices.Equal(got, wantLost) {
		t.Errorf("lost\ngot  %q\nwant %q", got, wantLost)
	}
	wantAdded := []string{
		"required_mcp_servers/0/server_id", "required_mcp_servers/0/permission_scopes",
		"required_mcp_servers/1/server_id", "required_mcp_servers/1/permission_scopes",
	}
	if got := whats(n.Added); !slices.Equal(got, wantAdded) {
		t.Errorf("added\ngot  %q\nwant %q", got, wantAdded)
	}
	if b, _ := json.Marshal(n); bytes.Contains(b, []byte("secret")) {
		t.Errorf("the notes contain the value of a setting: %s", b)
	}
}

func whats(notes []convert.Note) []string {
	var list []string
	for _, n := range notes {
		list = append(list, n.What)
	}
	return list
}

func TestFromRefuses(t *testing.T) {
	nothing := matrixAgent()
	nothing.SideEffects.Allowed = nil
	for name, a := range map[string]*agent.Agent{
		"Covenant":       {Dialect: agent.Covenant, Program: &agent.Program{Runtime: "node"}},
		"FindAgent":      {Dialect: agent.FindAgent, Tools: []agent.Tool{{Name: "x", Binding: agent.Prompt{}}}},
		"uses none":      {Dialect: agent.Matrix, Tools: []agent.Tool{{Name: "x", Binding: agent.Native{}}}},
		"server's tools": nothing,
	} {
		var n convert.Notes
		m, err := From(a, &n)
		if m != nil || !errors.Is(err, convert.ErrNothingSurvives) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: From returns %v, %v; want ErrNothingSurvives", name, m, err)
		}
	}
}
