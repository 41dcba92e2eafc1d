package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
)

// listed returns a server's tools in the catalogue.
func (r *Resolver) listed(id string) []agent.Tool {
	e := r.Catalog.Entries[id]
	if e == nil {
		return nil
	}
	tools := make([]agent.Tool, 0, len(e.Tools))
	for _, name := range slices.Sorted(maps.Keys(e.Tools)) {
		tools = append(tools, agent.Tool{Name: name, SideEffect: e.Tools[name], Binding: agent.OnServer{Alias: id}})
	}
	return tools
}

// lockedTools returns the tools of a lock, with classes from the catalogue if it has
// any.
func lockedTools(id string, locked *pack.LockedServer, e *catalog.Entry) ([]agent.Tool, map[string][]byte) {
	definitions := map[string][]byte{}
	for name, t := range locked.Tools {
		definitions[name] = t.Definition
	}
	return Tools(id, definitions, e), definitions
}

// Tools returns the tools of a server as it defines them. The class is the
// catalogue's. Without one, the server's own annotations are only a hint: a tool that
// claims to only read is classed as read, any other as write.
func Tools(id string, definitions map[string][]byte, e *catalog.Entry) []agent.Tool {
	var tools []agent.Tool
	for _, name := range slices.Sorted(maps.Keys(definitions)) {
		var d struct {
			Description string            `json:"description"`
			Annotations agent.Annotations `json:"annotations"`
		}
		if json.Unmarshal(definitions[name], &d) != nil {
			d.Annotations = agent.Annotations{}
		}
		t := agent.Tool{Name: name, Description: d.Description, Annotations: d.Annotations, SideEffect: Class(d.Annotations), Binding: agent.OnServer{Alias: id}}
		if e != nil && e.Tools[name] != "" {
			t.SideEffect = e.Tools[name]
		}
		tools = append(tools, t)
	}
	return tools
}

// Class returns the side-effect class for a tool's annotations.
func Class(a agent.Annotations) agent.SideEffect {
	is := func(b *bool) bool { return b != nil && *b }
	switch {
	case is(a.ReadOnly) && is(a.OpenWorld):
		return agent.Network
	case is(a.ReadOnly):
		return agent.Read
	}
	return agent.Write
}

// The definitions of a server's tools are remembered for its recipe when the server is
// verified. The gateway uses them before the server starts again; the started server
// is verified against them.

func (r *Resolver) memory(id string, recipe Recipe) string {
	key, err := json.Marshal(struct {
		ID     string
		Recipe Recipe
	}{id, recipe})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(key)
	return filepath.Join(r.Home.Dir(), "registry", "seen", hex.EncodeToString(sum[:16])+".json")
}

// seen returns the tools that the server of a recipe last had on this machine.
func (r *Resolver) seen(id string, recipe Recipe) ([]agent.Tool, map[string][]byte) {
	if recipe.Kind == "" {
		return nil, nil
	}
	var raw map[string]json.RawMessage
	text, err := os.ReadFile(r.memory(id, recipe))
	if err != nil || json.Unmarshal(text, &raw) != nil || len(raw) == 0 {
		return nil, nil
	}
	definitions := make(map[string][]byte, len(raw))
	for name, d := range raw {
		definitions[name] = d
	}
	return Tools(id, definitions, r.Catalog.Entries[id]), definitions
}

// Remember stores the definitions of a verified server.
func (r *Resolver) Remember(f *Found, definitions map[string][]byte) error {
	raw := make(map[string]json.RawMessage, len(definitions))
	for name, d := range definitions {
		raw[name] = d
	}
	text, err := json.Marshal(raw)
	if err != nil {
		return err
	}
	return write(r.memory(f.Requirement.Server, f.Recipe), text)
}

// write replaces a file atomically and creates its folder.
func write(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return home.Replace(file, 0o600, text)
}
