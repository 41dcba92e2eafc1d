package findagent

import (
	"cmp"
	"encoding/json"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/convert"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/read"
	"github.com/ambit-run/ambit/tooluri"
)

// From converts an agent of another dialect as far as this dialect can express it.
//
// A FindAgent manifest cannot start tool servers. So an agent with tool servers
// becomes a static recipe: its prompt, and descriptions of its tools, which are not
// served. A program in a language of code bundles becomes a code bundle, for its
// author to finish. An agent whose tools are unknown in advance cannot be converted.
func From(a *agent.Agent, n *convert.Notes) (*Manifest, error) {
	if len(a.Requirements) > 0 && len(a.Tools) == 0 {
		return nil, convert.Refuse("a FindAgent manifest lists its tools, but this agent only names servers, whose tools are unknown until they start; add the tools by hand to a new manifest: ambit new NAME --dialect findagent")
	}
	if a.Program != nil && bundleRuntime(a.Program.Runtime) == "" {
		return nil, convert.Refuse("a code bundle runs on node or python, but this agent is a program for %s", a.Program.Runtime)
	}
	m := &Manifest{
		Version: a.Version, Kind: string(a.Kind), Category: a.Category, Compatibility: a.Compatibility,
		Exec: a.Delivery.Exec, Auth: a.Delivery.Auth, Targets: a.Delivery.Targets, Delivery: fromDelivery(&a.Delivery),
	}
	switch {
	case a.Program != nil:
		m.Kind = string(agent.CodeBundle)
		m.fromProgram(a, n)
	case !slices.Contains(kinds, m.Kind):
		m.Kind = kinds[0]
		n.Add("kind", "%s: a text to paste into a chat; its tools are not served", m.Kind)
	}
	m.fromWords(a, n)
	m.fromTools(a, n)
	m.fromSlots(a)
	m.fromRails(a)
	m.fromSkills(a)
	if a.Dialect != agent.FindAgent {
		loseServers(a, n)
		n.LoseShared(a, "FindAgent cannot express it")
	}
	return m, nil
}

// bundleRuntime is this dialect's name of a runtime, empty if it has none.
func bundleRuntime(name agent.Runtime) string {
	for kind, known := range runtimes {
		if known == name {
			return kind
		}
	}
	return ""
}

// fromWords fills in the texts for people and the model, within the limits.
func (m *Manifest) fromWords(a *agent.Agent, n *convert.Notes) {
	m.Name = cut(strings.TrimSpace(a.Name), nameMost)
	switch length := utf8.RuneCountInString(m.Name); {
	case m.Name != a.Name && length >= nameLeast:
		n.Lose("name", "cut to %d characters", nameMost)
	case length < nameLeast:
		m.Name = strings.TrimSpace(m.Name + " agent")
		n.Add("name", "%s, since a name has at least %d characters", diag.Quote(m.Name), nameLeast)
	}
	if m.Description = cut(a.Description, descriptionMost); m.Description != a.Description {
		n.Lose("description", "cut to %d characters", descriptionMost)
	}
	if m.SystemPrompt = cut(a.Prompt, promptMost); m.SystemPrompt != a.Prompt {
		n.Lose("system_prompt", "cut to %d characters", promptMost)
	}
	if utf8.RuneCountInString(m.SystemPrompt) < promptLeast {
		m.SystemPrompt = strings.TrimSpace(m.SystemPrompt + "\n\n" + m.introduction())
		n.Add("system_prompt", "made from the name and description; write the agent's real instructions")
	}
	for i, e := range a.Examples {
		if e != "" && len(m.ExamplePrompts) < examplesMost {
			m.ExamplePrompts = append(m.ExamplePrompts, e)
		} else {
			n.Lose("example_prompts/"+strconv.Itoa(i), "there can be at most %d", examplesMost)
		}
	}
	if len(m.ExamplePrompts) == 0 {
		m.ExamplePrompts = []string{"What can you do, and with which tools?"}
		n.Add("example_prompts", "a general question; write questions for this agent")
	}
}

// introduction is a prompt with only the known facts.
func (m *Manifest) introduction() string {
	s := "You are " + m.Name + "."
	if m.Description != "" {
		s += " " + m.Description
	}
	return s + "\n\nUse the listed tools, and say when a task needs something that none of them does."
}

// cut shortens a text to so many characters.
func cut(s string, most int) string {
	for i := range s {
		if most == 0 {
			return strings.TrimSpace(s[:i])
		}
		most--
	}
	return s
}

// fromTools lists the tools that the agent can call.
func (m *Manifest) fromTools(a *agent.Agent, n *convert.Notes) {
	named := map[string]int{}
	for i := range a.Tools {
		named[a.Tools[i].Name]++
	}
	var taken read.Seen
	filled := 0
	for i := range a.Tools {
		t := &a.Tools[i]
		on, onServer := t.Binding.(agent.OnServer)
		switch {
		case a.Dialect != agent.FindAgent && !a.Callable(t):
			n.Lose("tool "+t.Name, "the agent cannot call it")
			continue
		case len(m.Tools) == toolsMost:
			n.Lose("tool "+t.Name, "there can be at most %d tools", toolsMost)
			continue
		}
		out := Tool{
			Name: t.Name, Description: t.Description, InputSchema: json.RawMessage(t.InputSchema),
			OutputSchema: json.RawMessage(t.OutputSchema), Annotations: fromAnnotations(a.Dialect, t), Action: fromBinding(t.Binding),
		}
		if onServer && named[t.Name] > 1 {
			// Tools of one name are distinguished by their server.
			out.Name = on.Alias + "_" + t.Name
		}
		if !tooluri.IsName(out.Name) {
			out.Name = agent.Slug(out.Name)
		}
		if !taken.Add(out.Name) {
			n.Lose("tool "+t.Name, "another tool already has its name")
			continue
		}
		if out.Description == "" {
			filled++
			if out.Description = "The tool " + t.Name + "."; onServer {
				out.Description = "The tool " + t.Name + " of the server " + on.Alias + "."
			}
		}
		if t.Timeout > 0 {
			n.Lose("timeout of "+t.Name, "%d ms", t.Timeout.Milliseconds())
		}
		m.Tools = append(m.Tools, out)
	}
	if filled > 0 {
		n.Add("tools", "%s filled in with the tools' names; describe what they do", count(filled, "description"))
	}
}

// fromAnnotations keeps a tool's own hints, or else derives them from its class. A
// class does not say whether a tool is destructive.
func fromAnnotations(d agent.Dialect, t *agent.Tool) *Annotations {
	if x := t.Annotations; x != (agent.Annotations{}) {
		return &Annotations{x.Title, x.ReadOnly, x.Destructive, x.Idempotent, x.OpenWorld}
	}
	if d == agent.FindAgent {
		return nil
	}
	readOnly, openWorld := t.SideEffect == agent.Read, true
	out := &Annotations{ReadOnlyHint: &readOnly}
	if t.SideEffect == agent.Network {
		out.OpenWorldHint = &openWorld
	}
	return out
}

func fromBinding(b agent.Binding) *Action {
	switch b := b.(type) {
	case agent.HTTP:
		return &Action{Type: "http", Method: b.Method, URL: b.URL, Headers: b.Headers, BodyTemplate: b.Body, AuthRef: b.AuthRef}
	case agent.Prompt:
		return &Action{Type: "prompt-template", Template: b.Template}
	case agent.Compose:
		return &Action{Type: "compose", Agent: b.Agent, Tool: b.Tool}
	}
	return nil
}

func (m *Manifest) fromSlots(a *agent.Agent) {
	for _, s := range a.Slots {
		out := CredentialSlot{Ref: s.Ref, Label: s.Label, Env: s.Env, AllowedHosts: s.Hosts, Type: s.Type, Description: s.Description}
		if !s.Required {
			out.Required = &s.Required
		}
		m.CredentialSlots = append(m.CredentialSlots, out)
	}
}

func (m *Manifest) fromRails(a *agent.Agent) {
	g := &Guardrails{}
	r := &a.Guardrails
	if r.MaxLength > 0 || len(r.DenyPatterns) > 0 || len(r.PII) > 0 {
		g.Input = &InputRails{MaxLength: r.MaxLength, DenyPatterns: r.DenyPatterns, PIIRedaction: r.PII}
	}
	if r.OutputSchema != "" || r.OnLeak != "" {
		g.Output = &OutputRails{Schema: json.RawMessage(r.OutputSchema), OnLeak: string(r.OnLeak)}
	}
	for i := range m.Tools {
		t := a.Tool("", m.Tools[i].Name)
		if t == nil || t.Policy == (agent.ToolPolicy{}) {
			continue
		}
		if g.Actions == nil {
			g.Actions = map[string]ActionRails{}
		}
		g.Actions[t.Name] = fromPolicy(t.Policy)
	}
	if g.Input != nil || g.Output != nil || g.Actions != nil {
		m.Guardrails = g
	}
}

func fromPolicy(p agent.ToolPolicy) ActionRails {
	var r ActionRails
	if p.HumanApproval {
		r.Approval = "human"
	}
	if p.Idempotent {
		r.Idempotent = &p.Idempotent
	}
	if p.Rate != nil {
		r.RateLimit = p.Rate.String()
	}
	if p.Spend != nil {
		r.MaxAmount = &MaxAmount{p.Spend.PerCall, p.Spend.PerDay, p.Spend.Currency}
	}
	return r
}

func fromDelivery(d *agent.Delivery) *Delivery {
	if len(d.Modes) == 0 {
		return nil
	}
	out := &Delivery{}
	for _, mode := range d.Modes {
		switch mode {
		case "prompt":
			out.Prompt = true
		case "mcp.stdio":
			out.Stdio = &Stdio{d.Command, d.Args}
		case "mcp.remote":
			out.Remote = &Remote{d.URL}
		}
	}
	return out
}

func (m *Manifest) fromSkills(a *agent.Agent) {
	if a.Skills == nil {
		return
	}
	if a.Skills.SourceKind != "" {
		m.SkillsSource = &SkillsSource{a.Skills.SourceKind, a.Skills.SourceKey}
	}
	m.RouterSkillID = a.Skills.Router
	for _, s := range a.Skills.List {
		m.Skills = append(m.Skills, Skill(s))
	}
}

// fromProgram converts a program to a code bundle.
func (m *Manifest) fromProgram(a *agent.Agent, n *convert.Notes) {
	p := a.Program
	entry := p.Entry
	if strings.HasPrefix(entry, "/") || strings.ContainsAny(entry, `\:`) || slices.Contains(strings.Split(entry, "/"), "..") {
		entry = path.Base(strings.ReplaceAll(entry, `\`, "/"))
		n.Add("entrypoint.path", "%s; move the file into the bundle", diag.Quote(entry))
	}
	m.Entrypoint = &Entrypoint{Path: entry, Export: p.Export}
	m.Runtime = &Runtime{Kind: bundleRuntime(p.Runtime), Version: p.RuntimeVersion}
	m.AllowedHosts = append([]string{}, p.Hosts...)
	m.UI = p.UI
	for _, e := range p.Env {
		m.Env = append(m.Env, EnvVar(e))
	}
	m.MCP = &MCP{Mode: "wrap"}
	switch p.Contract {
	case agent.NativeMCP:
		m.MCP = &MCP{Mode: "native", Command: p.Command, Args: p.Args}
	case agent.OneLine:
		n.Lose("contract", "one line of JSON in and one out; a bundle is called as a function")
		n.Add("entrypoint", "the file must export a function handler that processes one input line")
		if a.Resources != nil && a.Resources.Network != agent.NetworkOff {
			n.Lose("network", "%s; a bundle reaches only its allowed_hosts, which is empty", a.Resources.Network)
			n.Add("allowed_hosts", "empty; name the hosts that the program reaches")
		}
	}
}

// loseServers records that tools are described and not served.
func loseServers(a *agent.Agent, n *convert.Notes) {
	for _, s := range a.Servers {
		n.Lose("server "+s.Alias, "a FindAgent manifest starts no tool servers; its tools are only described")
	}
	if a.SideEffects.Restricted {
		words := make([]string, len(a.SideEffects.Allowed))
		for i, c := range a.SideEffects.Allowed {
			words[i] = string(c)
		}
		n.Lose("allowed_side_effects", "%s; FindAgent has no such list", cmp.Or(diag.Words(words, "and"), "none"))
	}
}
