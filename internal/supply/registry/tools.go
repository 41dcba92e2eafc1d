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

// listed are the tools that the catalogue has of a server.
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

// lockedTools are those of a lock, with the classes of the catalogue where it has
// any.
func lockedTools(id string, locked *pack.LockedServer, e *catalog.Entry) ([]agent.Tool, map[string][]byte) {
	definitions := map[string][]byte{}
	for name, t := range locked.Tools {
		definitions[name] = t.Definition
	}
	return Tools(id, definitions, e), definitions
}

// Tools are the tools of a server as it defines them. The class is the
// catalogue's; without one, what the server itself says is taken for no more than
// a hint: that it only reads lets it be called as a read, and anything else counts
// as writing.
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

// Class is the side-effect class that a tool's annotations come to.
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

// What was proven once is remembered by what it was proven of: the definitions of
// a server's tools for one recipe. It tells the gate which tools there are before
// the server is started again; the server is proven against it when it is.

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

// seen are the tools that the server of a recipe was last proven with here.
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

// Remember keeps the definitions that a server was proven with.
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

// write replaces a file in one step, making its folder.
func write(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return home.Replace(file, 0o600, text)
}
