package matrix

import (
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/convert"
	"github.com/ambit-run/ambit/tooluri"
)

// Compile converts a valid manifest to the neutral model.
func (m *AgentManifest) Compile() *agent.Agent {
	a := &agent.Agent{
		Dialect: agent.Matrix,
		ID:      m.Agent,
		// The base58 text of a key contains only characters that are safe in a name.
		Name:        strings.TrimPrefix(strings.TrimPrefix(m.Agent, agentPrefix), didKeyPrefix),
		Description: m.Description,
		Kind:        agent.ToolServers,
		SideEffects: agent.SideEffectPolicy{Restricted: true},
	}
	for _, c := range m.AllowedSideEffects {
		a.SideEffects.Allowed = append(a.SideEffects.Allowed, agent.SideEffect(c))
	}
	for _, s := range m.Servers {
		a.Servers = append(a.Servers, s.compile())
		pin, _ := tooluri.ParsePin(s.Version) // Parse has checked the version
		for _, t := range s.Tools {
			a.Tools = append(a.Tools, agent.Tool{
				Name: t.Name, Description: t.Description, SideEffect: agent.SideEffect(t.SideEffectClass),
				Timeout: agent.Milliseconds(t.TimeoutMS), Binding: agent.OnServer{Alias: s.Alias},
				URI: &tooluri.URI{Server: s.Alias, Name: t.Name, Pin: pin},
			})
		}
	}
	for _, t := range m.NativeTools {
		pin, _ := tooluri.ParsePin(t.Version) // Parse has checked the version
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
	for _, arg := range s.Args {
		refs, _ := references(arg)
		out.ArgRefs = append(out.ArgRefs, refs...)
	}
	if s.Extension != nil {
		out.Proposed, out.Required = s.Extension.Reach.Access(), s.Extension.Required
		out.Review = s.Extension.Review
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

// From converts an agent of another dialect to this dialect. Parts for which this dialect has no field are lost. The
// notes in n list the lost parts and the fields that From filled in.
//
// The result has one tool server with the command "ambit run NAME". This command serves the agent over MCP and enforces
// all checks. From refuses an agent if none of its tools has an action. It also refuses an agent without tools, such as
// a GPARS agent.
func From(a *agent.Agent, n *convert.Notes) (*AgentManifest, error) {
	m := &AgentManifest{
		SchemaVersion: schemaVersion, Agent: agentPrefix + agent.Slug(a.Name), Description: a.Description,
		AllowedSideEffects: []string{}, Servers: []ServerEntry{},
	}
	var tools []ToolEntry
	for i := range a.Tools {
		t := &a.Tools[i]
		if t.Binding == nil {
			n.Lose("tool "+t.Name, "the tool has no action, so ambit cannot serve it")
			continue
		}
		tools = append(tools, ToolEntry{Name: t.Name, Description: t.Description, SideEffectClass: string(t.SideEffect)})
	}
	if len(tools) == 0 {
		return nil, convert.Refuse("a Matrix manifest lists tools with their servers, " +
			"but no tool of this agent is known in advance")
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
	n.Add("servers/0", "install the agent under the name in this server's command: ambit run %s",
		agent.Slug(a.Name))
	n.Add("servers/0/package_digest", "this is a placeholder; to compute the digest, run: ambit lock PATH")
	if a.Prompt != "" {
		n.Lose("system_prompt", "Matrix has no field for instructions (%d characters)", len([]rune(a.Prompt)))
	}
	if len(a.Examples) > 0 {
		n.Lose("example_prompts", "Matrix has no field for the %d example prompts", len(a.Examples))
	}
	n.LoseDefinitions(a, "ambit run %s still serves this data", agent.Slug(a.Name))
	n.LoseShared(a, "ambit run %s still enforces this setting", agent.Slug(a.Name))
	return m, nil
}

func pinOr(version, fallback string) string {
	if _, err := tooluri.ParsePin(version); err != nil {
		return fallback
	}
	return version
}
