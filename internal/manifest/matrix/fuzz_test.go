package matrix

import (
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/convert"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
)

// A manifest without errors must compile to an agent with an id. From must be able to convert that agent.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"schema_version": 1, "agent": "matrix://agent/x", "allowed_side_effects": ["read"], "servers": [{"alias": "a", "transport": "http",
		"endpoint": "https://example.com/mcp", "version": "1.0.0", "tools": [{"name": "t", "side_effect_class": "read"}]}]}`))
	f.Add([]byte(`{"schema_version": 1, "agent": "matrix://agent/x", "allowed_side_effects": [], "servers": [{"alias": "a", "transport": "stdio", "command": "npx",
		"args": ["-y", "p@1.0.0"], "env": ["TOKEN"], "version": "1.0.0", "tools": []}], "native_tools": [{"name": "n"}]}`))
	f.Add([]byte(`{"schema_version": 1, "agent": "x", "allowed_side_effects": ["read"], "servers": [{"alias": "a", "transport": "http",
		"endpoint": "https://example.com/mcp", "version": "1.0.0", "tools": [{"name": "t", "side_effect_class": "read"}]}]}`))
	f.Add([]byte(`{"mcpServers": {"a": {"url": "http://127.0.0.1"}}, "schema_version": 1e2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		src := diag.NewSource("agent.json", string(b))
		rep := diag.NewReporter(src, false)
		tree, ok := doc.ParseJSON(src, rep)
		m := Parse(tree.Root(), rep)
		for _, d := range rep.Finish() {
			src.Frame(d)
		}
		if !ok || rep.Errors() > 0 {
			return
		}
		a := m.Compile()
		if a.ID == "" || !strings.HasPrefix(m.Agent, agentPrefix) || a.Dialect != agent.Matrix {
			t.Errorf("the agent of a valid manifest has no id or a wrong dialect: %+v", a)
		}
		if _, err := From(a, &convert.Notes{}); err != nil {
			t.Errorf("From cannot convert the agent of a valid manifest: %v", err)
		}
	})
}
