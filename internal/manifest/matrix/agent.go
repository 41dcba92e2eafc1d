package matrix

import (
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/convert"
	"github.com/ambit-run/ambit/tooluri"
)

// Compile returns the neutral model of a valid manifest.
func (m *AgentManifest) Compile() *agent.Agent {
	a := &agent.Agent{
		Dialect:     agent.Matrix,
		ID:          m.Agent,
		Name:        strings.TrimPrefix(m.Agent, agentPrefix),
		Description: m.Description,
		Kind:        agent.ToolServers,
		SideEffects: agent.SideEffectPolicy{Restricted: true},
	}
	for _, c := range m.AllowedSideEffects {
		a.SideEffects.Allowed = append(a.SideEffects.Allowed, agent.SideEffect(c))
	}
	for _, s := range m.Servers {
		a.Servers = append(a.Servers, s.compile())
		pin, _ := tooluri.ParsePin(s.Version) // checked by Parse
		for _, t := range s.Tools {
			a.Tools = append(a.Tools, agent.Tool{
				Name: t.Name, Description: t.Description, SideEffect: agent.SideEffect(t.SideEffectClass), Timeout: agent.Milliseconds(t.TimeoutMS),
				URI:     &tooluri.URI{Server: s.Alias, Name: t.Name, Pin: pin},
				Binding: agent.OnServer{Alias: s.Alias},
			})
		}
	}
	for _, t := range m.NativeTools {
		pin, _ := tooluri.ParsePin(t.Version) // checked by Parse
		class := agent.SideEffect(t.SideEffectClass)
		if class == "" {
			class = agent.Chain
		}
		a.Tools = append(a.Tools, agent.Tool{
			Name: t.Name, Description: t.Description, SideEffect: class,
			URI:     &tooluri.URI{Namespace: t.Namespace, Name: t.Name, Pin: pin},
			Binding: agent.Native{Namespace: t.Namespace, Digest: t.Digest},
		})
	}
	return a
}

func (s *ServerEntry) compile() agent.Server {
	out := agent.Server{
		Alias: s.Alias, Transport: agent.Transport(s.Transport), Command: s.Command, Args: s.Args, Endpoint: s.Endpoint,
		Version: s.Version, Digest: s.PackageDigest, Placeholder: s.PackageDigest == tooluri.ZeroDigest,
	}
	for _, e := range s.Env {
		name, value, _ := strings.Cut(e, "=")
		out.Env = append(out.Env, setting(name, value))
	}
	for name, value := range s.Headers {
		out.Headers = append(out.Headers, setting(name, value))
	}
	slices.SortFunc(out.Headers, func(x, y agent.Setting) int { return strings.Compare(x.Name, y.Name) })
	return out
}

func setting(name, value string) agent.Setting {
	refs, _ := references(value)
	return agent.Setting{Name: name, Value: value, Refs: refs}
}

// From converts an agent of another dialect as far as this dialect can express it.
//
// ambit serves every agent that it runs over MCP. So a declarative agent or a program
// becomes one tool server: ambit itself, running that agent with its own checks. Only
// an agent whose tools are unknown in advance, as with GPARS, cannot be converted.
func From(a *agent.Agent, n *convert.Notes) (*AgentManifest, error) {
	m := &AgentManifest{
		SchemaVersion: schemaVersion, Agent: agentPrefix + agent.Slug(a.Name), Description: a.Description,
		AllowedSideEffects: []string{}, Servers: []ServerEntry{},
	}
	var tools []ToolEntry
	for i := range a.Tools {
		t := &a.Tools[i]
		if t.Binding == nil {
			n.Lose("tool "+t.Name, "it has no action, so it cannot be served")
			continue
		}
		tools = append(tools, ToolEntry{Name: t.Name, Description: t.Description, SideEffectClass: string(t.SideEffect)})
	}
	if len(tools) == 0 {
		return nil, convert.Refuse("a Matrix manifest lists tools with their servers, but no tool of this agent is known in advance")
	}
	for _, class := range agent.SideEffects {
		if slices.ContainsFunc(tools, func(t ToolEntry) bool { return t.SideEffectClass == string(class) }) {
			m.AllowedSideEffects = append(m.AllowedSideEffects, string(class))
		}
	}
	m.Servers = append(m.Servers, ServerEntry{
		Alias: agent.Slug(a.Name), Transport: "stdio", Command: "ambit", Args: []string{"run", agent.Slug(a.Name)},
		PackageDigest: tooluri.ZeroDigest, Version: pinOr(a.Version, "0.0.0"), Tools: tools,
	})
	n.Add("servers/0", "the agent's tools are served by: ambit run %s; install the agent under that name", agent.Slug(a.Name))
	n.Add("servers/0/package_digest", "a placeholder: compute it with ambit lock")
	if a.Prompt != "" {
		n.Lose("system_prompt", "Matrix has no instructions (%d characters)", len([]rune(a.Prompt)))
	}
	if len(a.Examples) > 0 {
		n.Lose("example_prompts", "Matrix has no examples (%d)", len(a.Examples))
	}
	n.LoseDefinitions(a, "ambit run %s still serves it", agent.Slug(a.Name))
	n.LoseShared(a, "ambit run %s still enforces it", agent.Slug(a.Name))
	return m, nil
}

func pinOr(version, fallback string) string {
	if _, err := tooluri.ParsePin(version); err != nil {
		return fallback
	}
	return version
}
