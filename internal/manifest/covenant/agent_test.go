package covenant

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/convert"
)

func TestCompile(t *testing.T) {
	m, _ := parse(t, example, true)
	want := &agent.Agent{
		Dialect: agent.Covenant, ID: "research@local", Name: "research", Version: "0.1.0", Kind: agent.ProgramAgent,
		Tools: []agent.Tool{{
			Name: "research", Description: "Gives the agent a task in plain words and returns its answer.",
			SideEffect: agent.Network, InputSchema: inputSchema, Binding: agent.RunProgram{},
		}},
		Program:      &agent.Program{Runtime: "rust-bin", Entry: "target/release/research", Contract: agent.OneLine},
		Capabilities: agent.Capabilities{Required: []string{"tool.web_search"}, Optional: []string{"memory.write"}},
		Resources:    &agent.Resources{WallClock: 30 * time.Second, MemoryMB: 512, DiskMB: 100, Network: agent.NetworkHTTPS},
		Settlement:   &agent.Settlement{CreditsPerHour: 1000, Priority: "normal"},
	}
	if got := m.Compile(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if !json.Valid([]byte(inputSchema)) {
		t.Errorf("the input schema is not JSON: %s", inputSchema)
	}
}

func TestCompileFillsDefaults(t *testing.T) {
	m, _ := parse(t, with("name", `name = "My Agent!"`)+"[resources]\nnetwork = \"off\"\n", true)
	a := m.Compile()
	if a.Tools[0].Name != "my-agent" || a.Name != "My Agent!" || a.Tools[0].SideEffect != agent.Write {
		t.Errorf("unexpected result: %+v", a)
	}
	if *a.Resources != (agent.Resources{WallClock: 30 * time.Second, MemoryMB: 512, DiskMB: 100, Network: agent.NetworkOff}) || *a.Settlement != (agent.Settlement{Priority: "normal"}) {
		t.Errorf("got wrong defaults: %+v %+v", a.Resources, a.Settlement)
	}
	if !a.Callable(&a.Tools[0]) {
		t.Error("the agent cannot call its own program")
	}
}

// A manifest that is parsed, encoded and parsed again must not change.
func TestPrint(t *testing.T) {
	for _, text := range []string{example, agentLines} {
		m, _ := parse(t, text, true)
		b, err := toml.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if again, list := parse(t, string(b), true); len(list) > 0 || !reflect.DeepEqual(again, m) {
			t.Errorf("%s\nhas problems or differs from the original: %+v", b, list)
		}
	}
}

// convertOK converts an agent to Covenant and checks that the result has no problems.
func convertOK(t *testing.T, a *agent.Agent) (*Manifest, convert.Notes) {
	t.Helper()
	var n convert.Notes
	m, err := From(a, &n)
	if err != nil {
		t.Fatal(err)
	}
	b, err := toml.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if _, list := parse(t, string(b), true); len(list) > 0 {
		t.Errorf("the result has problems: %s\n%+v", b, list)
	}
	return m, n
}

func whats(notes []convert.Note) []string {
	var list []string
	for _, n := range notes {
		list = append(list, n.What)
	}
	return list
}

func expect(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s\ngot  %q\nwant %q", what, got, want)
	}
}

func TestFromMatrix(t *testing.T) {
	m, n := convertOK(t, &agent.Agent{
		Dialect: agent.Matrix, ID: "matrix://agent/neo", Name: "neo", Description: "Does things.",
		SideEffects: agent.SideEffectPolicy{Restricted: true, Allowed: []agent.SideEffect{agent.Read}},
		Servers: []agent.Server{
			{Alias: "fs", Transport: agent.Stdio, Command: "npx", Version: "1.0.0"},
			{Alias: "web", Transport: agent.StreamableHTTP, Endpoint: "https://x", Version: "2.0.0"},
		},
		Tools: []agent.Tool{
			{Name: "read_file", SideEffect: agent.Read, Timeout: 500 * time.Millisecond, Binding: agent.OnServer{Alias: "fs"}},
			{Name: "search", SideEffect: agent.Read, Binding: agent.OnServer{Alias: "fs"}},
			{Name: "search", SideEffect: agent.Read, Binding: agent.OnServer{Alias: "web"}},
			{Name: "write_file", SideEffect: agent.Write, Binding: agent.OnServer{Alias: "fs"}},
			{Name: "pay", SideEffect: agent.Chain, Binding: agent.Native{Namespace: "payments"}},
		},
	})
	if m.Agent != (Agent{"neo@local", "neo", "0.1.0", "python3", "main.py"}) || m.Resources != defaultResources() || m.Settlement != defaultSettlement() {
		t.Errorf("unexpected result: %+v", m)
	}
	expect(t, "required", m.Capabilities.Required, []string{"tool.read_file", "tool.fs_search", "tool.web_search"})
	expect(t, "lost", whats(n.Lost), []string{"tool write_file", "tool pay", "network_hosts", "server fs", "server web", "allowed_side_effects", "description", "definition of read_file"})
	expect(t, "added", whats(n.Added), []string{"agent.id", "agent.version", "agent.entry"})
}

func TestFromGPARS(t *testing.T) {
	m, n := convertOK(t, &agent.Agent{
		Dialect: agent.GPARS, ID: "org:example/agent:researcher-v1", Name: "researcher-v1", Version: "1.2.3",
		Requirements: []agent.Requirement{
			{Server: "registry.openmcp.org/filesystem", Version: ">=1.0.0", Scopes: []string{"read", "write:all", "..", "read"}},
			{Server: "registry.openmcp.org/@s/bash+", Version: "1", Scopes: []string{}},
			{Server: "other.example.org/filesystem", Scopes: []string{"read"}, Optional: true},
			{Server: "registry.openmcp.org/web", Optional: true},
		},
	})
	if m.Agent.ID != "researcher-v1@local" || m.Agent.Version != "1.2.3" {
		t.Errorf("unexpected result: %+v", m.Agent)
	}
	expect(t, "required", m.Capabilities.Required, []string{"tool.filesystem.read", "tool.filesystem.write_all", "tool.filesystem._", "tool.bash_"})
	expect(t, "optional", m.Capabilities.Optional, []string{"tool.web"})
	expect(t, "lost", whats(n.Lost), []string{
		"server registry.openmcp.org/filesystem", "server registry.openmcp.org/@s/bash+", "server other.example.org/filesystem", "server registry.openmcp.org/web",
	})
	expect(t, "added", whats(n.Added), []string{"agent.id", "resources.network", "agent.entry"})
}

func TestFromFindAgent(t *testing.T) {
	m, n := convertOK(t, &agent.Agent{
		Dialect: agent.FindAgent, Name: "Weather Bot", Description: "Tells the weather.", Prompt: "You tell the weather.", Examples: []string{"Rain?"},
		Slots:      []agent.Slot{{Ref: "key", Hosts: []string{"api.example.com"}}},
		Guardrails: agent.Guardrails{MaxLength: 100},
		Delivery:   agent.Delivery{Modes: []string{"mcp.remote"}, Auth: "api-key"},
		Category:   "weather",
		Tools: []agent.Tool{
			{Name: "forecast", SideEffect: agent.Read, Binding: agent.HTTP{Host: "api.example.com"}, Policy: agent.ToolPolicy{HumanApproval: true}},
			{Name: "explain", Description: "Explains.", InputSchema: "{}", SideEffect: agent.Read, Binding: agent.Prompt{}},
			{Name: "described", InputSchema: "{}", SideEffect: agent.Read},
		},
	})
	if m.Agent.ID != "weather-bot@local" || m.Agent.Name != "Weather Bot" {
		t.Errorf("unexpected result: %+v", m.Agent)
	}
	expect(t, "required", m.Capabilities.Required, []string{"tool.forecast", "tool.explain"})
	expect(t, "lost", whats(n.Lost), []string{
		"tool forecast", "tool explain", "tool described", "network_hosts", "description", "descriptions of tools", "system_prompt",
		"example_prompts", "definition of explain", "credential slot key", "guardrails", "guardrails of forecast", "delivery", "auth", "category",
	})
}

func TestFromBundle(t *testing.T) {
	bundle := &agent.Agent{
		Dialect: agent.FindAgent, Name: "bundle", Version: "2.0.0", Kind: agent.CodeBundle,
		Tools: []agent.Tool{{Name: "run", SideEffect: agent.Write, Binding: agent.RunProgram{}}},
		Program: &agent.Program{
			Runtime: "node", RuntimeVersion: "22", Entry: "dist/index.js", Contract: agent.Wrapped, Hosts: []string{"api.example.com"},
			UI: "ui", Env: []agent.EnvVar{{Name: "LEVEL"}}, Command: "node",
		},
	}
	m, n := convertOK(t, bundle)
	if m.Agent != (Agent{"bundle@local", "bundle", "2.0.0", "node", "dist/index.js"}) || m.Resources.Network != "outbound-https-only" {
		t.Errorf("unexpected result: %+v", m)
	}
	expect(t, "required", m.Capabilities.Required, []string{"tool.run"})
	expect(t, "lost", whats(n.Lost), []string{"network_hosts", "contract", "runtime version", "command", "ui", "env LEVEL"})
	expect(t, "added", whats(n.Added), []string{"agent.id"})

	bundle.Program = &agent.Program{Runtime: "python3", Contract: agent.NativeMCP}
	m, n = convertOK(t, bundle)
	if m.Agent.Runtime != "python3" || m.Agent.Entry != "main.py" || m.Resources.Network != "off" {
		t.Errorf("a bundle without hosts and entry: %+v", m)
	}
	expect(t, "added", whats(n.Added), []string{"agent.id", "resources.network", "agent.entry"})
}

// An agent that connects to no host gets no network access.
func TestFromOffline(t *testing.T) {
	m, n := convertOK(t, &agent.Agent{
		Dialect: agent.FindAgent, Name: "writer", Version: "1.0.0",
		Tools: []agent.Tool{{Name: "outline", SideEffect: agent.Read, Binding: agent.Prompt{}}},
	})
	if m.Resources.Network != "off" {
		t.Errorf("unexpected result: %+v", m.Resources)
	}
	expect(t, "added", whats(n.Added), []string{"agent.id", "resources.network", "agent.entry"})
}

func TestFromRefuses(t *testing.T) {
	for name, a := range map[string]*agent.Agent{
		"recipe":      {Dialect: agent.FindAgent, Name: "a", Prompt: "You are."},
		"native only": {Dialect: agent.Matrix, Name: "a", Tools: []agent.Tool{{Name: "pay", Binding: agent.Native{}}}},
		"needs none":  {Dialect: agent.GPARS, Name: "a"},
	} {
		var n convert.Notes
		m, err := From(a, &n)
		if m != nil || !errors.Is(err, convert.ErrNothingSurvives) || !strings.Contains(err.Error(), "no program") {
			t.Errorf("%s: From returns %v, %v; want ErrNothingSurvives", name, m, err)
		}
	}
}

// Only a required sandbox restricts where the program runs.
func TestIsolation(t *testing.T) {
	for text, want := range map[string]agent.Isolation{
		"": "", "[sandbox]\nbackend = \"linux-gvisor\"\n": "",
		"[sandbox]\nrequired = true\n":                             agent.StandardIsolation,
		"[sandbox]\nrequired = true\nbackend = \"linux-gvisor\"\n": agent.StrongIsolation,
	} {
		m, list := parse(t, after(text), false)
		if len(list) > 0 || m.Compile().Program.Isolation != want {
			t.Errorf("%q: got %q and %v, want %q", text, m.Compile().Program.Isolation, list, want)
		}
	}
}
