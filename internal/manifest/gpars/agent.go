package gpars

import (
	"slices"
	"strconv"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/convert"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Compile makes the neutral model of a valid manifest. It has requirements and
// no tools: those are known once the servers are found.
func (m *Manifest) Compile() *agent.Agent {
	a := &agent.Agent{
		Dialect: agent.GPARS,
		ID:      m.ID,
		Name:    nameOf(m.ID),
		Version: m.Version,
		Kind:    agent.ToolServers,
	}
	required := make(map[string]bool, len(m.RequiredMCPServers))
	for _, s := range m.RequiredMCPServers {
		required[s.ServerID] = true
		a.Requirements = append(a.Requirements, s.compile(false))
	}
	for _, s := range m.OptionalMCPServers {
		if !required[s.ServerID] {
			a.Requirements = append(a.Requirements, s.compile(true))
		}
	}
	return a
}

func (s *ServerEntry) compile(optional bool) agent.Requirement {
	return agent.Requirement{Server: s.ServerID, Version: resolvable(s.Version), Scopes: s.PermissionScopes, Optional: optional}
}

// nameOf is the last part of an id that is a name: researcher-v1 of
// org:example/agent:researcher-v1. A bare version is no name, nor does what
// follows an @.
func nameOf(id string) string {
	parts := strings.FieldsFunc(id, func(r rune) bool { return r == '/' || r == ':' || r == '#' })
	for _, part := range slices.Backward(parts) {
		name, _, _ := strings.Cut(part, "@")
		name = strings.TrimSpace(name)
		if strings.Trim(strings.TrimPrefix(name, "v"), "0123456789.") != "" {
			return name
		}
	}
	return id
}

const (
	registry   = "registry.openmcp.org/"
	npmServers = "@modelcontextprotocol/server-"
	anyVersion = ">=0.0.0"
)

// From converts an agent of another dialect as far as this dialect can express it.
//
// Only an agent that uses tool servers has anything to say here: a server that
// somebody else provides is all a GPARS manifest knows. Which server of a
// registry is the one that the agent started by itself is a guess, and so are
// its scopes, which are taken from the classes of the tools.
func From(a *agent.Agent, n *convert.Notes) (*Manifest, error) {
	if len(a.Servers) == 0 {
		return nil, refusal(a)
	}
	m := &Manifest{ID: a.ID, RequiredMCPServers: []ServerEntry{}}
	if isVersion(a.Version) {
		m.Version = a.Version
	} else if a.Version != "" {
		n.Lose("version", "%s is not three numbers", diag.Quote(a.Version))
	}
	for i := range a.Servers {
		s := &a.Servers[i]
		scopes := classes(a, s.Alias)
		if len(scopes) == 0 {
			n.Lose("server "+s.Alias, "the agent may call none of its tools")
			continue
		}
		m.require(s, scopes, n)
		loseServer(a, s, n)
	}
	if len(m.RequiredMCPServers) == 0 {
		return nil, convert.Refuse("a GPARS manifest lists servers that the agent needs, and this agent may call no tool of any server")
	}
	for i := range a.Tools {
		if native, ok := a.Tools[i].Binding.(agent.Native); ok {
			n.Lose("native tool "+native.Namespace+"/"+a.Tools[i].Name, "GPARS knows only tools on MCP servers")
		}
	}
	if a.SideEffects.Restricted {
		n.Lose("allowed_side_effects", "GPARS has no classes of side effects; the user's policy decides on every call")
	}
	if a.Description != "" {
		n.Lose("description", "GPARS manifests describe nothing (%d characters)", len([]rune(a.Description)))
	}
	n.LoseDefinitions(a, "GPARS lists no tools")
	n.LoseShared(a, "GPARS leaves it to the user's policy")
	return m, nil
}

// refusal explains why nothing of an agent without tool servers survives.
func refusal(a *agent.Agent) error {
	switch a.Dialect {
	case agent.Covenant:
		return convert.Refuse("a GPARS manifest lists MCP servers that an agent needs, and a Covenant agent is a program that needs none; serve it with ambit run, and list it as a server in the manifest of another agent")
	case agent.FindAgent:
		return convert.Refuse("a GPARS manifest lists MCP servers that an agent needs, and a FindAgent agent carries its tools itself; serve it with ambit run, and list it as a server in the manifest of another agent")
	default:
		return convert.Refuse("a GPARS manifest lists MCP servers that an agent needs, and this agent uses none")
	}
}

// classes lists the side-effect classes of those tools of a server that the
// agent may call.
func classes(a *agent.Agent, alias string) []string {
	used := map[agent.SideEffect]bool{}
	for i := range a.Tools {
		t := &a.Tools[i]
		if on, ok := t.Binding.(agent.OnServer); ok && on.Alias == alias && a.Callable(t) {
			used[t.SideEffect] = true
		}
	}
	var list []string
	for _, class := range agent.SideEffects {
		if used[class] {
			list = append(list, string(class))
		}
	}
	return list
}

// require adds the entry of a server, or widens the one it shares with an
// earlier server of the same package.
func (m *Manifest) require(s *agent.Server, scopes []string, n *convert.Notes) {
	id := guessID(s)
	version := s.Version
	if ok, _ := isConstraint(version); !ok {
		n.Lose("server "+s.Alias+": version", "%s cannot be a constraint; any version is accepted", diag.Quote(version))
		version = anyVersion
	}
	i := slices.IndexFunc(m.RequiredMCPServers, func(e ServerEntry) bool { return e.ServerID == id })
	if i < 0 {
		m.RequiredMCPServers = append(m.RequiredMCPServers, ServerEntry{id, version, scopes})
		at := "required_mcp_servers/" + strconv.Itoa(len(m.RequiredMCPServers)-1)
		n.Add(at+"/server_id", "%s is a guess from how the server %s is started; check it", id, s.Alias)
		n.Add(at+"/permission_scopes", "inferred from the side-effect classes of its tools; use the scopes that the server defines")
		return
	}
	e := &m.RequiredMCPServers[i]
	n.Lose("server "+s.Alias, "it is the same package as an earlier server; the two became one entry")
	for _, scope := range scopes {
		if !slices.Contains(e.PermissionScopes, scope) {
			e.PermissionScopes = append(e.PermissionScopes, scope)
		}
	}
	if either := e.Version + " || " + version; version == anyVersion || e.Version == anyVersion {
		e.Version = anyVersion
	} else if ok, _ := isConstraint(either); ok && !slices.Contains(strings.Split(e.Version, " || "), version) {
		e.Version = either
	}
}

// guessID takes the name of a well-known package, or else the alias.
func guessID(s *agent.Server) string {
	for _, arg := range s.Args {
		if name, ok := strings.CutPrefix(arg, npmServers); ok {
			name, _, _ = strings.Cut(name, "@")
			if isServerID(registry + name) {
				return registry + name
			}
		}
	}
	return registry + s.Alias
}

// loseServer records what GPARS does not say of a server.
func loseServer(a *agent.Agent, s *agent.Server, n *convert.Notes) {
	what := "server " + s.Alias + ": "
	if s.Transport == agent.StreamableHTTP {
		n.Lose(what+"endpoint", "%s; a registry locates the server", diag.Quote(s.Endpoint))
	} else {
		n.Lose(what+"command", "%s; a registry says how a server is started", diag.Quote(strings.Join(append([]string{s.Command}, s.Args...), " ")))
	}
	if names := settingNames(s.Env); names != "" {
		n.Lose(what+"env", "%s; the server's operator sets it", names)
	}
	if names := settingNames(s.Headers); names != "" {
		n.Lose(what+"headers", "%s; the server's operator sets it", names)
	}
	if s.Digest != "" && !s.Placeholder {
		n.Lose(what+"package_digest", "GPARS pins no packages")
	}
	var tools []string
	for i := range a.Tools {
		if on, ok := a.Tools[i].Binding.(agent.OnServer); ok && on.Alias == s.Alias {
			tools = append(tools, a.Tools[i].Name+" ("+string(a.Tools[i].SideEffect)+")")
		}
	}
	n.Lose(what+"tools", "%s; GPARS lists no tools and no classes", strings.Join(tools, ", "))
}

// settingNames leaves out the values, which may be private.
func settingNames(settings []agent.Setting) string {
	names := make([]string, len(settings))
	for i, s := range settings {
		names[i] = s.Name
	}
	return strings.Join(names, ", ")
}
