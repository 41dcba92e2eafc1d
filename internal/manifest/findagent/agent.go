package findagent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
)

// Compile makes the neutral model of a valid manifest, with the dialect's
// defaults filled in.
func (m *Manifest) Compile() *agent.Agent {
	a := &agent.Agent{
		Dialect:       agent.FindAgent,
		ID:            agent.Slug(m.Name),
		Name:          m.Name,
		Description:   m.Description,
		Version:       m.Version,
		Kind:          agent.Kind(cmp.Or(m.Kind, kinds[0])),
		Prompt:        m.SystemPrompt,
		Examples:      m.ExamplePrompts,
		Category:      m.Category,
		Compatibility: m.Compatibility,
		Delivery:      m.compileDelivery(),
		Skills:        m.compileSkills(),
	}
	for i := range m.CredentialSlots {
		a.Slots = append(a.Slots, m.CredentialSlots[i].compile())
	}
	if a.Kind == agent.CodeBundle {
		a.Program = m.compileProgram()
	}
	for i := range m.Tools {
		t := m.Tools[i].compile(a.Kind)
		if g := m.Guardrails; g != nil {
			t.Policy = g.Actions[t.Name].compile()
		}
		a.Tools = append(a.Tools, t)
	}
	a.Guardrails = m.Guardrails.compile()
	return a
}

func (t *Tool) compile(kind agent.Kind) agent.Tool {
	out := agent.Tool{
		Name: t.Name, Description: t.Description, SideEffect: agent.Write,
		InputSchema: canonical(t.InputSchema), OutputSchema: canonical(t.OutputSchema),
	}
	if n := t.Annotations; n != nil {
		out.Annotations = agent.Annotations{
			Title: n.Title, ReadOnly: n.ReadOnlyHint, Destructive: n.DestructiveHint,
			Idempotent: n.IdempotentHint, OpenWorld: n.OpenWorldHint,
		}
	}
	if t.Annotations.readOnly() && (t.Action == nil || !t.Action.writes()) {
		out.SideEffect = agent.Read
	}
	switch {
	case kind == agent.CodeBundle:
		out.Binding = agent.RunProgram{}
	case t.Action != nil:
		out.Binding = t.Action.compile()
	}
	return out
}

func (a *Action) compile() agent.Binding {
	switch a.Type {
	case "http":
		return agent.HTTP{Method: a.Method, URL: a.URL, Host: hostOf(a.URL), Headers: a.Headers, Body: a.BodyTemplate, AuthRef: a.AuthRef}
	case "prompt-template":
		return agent.Prompt{Template: a.Template}
	default:
		return agent.Compose{Agent: a.Agent, Tool: a.Tool}
	}
}

func (s *CredentialSlot) compile() agent.Slot {
	return agent.Slot{
		Ref: s.Ref, Label: s.Label, Env: cmp.Or(s.Env, upperSnake(s.Ref)), Type: cmp.Or(s.Type, slotTypes[0]),
		Description: s.Description, Required: s.Required == nil || *s.Required, Hosts: s.AllowedHosts,
	}
}

func (g *Guardrails) compile() agent.Guardrails {
	var out agent.Guardrails
	if g == nil {
		return out
	}
	if g.Input != nil {
		out.MaxLength, out.DenyPatterns, out.PII = g.Input.MaxLength, g.Input.DenyPatterns, g.Input.PIIRedaction
	}
	if g.Output != nil {
		out.OutputSchema, out.OnLeak = canonical(g.Output.Schema), agent.OnLeak(g.Output.OnLeak)
	}
	return out
}

func (r ActionRails) compile() agent.ToolPolicy {
	p := agent.ToolPolicy{HumanApproval: r.Approval == "human", Idempotent: r.Idempotent != nil && *r.Idempotent}
	if rate, ok := parseRate(r.RateLimit); ok {
		p.Rate = &rate
	}
	if r.MaxAmount != nil {
		p.Spend = &agent.Cap{PerCall: r.MaxAmount.PerCall, PerDay: r.MaxAmount.PerDay, Currency: r.MaxAmount.Currency}
	}
	return p
}

func (m *Manifest) compileDelivery() agent.Delivery {
	d := agent.Delivery{Exec: cmp.Or(m.Exec, execs[0]), Auth: m.Auth, Targets: m.Targets}
	if m.Delivery == nil {
		return d
	}
	if m.Delivery.Prompt {
		d.Modes = append(d.Modes, "prompt")
	}
	if s := m.Delivery.Stdio; s != nil {
		d.Modes = append(d.Modes, "mcp.stdio")
		d.Command, d.Args = s.Command, s.Args
	}
	if r := m.Delivery.Remote; r != nil {
		d.Modes = append(d.Modes, "mcp.remote")
		d.URL = r.URL
	}
	return d
}

// compileSkills keeps the skills of the kinds that serve them.
func (m *Manifest) compileSkills() *agent.Skills {
	bundle := m.Kind == string(agent.SkillsBundle)
	if !bundle && (m.Kind != string(agent.CodeBundle) || len(m.Skills) == 0) {
		return nil
	}
	s := &agent.Skills{List: make([]agent.Skill, 0, len(m.Skills))}
	if bundle {
		s.Router = m.RouterSkillID
		if m.SkillsSource != nil {
			s.SourceKind, s.SourceKey = m.SkillsSource.Kind, m.SkillsSource.Key
		}
	}
	for _, k := range m.Skills {
		s.List = append(s.List, agent.Skill(k))
	}
	return s
}

// runtimes maps FindAgent's names of runtimes to the model's.
var runtimes = map[string]agent.Runtime{"node": agent.Node, "python": agent.Python3}

func (m *Manifest) compileProgram() *agent.Program {
	p := &agent.Program{Contract: agent.Wrapped, Hosts: slices.Clone(m.AllowedHosts), UI: m.UI}
	if m.Runtime != nil {
		p.Runtime, p.RuntimeVersion = runtimes[m.Runtime.Kind], m.Runtime.Version
	}
	if m.Entrypoint != nil {
		p.Entry, p.Export = m.Entrypoint.Path, cmp.Or(m.Entrypoint.Export, "handler")
	}
	if m.MCP != nil && m.MCP.Mode == "native" {
		p.Contract, p.Command, p.Args = agent.NativeMCP, m.MCP.Command, m.MCP.Args
	}
	for _, e := range m.Env {
		p.Env = append(p.Env, agent.EnvVar(e))
	}
	return p
}

// canonical is a schema's text in the one form that layout does not change.
func canonical(schema json.RawMessage) string {
	v := jsontext.Value(bytes.Clone(schema))
	if len(v) == 0 || v.Canonicalize() != nil {
		return string(schema) // a valid manifest holds no other
	}
	return string(v)
}
