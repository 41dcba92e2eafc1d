package gateway

import (
	"cmp"
	"errors"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/tooluri"
)

const stageResolve = "resolve"

// resolve returns the declared tool with the given name or URI. A URI must pin the declared version or the digest of
// the declared package. If several servers have a tool with the same name, the caller must use <alias>_<tool> or
// <alias>/<tool>.
func resolve(a *agent.Agent, asked string) (*agent.Tool, *call.Refusal) {
	if strings.Contains(asked, "://") {
		return resolveURI(a, asked)
	}
	var found []*agent.Tool
	for i := range a.Tools {
		// Check the suffix first, because this check is fast and rules out most tools.
		if t := &a.Tools[i]; strings.HasSuffix(asked, t.Name) && (t.Name == asked || ServedName(a, t) == asked) {
			found = append(found, t)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		if t := OnServer(a, asked); t != nil {
			return t, nil
		}
		var names []string
		for i := range a.Tools {
			names = append(names, a.Tools[i].Name)
		}
		r := call.Refuse(stageResolve, call.UnknownTool, "the agent declares no tool %s", diag.Quote(asked))
		r.Hint = cmp.Or(diag.DidYouMean(asked, names), r.Hint)
		return nil, r
	}
	// A served name takes precedence over another tool's plain name.
	for _, t := range found {
		if ServedName(a, t) == asked {
			return t, nil
		}
	}
	r := call.Refuse(stageResolve, call.UnknownTool, "more than one server has a tool named %s", diag.Quote(asked))
	r.Hint = "use the name " + ServedName(a, found[0]) + " or the tool's URI"
	return nil, r
}

// OnServer returns the tool with a name such as filesystem/list_directory, or nil. The first part is the server's
// alias. If the alias is a registry id, the part after its last slash is enough, unless it matches tools of two
// servers.
func OnServer(a *agent.Agent, asked string) *agent.Tool {
	var short []*agent.Tool
	for i := range a.Tools {
		t := &a.Tools[i]
		on, ok := t.Binding.(agent.OnServer)
		server, suffix := strings.CutSuffix(asked, "/"+t.Name)
		switch {
		case !ok || !suffix:
		case server == on.Alias:
			return t
		case strings.HasSuffix(on.Alias, "/"+server):
			short = append(short, t)
		}
	}
	if len(short) != 1 {
		return nil
	}
	return short[0]
}

func resolveURI(a *agent.Agent, asked string) (*agent.Tool, *call.Refusal) {
	u, err := tooluri.Parse(asked)
	switch {
	case errors.Is(err, tooluri.ErrUnpinnedTool):
		return nil, call.Refuse(stageResolve, call.UnpinnedTool, "%s has no exact version", diag.Quote(asked))
	case err != nil:
		return nil, call.Refuse(stageResolve, call.InvalidURI, "%v", err)
	}
	var other *agent.Tool
	for i := range a.Tools {
		t := &a.Tools[i]
		if t.URI == nil || t.URI.Name != u.Name || t.URI.Server != u.Server || t.URI.Namespace != u.Namespace {
			continue
		}
		if t.URI.Pin == u.Pin || u.Pin.Digest() && u.Pin.String() == packageDigest(a, t) {
			return t, nil
		}
		other = t
	}
	if other != nil {
		r := call.Refuse(stageResolve, call.VersionMismatch,
			"the manifest declares %s at %s, not at %s", diag.Quote(u.Name), other.URI.Pin, u.Pin)
		r.Hint = "call " + other.URI.String()
		return nil, r
	}
	return nil, call.Refuse(stageResolve, call.UnknownTool, "the agent declares no tool %s", diag.Quote(asked))
}

// packageDigest returns the digest that a URI can contain instead of a version. It is the digest of the server's
// package or of the native tool. The result is empty if there is no such digest.
func packageDigest(a *agent.Agent, t *agent.Tool) string {
	switch b := t.Binding.(type) {
	case agent.OnServer:
		if s := a.Server(b.Alias); s != nil && !s.Placeholder {
			return s.Digest
		}
	case agent.Native:
		return b.Digest
	}
	return ""
}

// ServedName returns the name under which a tool is served over MCP. The name is <alias>_<tool> if the tool is on a
// server and another tool of the agent has the same name. In all other cases, it is the tool's own name.
func ServedName(a *agent.Agent, t *agent.Tool) string {
	on, ok := t.Binding.(agent.OnServer)
	if !ok {
		return t.Name
	}
	for i := range a.Tools {
		if other := &a.Tools[i]; other != t && other.Name == t.Name {
			return prefix(a, on.Alias) + "_" + t.Name
		}
	}
	return t.Name
}

// ServedNames returns a function with the same results as [ServedName]. It is faster for many tools, because it
// counts the names only once.
func ServedNames(a *agent.Agent) func(*agent.Tool) string {
	times := make(map[string]int, len(a.Tools))
	for i := range a.Tools {
		times[a.Tools[i].Name]++
	}
	return func(t *agent.Tool) string {
		if times[t.Name] < 2 {
			return t.Name
		}
		return ServedName(a, t)
	}
}

// prefix converts a server's alias to a text with only the characters that clients accept in tool names. An alias can
// be a registry id with slashes and dots. If the part after the last slash is unique, prefix uses only this part.
func prefix(a *agent.Agent, alias string) string {
	at := strings.LastIndexByte(alias, '/')
	if at < 0 {
		return alias
	}
	short := alias[at+1:]
	for i := range a.Servers {
		if other := a.Servers[i].Alias; other != alias && other[strings.LastIndexByte(other, '/')+1:] == short {
			short = alias
			break
		}
	}
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r|0x20 && r|0x20 <= 'z' {
			return r
		}
		return '_'
	}, short)
}
