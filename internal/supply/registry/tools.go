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

// catalogueTools returns the tools that the catalogue lists for a server.
func (r *Resolver) catalogueTools(id string) []agent.Tool {
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

// lockedTools returns the tools of a locked server and their definitions. The parameter e is the server's catalogue
// entry, or nil.
func lockedTools(id string, locked *pack.LockedServer, e *catalog.Entry) ([]agent.Tool, map[string][]byte) {
	definitions := map[string][]byte{}
	for name, t := range locked.Tools {
		definitions[name] = t.Definition
	}
	return Tools(id, definitions, e), definitions
}

// Tools returns a tool for each of a server's tool definitions. The parameter e is the server's catalogue entry, or
// nil. The side-effect class of a tool comes from the catalogue entry. If the entry does not list the tool, the class
// comes from the tool's own annotations.
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
		t := agent.Tool{
			Name: name, Description: d.Description, Annotations: d.Annotations, SideEffect: Class(d.Annotations),
			Binding: agent.OnServer{Alias: id},
		}
		if e != nil && e.Tools[name] != "" {
			t.SideEffect = e.Tools[name]
		}
		tools = append(tools, t)
	}
	return tools
}

// Class derives the side-effect class of a tool from its annotations. A tool that claims to be read-only has the class
// Read, or Network if it also claims to access the outside world. Any other tool has the class Write.
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

// definitionsFile returns the path of the file that stores the tool definitions of a server. The file is written after
// the server has been verified. The gateway uses the stored definitions until the server has been started and verified
// again.
func (r *Resolver) definitionsFile(id string, recipe Recipe) string {
	key, err := json.Marshal(struct {
		ID     string
		Recipe Recipe
	}{id, recipe})
	if err != nil {
		return ""
	}
	return filepath.Join(r.Home.Dir(), "registry", "seen", hashed(key))
}

// lastTools returns the tools that a server with the given recipe had when it last ran on this machine.
func (r *Resolver) lastTools(id string, recipe Recipe) ([]agent.Tool, map[string][]byte) {
	if recipe.Kind == "" {
		return nil, nil
	}
	var raw map[string]json.RawMessage
	text, err := os.ReadFile(r.definitionsFile(id, recipe))
	if err != nil || json.Unmarshal(text, &raw) != nil || len(raw) == 0 {
		return nil, nil
	}
	definitions := make(map[string][]byte, len(raw))
	for name, d := range raw {
		definitions[name] = d
	}
	return Tools(id, definitions, r.Catalog.Entries[id]), definitions
}

// Remember stores the tool definitions of a verified server.
func (r *Resolver) Remember(f *Found, definitions map[string][]byte) error {
	raw := make(map[string]json.RawMessage, len(definitions))
	for name, d := range definitions {
		raw[name] = d
	}
	text, err := json.Marshal(raw)
	if err != nil {
		return err
	}
	return write(r.definitionsFile(f.Requirement.Server, f.Recipe), text)
}

// hashed returns a file name that contains a hash of the key.
func hashed(key []byte) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:16]) + ".json"
}

// write replaces a file atomically. It creates the folder if necessary.
func write(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return home.Replace(file, 0o600, text)
}
