package findagent

import (
	"bytes"
	"cmp"
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
)

// Compile converts a valid manifest to the neutral model and fills in the defaults of the dialect.
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
	hasTools := a.Kind == agent.MCPTool || a.Kind == agent.AutonomousAgent
	if hasTools && m.hosted() && !a.RunsHere() {
		a.Delivery.Exec = agent.HostedExec
		return a.Remote()
	}
	return a
}

func (t *Tool) compile(kind agent.Kind) agent.Tool {
	out := agent.Tool{
		Name: t.Name, Description: t.Description, SideEffect: agent.Write,
		InputSchema: canonicalSchema(t.InputSchema), OutputSchema: canonicalSchema(t.OutputSchema),
	}
	if t.Annotations != nil {
		out.Annotations = *t.Annotations
	}
	if readOnly(t.Annotations) && (t.Action == nil || !t.Action.canChangeData()) {
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
		return agent.HTTP{
			Method: a.Method, URL: a.URL, Host: hostOf(a.URL), Headers: a.Headers, Body: a.BodyTemplate, AuthRef: a.AuthRef,
		}
	case "prompt-template":
		return agent.Prompt{Template: a.Template}
	default:
		return agent.Compose{Agent: a.Agent, Tool: a.Tool}
	}
}

func (s *CredentialSlot) compile() agent.Slot {
	return agent.Slot{
		Ref: s.Ref, Label: s.Label, Env: cmp.Or(s.Env, upperSnake(s.Ref)), Type: cmp.Or(s.Type, slotTypes[0]),
		Scopes: s.Scopes, Description: s.Description, Required: s.Required == nil || *s.Required, Hosts: s.AllowedHosts,
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
		out.OutputSchema, out.OnLeak = canonicalSchema(g.Output.Schema), agent.OnLeak(g.Output.OnLeak)
		out.OnResult = agent.OnResult(g.Output.OnResult)
		out.OnInjection = agent.OnInjection(g.Output.OnInjection)
	}
	return out
}

func (r ActionRails) compile() agent.ToolPolicy {
	p := agent.ToolPolicy{HumanApproval: r.Approval == "human", Idempotent: r.Idempotent != nil && *r.Idempotent}
	if rate, ok := parseRate(r.RateLimit); ok {
		p.Rate = &rate
	}
	if r.MaxAmount != nil {
		p.Spend = (*agent.Cap)(r.MaxAmount)
	}
	return p
}

// hosted reports whether the agent runs at a URL. Such an agent has tools and a URL, and its manifest does not say that
// it runs on the user's machine.
func (m *Manifest) hosted() bool {
	d := m.Delivery
	return len(m.Tools) > 0 && m.Exec != execs[0] && d != nil && d.Remote != nil && d.Remote.URL != ""
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

// compileSkills returns the skills of a skills bundle or code bundle. Other kinds of agents serve no skills, and the
// result is nil.
func (m *Manifest) compileSkills() *agent.Skills {
	bundle := m.Kind == string(agent.SkillsBundle)
	if !bundle && (m.Kind != string(agent.CodeBundle) || len(m.Skills) == 0) {
		return nil
	}
	s := &agent.Skills{List: append([]agent.Skill{}, m.Skills...)}
	if bundle {
		s.Router = m.RouterSkillID
		if m.SkillsSource != nil {
			s.SourceKind, s.SourceKey = m.SkillsSource.Kind, m.SkillsSource.Key
		}
	}
	return s
}

// runtimes maps the runtime names of FindAgent to the runtimes of the neutral model.
var runtimes = map[string]agent.Runtime{"node": agent.Node, "python": agent.Python3}

func (m *Manifest) compileProgram() *agent.Program {
	p := &agent.Program{Contract: agent.Wrapped, Hosts: m.AllowedHosts, UI: m.UI, Env: m.Env}
	if m.Runtime != nil {
		p.Runtime, p.RuntimeVersion = runtimes[m.Runtime.Kind], m.Runtime.Version
	}
	if m.Entrypoint != nil {
		p.Entry, p.Export = m.Entrypoint.Path, cmp.Or(m.Entrypoint.Export, "handler")
	}
	if m.MCP != nil && m.MCP.Mode == "native" {
		p.Contract, p.Command, p.Args = agent.NativeMCP, m.MCP.Command, m.MCP.Args
	}
	return p
}

// canonicalSchema returns a schema in its canonical form (RFC 8785). This form does not depend on white space or key
// order.
func canonicalSchema(schema json.RawMessage) string {
	v := jsontext.Value(bytes.Clone(schema))
	if len(v) == 0 || v.Canonicalize() != nil {
		return string(schema) // the schema is empty, because Canonicalize does not fail for a valid manifest
	}
	return string(v)
}
