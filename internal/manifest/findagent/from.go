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

// From converts an agent of another dialect to this dialect. Parts for which this dialect has no field are lost. From
// adds a note to n for each lost or added part.
//
// A FindAgent manifest cannot start tool servers. An agent with tool servers becomes a static recipe, which only
// describes the tools. A program for Node or Python becomes a code bundle, which the author must complete. An agent
// that names servers without their tools is refused.
func From(a *agent.Agent, n *convert.Notes) (*Manifest, error) {
	if len(a.Requirements) > 0 && len(a.Tools) == 0 {
		return nil, convert.Refuse("a FindAgent manifest lists its tools, but this agent only names servers, whose " +
			"tools are unknown until the servers start; to add the tools by hand, run: ambit new NAME --dialect findagent")
	}
	if a.Program != nil && bundleRuntime(a.Program.Runtime) == "" {
		return nil, convert.Refuse("a code bundle runs on node or python, but this agent is a program for %s",
			a.Program.Runtime)
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
		n.Add("kind", "%s, which is text to paste into a chat; ambit does not serve the agent's tools", m.Kind)
	}
	m.fromWords(a, n)
	m.fromTools(a, n)
	m.fromSlots(a)
	m.fromRails(a)
	m.fromSkills(a)
	if a.Dialect != agent.FindAgent {
		loseServers(a, n)
		n.LoseShared(a, "FindAgent has no field for this part")
	}
	return m, nil
}

// bundleRuntime returns the name of a runtime in this dialect, or "" for an unsupported runtime.
func bundleRuntime(name agent.Runtime) string {
	for kind, known := range runtimes {
		if known == name {
			return kind
		}
	}
	return ""
}

// fromWords sets the name, description, system prompt and examples. Texts are shortened or extended to fit the limits
// of the dialect.
func (m *Manifest) fromWords(a *agent.Agent, n *convert.Notes) {
	m.Name = truncate(strings.TrimSpace(a.Name), nameMost)
	switch length := utf8.RuneCountInString(m.Name); {
	case m.Name != a.Name && length >= nameLeast:
		n.Lose("name", "cut to %d characters", nameMost)
	case length < nameLeast:
		m.Name = strings.TrimSpace(m.Name + " agent")
		n.Add("name", "%s, because a name must have at least %d characters", diag.Quote(m.Name), nameLeast)
	}
	if m.Description = truncate(a.Description, descriptionMost); m.Description != a.Description {
		n.Lose("description", "cut to %d characters", descriptionMost)
	}
	if m.SystemPrompt = truncate(a.Prompt, promptMost); m.SystemPrompt != a.Prompt {
		n.Lose("system_prompt", "cut to %d characters", promptMost)
	}
	if utf8.RuneCountInString(m.SystemPrompt) < promptLeast {
		m.SystemPrompt = strings.TrimSpace(m.SystemPrompt + "\n\n" + m.introduction())
		n.Add("system_prompt", "made from the name and description; replace it with the agent's real instructions")
	}
	for i, e := range a.Examples {
		if e != "" && len(m.ExamplePrompts) < examplesMost {
			m.ExamplePrompts = append(m.ExamplePrompts, e)
		} else {
			n.Lose("example_prompts/"+strconv.Itoa(i), "FindAgent allows at most %d example prompts, and none can be empty",
				examplesMost)
		}
	}
	if len(m.ExamplePrompts) == 0 {
		m.ExamplePrompts = []string{"What can you do, and with which tools?"}
		n.Add("example_prompts", "a general question; replace it with questions for this agent")
	}
}

// introduction returns a prompt that contains only the agent's name and description.
func (m *Manifest) introduction() string {
	s := "You are " + m.Name + "."
	if m.Description != "" {
		s += " " + m.Description
	}
	return s + "\n\nUse the listed tools, and say when a task needs something that none of them does."
}

// truncate shortens a string to a maximum number of characters.
func truncate(s string, limit int) string {
	for i := range s {
		if limit == 0 {
			return strings.TrimSpace(s[:i])
		}
		limit--
	}
	return s
}

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
			n.Lose("tool "+t.Name, "the agent cannot call this tool")
			continue
		case len(m.Tools) == toolsMost:
			n.Lose("tool "+t.Name, "FindAgent allows at most %d tools", toolsMost)
			continue
		}
		out := Tool{
			Name: t.Name, Description: t.Description, InputSchema: json.RawMessage(t.InputSchema),
			OutputSchema: json.RawMessage(t.OutputSchema), Annotations: fromAnnotations(a.Dialect, t),
			Action: fromBinding(t.Binding),
		}
		if onServer && named[t.Name] > 1 {
			// If several tools have this name, the server's alias distinguishes them.
			out.Name = on.Alias + "_" + t.Name
		}
		if !tooluri.IsName(out.Name) {
			out.Name = agent.Slug(out.Name)
		}
		if !taken.Add(out.Name) {
			n.Lose("tool "+t.Name, "another tool already has this name")
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
		n.Add("tools", "ambit generated %s from tool names; replace each with a real description",
			countOf(filled, "description"))
	}
}

// fromAnnotations returns the annotations of a tool. If a tool of another dialect has no annotations, fromAnnotations
// derives some from the side-effect class. The destructive hint stays unset, because the class does not determine it.
func fromAnnotations(d agent.Dialect, t *agent.Tool) *agent.Annotations {
	if t.Annotations != (agent.Annotations{}) {
		return &t.Annotations
	}
	if d == agent.FindAgent {
		return nil
	}
	readOnly, openWorld := t.SideEffect == agent.Read, true
	out := &agent.Annotations{ReadOnly: &readOnly}
	if t.SideEffect == agent.Network {
		out.OpenWorld = &openWorld
	}
	return out
}

func fromBinding(b agent.Binding) *Action {
	switch b := b.(type) {
	case agent.HTTP:
		return &Action{
			Type: "http", Method: b.Method, URL: b.URL, Headers: b.Headers, BodyTemplate: b.Body, AuthRef: b.AuthRef,
		}
	case agent.Prompt:
		return &Action{Type: "prompt-template", Template: b.Template}
	case agent.Compose:
		return &Action{Type: "compose", Agent: b.Agent, Tool: b.Tool}
	}
	return nil
}

func (m *Manifest) fromSlots(a *agent.Agent) {
	for _, s := range a.Slots {
		out := CredentialSlot{
			Ref: s.Ref, Label: s.Label, Env: s.Env, AllowedHosts: s.Hosts, Type: s.Type, Scopes: s.Scopes,
			Description: s.Description,
		}
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
	if r.OutputSchema != "" || r.OnLeak != "" || r.OnResult != "" || r.OnInjection != "" {
		g.Output = &OutputRails{
			Schema: json.RawMessage(r.OutputSchema), OnLeak: string(r.OnLeak), OnResult: string(r.OnResult),
			OnInjection: string(r.OnInjection),
		}
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
		r.MaxAmount = (*MaxAmount)(p.Spend)
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
	m.Skills = a.Skills.List
}

func (m *Manifest) fromProgram(a *agent.Agent, n *convert.Notes) {
	p := a.Program
	entry := p.Entry
	if strings.HasPrefix(entry, "/") || strings.ContainsAny(entry, `\:`) ||
		slices.Contains(strings.Split(entry, "/"), "..") {
		entry = path.Base(strings.ReplaceAll(entry, `\`, "/"))
		n.Add("entrypoint.path", "%s; move the file to this path in the bundle", diag.Quote(entry))
	}
	m.Entrypoint = &Entrypoint{Path: entry, Export: p.Export}
	m.Runtime = &Runtime{Kind: bundleRuntime(p.Runtime), Version: p.RuntimeVersion}
	m.AllowedHosts = append([]string{}, p.Hosts...)
	m.UI, m.Env = p.UI, p.Env
	m.MCP = &MCP{Mode: "wrap"}
	switch p.Contract {
	case agent.NativeMCP:
		m.MCP = &MCP{Mode: "native", Command: p.Command, Args: p.Args}
	case agent.OneLine:
		n.Lose("contract", "the program reads and writes one line of JSON, but ambit calls a bundle as a function")
		n.Add("entrypoint", `the file must export a function named "handler" that processes one line of input`)
		if a.Resources != nil && a.Resources.Network != agent.NetworkOff {
			n.Lose("network", "%s; a bundle can reach only hosts in allowed_hosts, which is empty", a.Resources.Network)
			n.Add("allowed_hosts", "empty; add the hosts that the program connects to")
		}
	}
}

// loseServers records that the servers and allowed_side_effects are lost.
func loseServers(a *agent.Agent, n *convert.Notes) {
	for _, s := range a.Servers {
		n.Lose("server "+s.Alias, "a FindAgent manifest cannot start tool servers; it only describes the tools")
	}
	if a.SideEffects.Restricted {
		words := make([]string, len(a.SideEffects.Allowed))
		for i, c := range a.SideEffects.Allowed {
			words[i] = string(c)
		}
		n.Lose("allowed_side_effects", "%s; FindAgent has no field for this list", cmp.Or(diag.Words(words, "and"), "none"))
	}
}
