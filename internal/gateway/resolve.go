package gateway

import (
	"errors"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/tooluri"
)

const stageResolve = "resolve"

// resolve finds the declared tool that a name or URI means. A URI must pin the
// declared version, or the digest of the declared package. A bare name is that
// of a tool on exactly one server, or <alias>_<tool> where several have it.
func resolve(a *agent.Agent, asked string) (*agent.Tool, *call.Refusal) {
	if strings.Contains(asked, "://") {
		return resolveURI(a, asked)
	}
	var found []*agent.Tool
	for i := range a.Tools {
		// Most names differ in their ends.
		if t := &a.Tools[i]; strings.HasSuffix(asked, t.Name) && (t.Name == asked || ServedName(a, t) == asked) {
			found = append(found, t)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		var names []string
		for i := range a.Tools {
			names = append(names, a.Tools[i].Name)
		}
		r := call.Refuse(stageResolve, call.UnknownTool, "the agent declares no tool %s", diag.Quote(asked))
		if near := diag.DidYouMean(asked, names); near != "" {
			r.Hint = near
		}
		return nil, r
	}
	// The full name of one may be the bare name of another: the full one wins.
	for _, t := range found {
		if ServedName(a, t) == asked {
			return t, nil
		}
	}
	r := call.Refuse(stageResolve, call.UnknownTool, "%s is a tool of more than one server", diag.Quote(asked))
	r.Hint = "call it as " + ServedName(a, found[0]) + " or by its URI"
	return nil, r
}

func resolveURI(a *agent.Agent, asked string) (*agent.Tool, *call.Refusal) {
	u, err := tooluri.Parse(asked)
	switch {
	case errors.Is(err, tooluri.ErrUnpinnedTool):
		return nil, call.Refuse(stageResolve, call.UnpinnedTool, "%s names no exact version", diag.Quote(asked))
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

// packageDigest is the digest that a pin can name: of the server's package, or
// of a native tool.
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

// ServedName is the name under which a tool is served over MCP: its own, or
// <alias>_<tool> where two servers of the agent have one of the same name.
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

// ServedNames is ServedName for all tools of an agent: it looks for shared names
// once.
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

// prefix is an alias in a form that clients take in the name of a tool. One that is
// the id of a registry has slashes and dots, which many do not: its last part will
// do, if no other server has it, and otherwise all of it.
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
