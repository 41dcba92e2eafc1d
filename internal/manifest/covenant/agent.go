package covenant

import (
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/convert"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/tooluri"
)

const inputSchema = `{"type":"object","properties":{"text":{"type":"string"},` +
	`"priority":{"enum":["low","normal","high"]}},"required":["text"]}`

// Compile converts a valid manifest to the neutral model. The result is a program with one tool, which is named after
// the agent.
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
		Program: &agent.Program{
			Runtime: agent.Runtime(m.Agent.Runtime), Entry: m.Agent.Entry, Contract: agent.OneLine,
			Isolation: m.Sandbox.isolation(),
		},
		Capabilities: agent.Capabilities{Required: m.Capabilities.Required, Optional: m.Capabilities.Optional},
		Resources: &agent.Resources{
			WallClock: agent.Milliseconds(m.Resources.CPUMsPerTask), MemoryMB: m.Resources.MemoryMB, DiskMB: m.Resources.DiskMB,
			Network: agent.NetworkAccess(m.Resources.Network),
		},
		Settlement: &agent.Settlement{
			CreditsPerHour: m.Settlement.BudgetCreditsPerHour, Priority: agent.Priority(m.Settlement.Priority),
		},
	}
}

// isolation returns the weakest sandbox that the manifest allows, or "".
func (s *Sandbox) isolation() agent.Isolation {
	switch {
	case s == nil || !s.Required:
		return ""
	case s.Backend == gVisor:
		return agent.StrongIsolation
	}
	return agent.StandardIsolation
}

// toolName returns the display name of an agent if MCP allows the name for a tool. Otherwise the name is converted to
// a slug.
func toolName(name string) string {
	if tooluri.IsName(name) {
		return name
	}
	return agent.Slug(name)
}

// sideEffect returns the class of the worst effect that a program can have in its sandbox. The program can always
// write to its disk, so the class is never agent.Read. With network access, the program can change data elsewhere.
// The class is never agent.Shell, because the caller sends only text and no command.
func sideEffect(access agent.NetworkAccess) agent.SideEffect {
	if access == agent.NetworkOff {
		return agent.Write
	}
	return agent.Network
}

// These values describe a program that the user still has to write.
const (
	newRuntime = "python3"
	newEntry   = "main.py"
	newVersion = "0.1.0"
)

// From converts an agent of another dialect to this dialect. Parts for which this dialect has no field are lost. The
// notes n list each lost part and each added field.
//
// A Covenant agent is a program. A manifest in another dialect only describes what the program would do. The result
// therefore contains only the agent's identity and a capability for each callable tool. A code bundle is already a
// program, but uses a different protocol.
func From(a *agent.Agent, n *convert.Notes) (*Manifest, error) {
	m := &Manifest{
		Agent: Agent{
			ID: agent.Slug(a.Name) + "@local", Name: a.Name, Version: a.Version, Runtime: newRuntime, Entry: newEntry,
		},
		Resources:  defaultResources(),
		Settlement: defaultSettlement(),
	}
	m.fromTools(a, n)
	m.fromRequirements(a, n)
	if len(m.Capabilities.Required)+len(m.Capabilities.Optional) == 0 && a.Program == nil {
		return nil, convert.Refuse("a Covenant agent is a program with capabilities, " +
			"but this agent has no program, no callable tool and no required server")
	}
	n.Add("agent.id", "%s is derived from the name; replace the part after @ with your own host", m.Agent.ID)
	if !isSemVer(m.Agent.Version) {
		m.Agent.Version = newVersion
		n.Add("agent.version", "%s, because the agent has no SemVer version", newVersion)
	}
	m.fromReach(a.Reach(), n)
	m.fromProgram(a.Program, n)
	loseServers(a, n)
	loseWords(a, n)
	n.LoseDefinitions(a, "a Covenant capability is only a name")
	n.LoseShared(a, "Covenant has no field for this part, so the program must implement it")
	return m, nil
}

func (m *Manifest) fromTools(a *agent.Agent, n *convert.Notes) {
	named := map[string]int{}
	for i := range a.Tools {
		named[a.Tools[i].Name]++
	}
	for i := range a.Tools {
		t := &a.Tools[i]
		if !a.Callable(t) {
			n.Lose("tool "+t.Name, "the agent cannot call this tool")
			continue
		}
		name := t.Name
		if on, ok := t.Binding.(agent.OnServer); ok {
			// If several tools have this name, the server's alias distinguishes them.
			if named[name] > 1 {
				name = on.Alias + "_" + name
			}
		} else if _, ok := t.Binding.(agent.RunProgram); !ok {
			n.Lose("tool "+t.Name, "Covenant has no bindings (%s); the program must implement the tool", t.Binding.Kind())
		}
		add(&m.Capabilities.Required, "tool."+actionName(name))
	}
}

// fromRequirements adds a capability for each scope on each required server.
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
		n.Lose("server "+r.Server, "a Covenant manifest cannot specify the server's registry and its version %s; "+
			"the agent's program must connect to the server itself", diag.Quote(r.Version))
	}
	// If two registries have servers with the same name, an action can be both required and optional. Keep it only as
	// required.
	m.Capabilities.Optional = slices.DeleteFunc(m.Capabilities.Optional,
		func(s string) bool { return slices.Contains(m.Capabilities.Required, s) })
}

func add(list *[]string, action string) {
	if !slices.Contains(*list, action) {
		*list = append(*list, action)
	}
}

// actionName converts any text to a valid action name, without the namespace.
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

// fromReach sets the narrowest network access that covers what the agent needs. Covenant cannot name individual hosts.
func (m *Manifest) fromReach(r agent.Reach, n *convert.Notes) {
	switch {
	case r.AnyHost:
		n.Add("resources.network", "%s: %s", m.Resources.Network, r.AnyHostReason)
	case len(r.Hosts) == 0:
		m.Resources.Network = string(agent.NetworkOff)
		n.Add("resources.network", "%s, because the agent names no host", m.Resources.Network)
	default:
		hosts := make([]string, len(r.Hosts))
		for i, h := range r.Hosts {
			hosts[i] = h.Name
		}
		n.Lose("network_hosts", "%s; Covenant allows either all https hosts or none", strings.Join(hosts, ", "))
	}
}

func (m *Manifest) fromProgram(p *agent.Program, n *convert.Notes) {
	if p == nil {
		n.Add("agent.entry", "%s, a program that you must provide; "+
			"it reads one line of JSON from stdin and prints one line of JSON", newEntry)
		return
	}
	if runtime := string(p.Runtime); slices.Contains(runtimes, runtime) {
		m.Agent.Runtime = runtime
	}
	if namesFile(p.Entry) {
		m.Agent.Entry = p.Entry
	} else {
		n.Add("agent.entry", "%s is a placeholder, because the bundle does not name a file; replace it", newEntry)
	}
	n.Lose("contract", "the bundle uses MCP (%s), but a Covenant program reads and writes one line of JSON; "+
		"change the program", p.Contract)
	if p.RuntimeVersion != "" {
		n.Lose("runtime version", "%s", diag.Quote(p.RuntimeVersion))
	}
	if p.Command != "" {
		n.Lose("command", "%s, because Covenant runs the program in \"entry\" directly", diag.Quote(p.Command))
	}
	if p.UI != "" {
		n.Lose("ui", "%s, because Covenant agents have no user interface", diag.Quote(p.UI))
	}
	for _, e := range p.Env {
		n.Lose("env "+e.Name, "Covenant passes no settings to a program")
	}
}

func loseServers(a *agent.Agent, n *convert.Notes) {
	for i := range a.Servers {
		s := &a.Servers[i]
		n.Lose("server "+s.Alias, "Covenant has no field for the command, address, settings, version (%s), digest or "+
			"tool classes, so the program itself must connect to the server", diag.Quote(s.Version))
	}
	if a.SideEffects.Restricted {
		n.Lose("allowed_side_effects", "Covenant has no classes of side effects, only capabilities and a network setting")
	}
}

func loseWords(a *agent.Agent, n *convert.Notes) {
	if a.Description != "" {
		n.Lose("description", "Covenant has no field for a description (%d characters)", len([]rune(a.Description)))
	}
	if described := countDescribed(a.Tools); described > 0 {
		n.Lose("descriptions of tools", "Covenant has no field for the descriptions of %d tools", described)
	}
	if a.Prompt != "" {
		n.Lose("system_prompt", "Covenant has no field for instructions (%d characters)", len([]rune(a.Prompt)))
	}
	if len(a.Examples) > 0 {
		n.Lose("example_prompts", "Covenant has no field for the %d example prompts", len(a.Examples))
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
