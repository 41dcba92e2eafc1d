package manifest_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/manifest"
	"github.com/ambit-run/ambit/tooluri"
)

func goodFiles(t *testing.T) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob("testdata/good/*")
	if err != nil || len(names) == 0 {
		t.Fatalf("no good manifests: %v", err)
	}
	files := map[string][]byte{}
	for _, name := range names {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(name)] = src
	}
	return files
}

// dialectOf returns the dialect in the file name of a good manifest, such as gpars for gpars-minimal.json.
func dialectOf(name string) agent.Dialect {
	dialect, _, _ := strings.Cut(name, "-")
	return agent.Dialect(dialect)
}

// TestGoodManifests checks that a good manifest has no diagnostics, that its dialect is detected, and that it
// compiles.
func TestGoodManifests(t *testing.T) {
	seen := map[agent.Dialect]bool{}
	for name, src := range goodFiles(t) {
		m, _ := manifest.Parse(name, src, manifest.Options{})
		if len(m.Diagnostics) > 0 || m.Dialect != dialectOf(name) || m.Agent() == nil || m.Digest() == "" {
			t.Errorf("%s has problems, a wrong dialect or no agent:\n%s", name, listing(m))
		}
		seen[m.Dialect] = true
	}
	for _, d := range agent.Dialects {
		if !seen[d] {
			t.Errorf("there is no good %s manifest", d)
		}
	}
}

// TestGoodManifestsUseEveryField checks that the good manifests use every field of every dialect. Tests that use these
// manifests therefore cover every field.
func TestGoodManifestsUseEveryField(t *testing.T) {
	used := map[string]bool{}
	for name, src := range goodFiles(t) {
		m, _ := manifest.Parse(name, src, manifest.Options{})
		noteFields(reflect.ValueOf(m.Typed()), used)
	}
	for _, field := range slices.Sorted(maps.Keys(used)) {
		if !used[field] {
			t.Errorf("no good manifest uses %s", field)
		}
	}
	if len(used) < 80 {
		t.Errorf("the manifests have only %d fields, want at least 80", len(used))
	}
}

// noteFields records for every field of every struct in v whether its value is not zero.
func noteFields(v reflect.Value, used map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		noteFields(v.Elem(), used)
	case reflect.Slice:
		for i := range v.Len() {
			noteFields(v.Index(i), used)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			noteFields(v.MapIndex(key), used)
		}
	case reflect.Struct:
		for field, value := range v.Fields() {
			if name := v.Type().String() + "." + field.Name; field.IsExported() {
				used[name] = used[name] || !value.IsZero()
				noteFields(value, used)
			}
		}
	}
}

// TestTypedRoundTrip encodes a parsed manifest and parses the result. Both must compile to the same agent. Only the
// digest may differ, because the encoded manifest contains the defaults.
func TestTypedRoundTrip(t *testing.T) {
	for name, src := range goodFiles(t) {
		first, _ := manifest.Parse(name, src, manifest.Options{})
		marshal := json.Marshal
		if first.Dialect == agent.Covenant {
			marshal = toml.Marshal
		}
		text, err := marshal(first.Typed())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		second, _ := manifest.Parse(name, text, manifest.Options{})
		if len(second.Diagnostics) > 0 {
			t.Errorf("%s: the encoded manifest has problems:\n%s\n%s", name, listing(second), text)
			continue
		}
		got, want := *second.Agent(), *first.Agent()
		got.Digest, want.Digest = "", ""
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the encoded manifest is a different agent:\ngot  %+v\nwant %+v\n%s", name, got, want, text)
		}
	}
}

// These are exact copies of the examples in the documentation of the dialects.
const (
	// The documentation shortens the digest to sha256:0000….
	seedMatrix = `{
  "schema_version": 1,
  "agent": "matrix://agent/default",
  "description": "…",
  "allowed_side_effects": ["read", "write", "network", "shell"],
  "servers": [
    {
      "alias": "fs",
      "transport": "stdio",
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/workspace"],
      "env": [],
      "package_digest": "` + tooluri.ZeroDigest + `",
      "version": "2026.1.14",
      "tools": [
        {"name": "read_text_file", "description": "Read the contents of a text file", "side_effect_class": "read"},
        {"name": "write_file", "description": "Write content to a file", "side_effect_class": "write"}
      ]
    }
  ]
}
`
	seedGPARSMinimal = `{
  "id": "org:example/agent:researcher-v1",
  "required_mcp_servers": []
}
`
	// This example shows a single field, so it has no id.
	seedGPARSServers = `{
  "required_mcp_servers": [
    {
      "server_id": "registry.openmcp.org/bash",
      "version": ">=1.0.0",
      "permission_scopes": ["execute"]
    },
    {
      "server_id": "registry.openmcp.org/filesystem",
      "version": ">=1.0.0",
      "permission_scopes": ["read", "write"]
    }
  ]
}
`
	seedCovenant = `[agent]
id      = "research@local"
name    = "research"
version = "0.1.0"
runtime = "rust-bin"
entry   = "target/release/research"

[capabilities]
required = ["tool.web_search"]
optional = ["memory.write"]

[resources]
cpu_ms_per_task = 30000
memory_mb       = 512
disk_mb         = 100
network         = "outbound-https-only"

[settlement]
budget_credits_per_hour = 1000
priority                = "normal"
`
	seedFindAgent = `{
  "name": "GA Report Builder",
  "description": "Pulls a traffic summary and writes it to a sheet.",
  "system_prompt": "You are a focused analytics assistant ...",
  "kind": "mcp-tool",
  "category": "analytics",
  "tools": [
    {
      "name": "get_traffic_summary",
      "description": "Fetch a traffic summary for a date range.",
      "input_schema": { "type": "object", "properties": { "range": { "type": "string" } } },
      "annotations": { "readOnlyHint": true },
      "action": {
        "type": "http",
        "method": "GET",
        "url": "https://api.example.com/v1/traffic?range={range}",
        "auth_ref": "analytics_token"
      }
    }
  ],
  "credential_slots": [
    {
      "ref": "analytics_token",
      "label": "Analytics API token",
      "env": "ANALYTICS_TOKEN",
      "allowed_hosts": ["api.example.com"]
    }
  ],
  "example_prompts": ["Summarize last week's traffic."],
  "delivery": { "mcp": { "stdio": { "command": "findagent-mcp", "args": ["run", "ga-report-builder"] } } },
  "exec": "user-local",
  "targets": ["claude-desktop", "cursor", "cli"]
}
`
)

// TestSeedExamples parses the examples in the documentation of the dialects. Some have a known problem: a placeholder
// digest, a missing id, and a system_prompt that was shortened to 41 characters. No other problem may be reported.
func TestSeedExamples(t *testing.T) {
	tests := []struct {
		name, text string
		dialect    agent.Dialect
		want       string
	}{
		{"default.json", seedMatrix, agent.Matrix, "13:25 warning MX022 /servers/0/package_digest"},
		{"researcher.json", seedGPARSMinimal, agent.GPARS, ""},
		{"servers.json", seedGPARSServers, agent.GPARS, "1:1 error AM102 /id"},
		{"servers.json", strings.Replace(seedGPARSServers, "{", `{"id": "org:example/agent:researcher-v1",`, 1), agent.GPARS, ""},
		{"agent.toml", seedCovenant, agent.Covenant, ""},
		{"findagent.json", seedFindAgent, agent.FindAgent, "4:20 error FA003 /system_prompt"},
		{"findagent.json", strings.Replace(seedFindAgent, "assistant ...", "assistant that reports figures as they are.", 1), agent.FindAgent, ""},
	}
	for _, test := range tests {
		m, _ := manifest.Parse(test.name, []byte(test.text), manifest.Options{})
		var places []string
		for line := range strings.Lines(listing(m)) {
			if line[0] >= '0' && line[0] <= '9' {
				places = append(places, strings.TrimSpace(line))
			}
		}
		if m.Dialect != test.dialect || strings.Join(places, "\n") != test.want {
			t.Errorf("%s: want dialect %s and %q, got\n%s", test.name, test.dialect, test.want, listing(m))
		}
		if valid := !strings.Contains(test.want, " error "); valid != (m.Agent() != nil) {
			t.Errorf("%s: got the agent %+v, want an agent: %v", test.name, valid, m.Agent())
		}
	}
	m, _ := manifest.Parse("findagent.json", []byte(seedFindAgent), manifest.Options{})
	if d := m.Diagnostics[0]; d.Message != `"system_prompt" has 41 characters, but it must have at least 50` {
		t.Errorf("the first problem has an unexpected message: %+v", d)
	}
}

// All goroutines get the same model of a manifest. Decoding the JSON of a model returns an equal model.
func TestModelRoundTripsAndIsShared(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "good", "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		m, err := manifest.Load(file, manifest.Options{})
		if err != nil {
			t.Fatal(err)
		}
		models := make([]*agent.Agent, 4)
		var wg sync.WaitGroup
		for i := range models {
			wg.Go(func() { models[i] = m.Agent() })
		}
		wg.Wait()
		for _, other := range models {
			if other != models[0] {
				t.Errorf("%s: two concurrent calls of Agent returned different models", file)
			}
		}
		text, err := json.Marshal(models[0])
		if err != nil {
			t.Fatal(err)
		}
		var back agent.Agent
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if again, err := json.Marshal(&back); err != nil || string(again) != string(text) {
			t.Errorf("%s: %s\nis decoded as %s (%v)", file, text, again, err)
		}
	}
}
