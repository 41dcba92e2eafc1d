package covenant

import (
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/convert"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/tooluri"
)

// inputSchema is the input of a program's only tool.
const inputSchema = `{"type":"object","properties":{"text":{"type":"string"},"priority":{"enum":["low","normal","high"]}},"required":["text"]}`

// Compile returns the neutral model of a valid manifest: a program behind one tool
// with the agent's name.
func (m *Manifest) Compile() *agent.Agent {
	return &agent.Agent{
		Dialect: agent.Covenant,
		ID:      m.Agent.ID,
		Name:    m.Agent.Name,
		Version: m.Agent.Version,
		Kind:    agent.ProgramAgent,
		Tools: []agent.Tool{{
			Name:        toolName(m.Agent.Name),
			Description: "Gives the agent a task in plain words and returns its answer.",
			SideEffect:  sideEffect(agent.NetworkAccess(m.Resources.Network)),
			InputSchema: inputSchema,
			Binding:     agent.RunProgram{},
		}},
		Program:      &agent.Program{Runtime: agent.Runtime(m.Agent.Runtime), Entry: m.Agent.Entry, Contract: agent.OneLine},
		Capabilities: agent.Capabilities{Required: m.Capabilities.Required, Optional: m.Capabilities.Optional},
		Resources: &agent.Resources{
			WallClock: agent.Milliseconds(m.Resources.CPUMsPerTask), MemoryMB: m.Resources.MemoryMB, DiskMB: m.Resources.DiskMB,
			Network: agent.NetworkAccess(m.Resources.Network),
		},
		Settlement: &agent.Settlement{CreditsPerHour: m.Settlement.BudgetCreditsPerHour, Priority: agent.Priority(m.Settlement.Priority)},
	}
}

// toolName is the display name if MCP allows it, or else a name derived from it.
func toolName(name string) string {
	if tooluri.IsName(name) {
		return name
	}
	return agent.Slug(name)
}

// sideEffect is the worst effect of a program in its sandbox. The program's behaviour
// is unknown, so the class is never read: it always has a disk to write to, and with a
// network it can change things elsewhere. The class shell is for tools that run a
// command of the caller's; here the caller sends a text.
func sideEffect(access agent.NetworkAccess) agent.SideEffect {
	if access == agent.NetworkOff {
		return agent.Write
	}
	return agent.Network
}

// The values for a program that is still to be written.
const (
	newRuntime = "python3"
	newEntry   = "main.py"
	newVersion = "0.1.0"
)

// From converts an agent of another dialect as far as this dialect can express it.
//
// A Covenant agent is a program, and other dialects describe what such a program would
// do. So only the frame survives: the agent's identity, and a capability for each
// callable tool. A code bundle is already a program, but with another protocol.
func From(a *agent.Agent, n *convert.Notes) (*Manifest, error) {
	m := &Manifest{
		Agent:      Agent{ID: agent.Slug(a.Name) + "@local", Name: a.Name, Version: a.Version, Runtime: newRuntime, Entry: newEntry},
		Resources:  defaultResources(),
		Settlement: defaultSettlement(),
	}
	m.fromTools(a, n)
	m.fromRequirements(a, n)
	if len(m.Capabilities.Required)+len(m.Capabilities.Optional) == 0 && a.Program == nil {
		return nil, convert.Refuse("a Covenant agent is a program with capabilities, but this agent has no program, no callable tool and no required server")
	}
	n.Add("agent.id", "%s is derived from the name; write your own host after the @", m.Agent.ID)
	if !isSemVer(m.Agent.Version) {
		m.Agent.Version = newVersion
		n.Add("agent.version", "%s, since the agent has no SemVer version", newVersion)
	}
	m.fromReach(a.Reach(), n)
	m.fromProgram(a.Program, n)
	loseServers(a, n)
	loseWords(a, n)
	n.LoseDefinitions(a, "a capability is a name alone")
	n.LoseShared(a, "the program must implement it")
	return m, nil
}

// fromTools adds a capability for each callable tool.
func (m *Manifest) fromTools(a *agent.Agent, n *convert.Notes) {
	named := map[string]int{}
	for i := range a.Tools {
		named[a.Tools[i].Name]++
	}
	for i := range a.Tools {
		t := &a.Tools[i]
		if !a.Callable(t) {
			n.Lose("tool "+t.Name, "the agent cannot call it")
			continue
		}
		name := t.Name
		if on, ok := t.Binding.(agent.OnServer); ok {
			// Tools of one name are distinguished by their server.
			if named[name] > 1 {
				name = on.Alias + "_" + name
			}
		} else if _, ok := t.Binding.(agent.RunProgram); !ok {
			n.Lose("tool "+t.Name, "its binding (%s); the program must implement it", t.Binding.Kind())
		}
		add(&m.Capabilities.Required, "tool."+actionName(name))
	}
}

// fromRequirements adds a capability for each scope on each server.
func (m *Manifest) fromRequirements(a *agent.Agent, n *convert.Notes) {
	for _, r := range a.Requirements {
		list := &m.Capabilities.Required
		if r.Optional {
			list = &m.Capabilities.Optional
		}
		server := "tool." + actionName(r.Server[strings.LastIndexByte(r.Server, '/')+1:])
		if len(r.Scopes) == 0 {
			add(list, server)
		}
		for _, scope := range r.Scopes {
			add(list, server+"."+actionName(scope))
		}
		n.Lose("server "+r.Server, "its registry and the version %s; the program must connect to it", diag.Quote(r.Version))
	}
	// Two servers of one name in different registries may put an action into both
	// lists.
	m.Capabilities.Optional = slices.DeleteFunc(m.Capabilities.Optional, func(s string) bool { return slices.Contains(m.Capabilities.Required, s) })
}

func add(list *[]string, action string) {
	if !slices.Contains(*list, action) {
		*list = append(*list, action)
	}
}

// actionName converts any text to the part of an action after its namespace.
func actionName(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x80 && isIDPart(string(r)) {
			return r
		}
		return '_'
	}, s)
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == '.' })
	if len(parts) == 0 {
		return "_"
	}
	return strings.Join(parts, ".")
}

// fromReach opens the network no further than the agent needs, as far as Covenant
// distinguishes hosts.
func (m *Manifest) fromReach(r agent.Reach, n *convert.Notes) {
	switch {
	case r.AnyHost:
		n.Add("resources.network", "%s: %s", m.Resources.Network, r.AnyHostReason)
	case len(r.Hosts) == 0:
		m.Resources.Network = string(agent.NetworkOff)
		n.Add("resources.network", "%s, since the agent names no host", m.Resources.Network)
	default:
		hosts := make([]string, len(r.Hosts))
		for i, h := range r.Hosts {
			hosts[i] = h.Name
		}
		n.Lose("network_hosts", "%s; Covenant opens the network to every https host, or to none", strings.Join(hosts, ", "))
	}
}

func (m *Manifest) fromProgram(p *agent.Program, n *convert.Notes) {
	if p == nil {
		n.Add("agent.entry", "%s: a Covenant agent is a program that reads one line of JSON and writes one; write it", newEntry)
		return
	}
	if runtime := string(p.Runtime); slices.Contains(runtimes, runtime) {
		m.Agent.Runtime = runtime
	}
	if namesFile(p.Entry) {
		m.Agent.Entry = p.Entry
	} else {
		n.Add("agent.entry", "%s: the bundle names no file of its own", newEntry)
	}
	n.Lose("contract", "the bundle uses MCP (%s), but a Covenant program reads and writes one line of JSON; change it", p.Contract)
	if p.RuntimeVersion != "" {
		n.Lose("runtime version", "%s", diag.Quote(p.RuntimeVersion))
	}
	if p.Command != "" {
		n.Lose("command", "%s; Covenant starts entry directly", diag.Quote(p.Command))
	}
	if p.UI != "" {
		n.Lose("ui", "%s; Covenant agents have no pages", diag.Quote(p.UI))
	}
	for _, e := range p.Env {
		n.Lose("env "+e.Name, "Covenant passes no settings to a program")
	}
}

func loseServers(a *agent.Agent, n *convert.Notes) {
	for i := range a.Servers {
		s := &a.Servers[i]
		n.Lose("server "+s.Alias, "its command or address, settings, version %s, digest and the classes of its tools; the program must connect to it", diag.Quote(s.Version))
	}
	if a.SideEffects.Restricted {
		n.Lose("allowed_side_effects", "Covenant has no classes of side effects, only capabilities and a network setting")
	}
}

// loseWords records the texts for people and models.
func loseWords(a *agent.Agent, n *convert.Notes) {
	if a.Description != "" {
		n.Lose("description", "Covenant has no descriptions (%d characters)", len([]rune(a.Description)))
	}
	if described := countDescribed(a.Tools); described > 0 {
		n.Lose("descriptions of tools", "Covenant has no descriptions (%d)", described)
	}
	if a.Prompt != "" {
		n.Lose("system_prompt", "Covenant has no instructions (%d characters)", len([]rune(a.Prompt)))
	}
	if len(a.Examples) > 0 {
		n.Lose("example_prompts", "Covenant has no examples (%d)", len(a.Examples))
	}
}

func countDescribed(tools []agent.Tool) (n int) {
	for i := range tools {
		if tools[i].Description != "" {
			n++
		}
	}
	return n
}
