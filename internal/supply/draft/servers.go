package draft

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
)

type matrixManifest struct {
	SchemaVersion int            `json:"schema_version"`
	Agent         string         `json:"agent"`
	Description   string         `json:"description,omitempty"`
	Allowed       []string       `json:"allowed_side_effects"`
	Servers       []matrixServer `json:"servers"`
}

type matrixServer struct {
	Alias     string       `json:"alias"`
	Transport string       `json:"transport"`
	Command   string       `json:"command"`
	Args      []string     `json:"args"`
	Env       []string     `json:"env"`
	Digest    string       `json:"package_digest"`
	Version   string       `json:"version"`
	Tools     []matrixTool `json:"tools"`
}

type matrixTool struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Class       string `json:"side_effect_class"`
}

// matrix returns a manifest whose servers work in the folder that the agent is started
// in and keep their data there.
func (d *Draft) matrix(known *catalog.Catalog) (text []byte, wrong []string) {
	m := matrixManifest{SchemaVersion: 1, Agent: "matrix://agent/" + d.Name, Description: d.Description, Allowed: words(d.Allow), Servers: []matrixServer{}}
	if len(m.Allowed) == 0 {
		m.Allowed = []string{"read"}
	}
	names := words(d.Servers)
	if len(names) == 0 {
		wrong = append(wrong, "a Matrix agent needs a tool server: name one from the catalogue (--server), such as filesystem")
	}
	for _, name := range names {
		id, e, err := Find(known, name)
		if err != nil {
			wrong = append(wrong, err.Error())
			continue
		}
		s := matrixServer{
			Alias: id[strings.LastIndexByte(id, '/')+1:], Transport: "stdio", Args: []string{}, Env: []string{},
			Digest: e.Package.Digest, Version: e.Package.Version,
		}
		switch e.Package.Kind {
		case catalog.NPM:
			s.Command, s.Args = "npx", []string{"-y", e.Package.Name + "@" + e.Package.Version}
		case catalog.PyPI:
			s.Command, s.Args = "uvx", []string{e.Package.Name + "==" + e.Package.Version}
		default:
			wrong = append(wrong, fmt.Sprintf("%s is part of ambit, so a Matrix manifest cannot pin it: use it in a GPARS agent", diag.Quote(name)))
			continue
		}
		for _, a := range e.Args {
			s.Args = append(s.Args, strings.ReplaceAll(a, "{work}", "."))
		}
		for _, v := range slices.Sorted(maps.Keys(e.Env)) {
			s.Env = append(s.Env, v+"="+strings.ReplaceAll(e.Env[v], "{work}", "."))
		}
		for _, tool := range slices.Sorted(maps.Keys(e.Tools)) {
			s.Tools = append(s.Tools, matrixTool{Name: tool, Description: strings.ReplaceAll(tool, "_", " "), Class: string(e.Tools[tool])})
		}
		m.Servers = append(m.Servers, s)
	}
	return document(m), wrong
}

type gparsManifest struct {
	ID       string      `json:"id"`
	Version  string      `json:"version"`
	Required []gparsNeed `json:"required_mcp_servers"`
	Optional []gparsNeed `json:"optional_mcp_servers"`
}

type gparsNeed struct {
	ID      string   `json:"server_id"`
	Version string   `json:"version"`
	Scopes  []string `json:"permission_scopes"`
}

func (d *Draft) gpars(known *catalog.Catalog) (text []byte, wrong []string) {
	m := gparsManifest{ID: "org:local/agent:" + d.Name, Version: "0.1.0", Required: []gparsNeed{}, Optional: []gparsNeed{}}
	names := words(d.Servers)
	if len(names) == 0 {
		wrong = append(wrong, "a GPARS agent needs a tool server: name one from the catalogue (--server), such as filesystem")
	}
	asked := words(d.Allow)
	used := map[string]bool{}
	for _, name := range names {
		id, e, err := Find(known, name)
		if err != nil {
			wrong = append(wrong, err.Error())
			continue
		}
		need := gparsNeed{ID: id, Version: "^" + e.Version, Scopes: []string{}}
		for _, scope := range slices.Sorted(maps.Keys(e.Scopes)) {
			if slices.Contains(asked, scope) || len(asked) == 0 && scope == "read" {
				need.Scopes = append(need.Scopes, scope)
				used[scope] = true
			}
		}
		if len(need.Scopes) == 0 {
			wrong = append(wrong, fmt.Sprintf("choose the scopes of %s that it needs (--allow): %s", name, diag.Words(slices.Sorted(maps.Keys(e.Scopes)), "or")))
		}
		m.Required = append(m.Required, need)
	}
	for _, scope := range asked {
		if !used[scope] {
			wrong = append(wrong, fmt.Sprintf("none of its servers has the scope %s", diag.Quote(scope)))
		}
	}
	return document(m), wrong
}
