package gpars

import (
	"slices"
	"strconv"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/convert"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/read"
)

// Compile converts a valid manifest to the neutral model. The model has requirements but no tools, because the tools
// are unknown until the servers are found.
func (m *Manifest) Compile() *agent.Agent {
	a := &agent.Agent{
		Dialect: agent.GPARS,
		ID:      m.ID,
		Name:    nameOf(m.ID),
		Version: m.Version,
		Kind:    agent.ToolServers,
	}
	var reach map[string]*read.Rights
	if m.Extensions != nil && m.Extensions.Ambit != nil {
		reach = m.Extensions.Ambit.Reach
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
	for i := range a.Requirements {
		q := &a.Requirements[i]
		q.Proposed = reach[q.Server].Access()
	}
	return a
}

func (s *ServerEntry) compile(optional bool) agent.Requirement {
	return agent.Requirement{
		Server: s.ServerID, Version: addSpaces(s.Version), Scopes: s.PermissionScopes, Optional: optional,
	}
}

// nameOf derives an agent's name from its id. Slashes, colons and # separate the parts of an id. The name is the last
// part that is not just a version number. In each part, @ and the text after it are dropped. For
// org:example/agent:researcher-v1, the name is researcher-v1.
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

// From converts an agent of another dialect to this dialect. Parts for which this dialect has no field are lost. The
// notes in n list the lost and added parts.
//
// A GPARS manifest lists only servers, so an agent without tool servers is refused. The registry id of a server is
// guessed from the server's command. The scopes are guessed from the side-effect classes of the tools.
func From(a *agent.Agent, n *convert.Notes) (*Manifest, error) {
	if len(a.Servers) == 0 {
		return nil, refusal(a)
	}
	m := &Manifest{ID: a.ID, RequiredMCPServers: []ServerEntry{}}
	if isVersion(a.Version) {
		m.Version = a.Version
	} else if a.Version != "" {
		n.Lose("version", "%s does not have the form X.Y.Z", diag.Quote(a.Version))
	}
	for i := range a.Servers {
		s := &a.Servers[i]
		scopes := classesOf(a, s.Alias)
		if len(scopes) == 0 {
			n.Lose("server "+s.Alias, "the agent is not allowed to call any of the server's tools")
			continue
		}
		m.require(s, scopes, n)
		loseServer(a, s, n)
	}
	if len(m.RequiredMCPServers) == 0 {
		return nil, convert.Refuse("a GPARS manifest lists servers, but this agent is not allowed to call any server's tools")
	}
	for i := range a.Tools {
		if native, ok := a.Tools[i].Binding.(agent.Native); ok {
			n.Lose("native tool "+native.Namespace+"/"+a.Tools[i].Name, "GPARS supports only tools on MCP servers")
		}
	}
	if a.SideEffects.Restricted {
		n.Lose("allowed_side_effects", "GPARS has no classes of side effects; every call is decided by the user's policy")
	}
	if a.Description != "" {
		n.Lose("description", "GPARS has no field for a description (%d characters)", len([]rune(a.Description)))
	}
	n.LoseDefinitions(a, "GPARS lists no tools")
	n.LoseShared(a, "GPARS has no field for this part and relies on the user's policy")
	return m, nil
}

// refusal returns an error that explains why an agent without tool servers cannot be converted to GPARS.
func refusal(a *agent.Agent) error {
	const serve = "; run this agent as a server (ambit run), and list that server in the manifest of another agent"
	why := "this agent uses none"
	switch a.Dialect {
	case agent.Covenant:
		why = "a Covenant agent is a program without servers" + serve
	case agent.FindAgent:
		why = "a FindAgent agent has its own tools" + serve
	}
	return convert.Refuse("a GPARS manifest lists the MCP servers that an agent needs, but %s", why)
}

// classesOf returns the side-effect classes of a server's tools. It skips tools that the agent is not allowed to call.
func classesOf(a *agent.Agent, alias string) []string {
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

// require adds an entry for a server. If the manifest already has an entry with the same server id, require extends
// that entry instead.
func (m *Manifest) require(s *agent.Server, scopes []string, n *convert.Notes) {
	id := guessID(s)
	version := s.Version
	if ok, _ := isConstraint(version); !ok {
		n.Lose("server "+s.Alias+": version", "%s is not a version constraint; the new manifest accepts any version",
			diag.Quote(version))
		version = anyVersion
	}
	i := slices.IndexFunc(m.RequiredMCPServers, func(e ServerEntry) bool { return e.ServerID == id })
	if i < 0 {
		m.RequiredMCPServers = append(m.RequiredMCPServers, ServerEntry{id, version, scopes})
		at := "required_mcp_servers/" + strconv.Itoa(len(m.RequiredMCPServers)-1)
		n.Add(at+"/server_id", "%s is a guess based on the command or alias of the server %s; check it", id, s.Alias)
		n.Add(at+"/permission_scopes",
			"inferred from the side-effect classes of the tools; replace them with the scopes that the server defines")
		return
	}
	e := &m.RequiredMCPServers[i]
	n.Lose("server "+s.Alias, "the server has the same package as an earlier server, so both became one entry")
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

// guessID guesses the registry id of a server from the npm package in its arguments. If there is no npm package,
// guessID uses the alias.
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

// loseServer records which properties of a server are lost, because GPARS has no fields for them.
func loseServer(a *agent.Agent, s *agent.Server, n *convert.Notes) {
	what := "server " + s.Alias + ": "
	if s.Transport == agent.StreamableHTTP {
		n.Lose(what+"endpoint", "%s, because the registry knows the server's address", diag.Quote(s.Endpoint))
	} else {
		n.Lose(what+"command", "%s, because the registry knows how to start the server",
			diag.Quote(strings.Join(append([]string{s.Command}, s.Args...), " ")))
	}
	if names := settingNames(s.Env); names != "" {
		n.Lose(what+"env", "%s; the server's operator sets these variables", names)
	}
	if names := settingNames(s.Headers); names != "" {
		n.Lose(what+"headers", "%s; the server's operator sets these headers", names)
	}
	if s.Digest != "" && !s.Placeholder {
		n.Lose(what+"package_digest", "GPARS has no field for package digests")
	}
	if len(s.Proposed) > 0 {
		n.Lose(what+"x-ambit", "the id is a guess, so the proposed rights could belong to another server")
	}
	var tools []string
	for i := range a.Tools {
		if on, ok := a.Tools[i].Binding.(agent.OnServer); ok && on.Alias == s.Alias {
			tools = append(tools, a.Tools[i].Name+" ("+string(a.Tools[i].SideEffect)+")")
		}
	}
	n.Lose(what+"tools", "%s; a GPARS manifest does not list tools or their classes", strings.Join(tools, ", "))
}

// settingNames lists the names of settings without the values, because values can be private.
func settingNames(settings []agent.Setting) string {
	names := make([]string, len(settings))
	for i, s := range settings {
		names[i] = s.Name
	}
	return strings.Join(names, ", ")
}
