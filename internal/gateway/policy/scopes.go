package policy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
)

// Catalogue knows which tools of a server a scope covers.
type Catalogue interface {
	// ScopeTools returns the names of the tools; none for an unknown scope.
	ScopeTools(serverID, scope string) []string
	// ScopesOf returns the known scopes of a server.
	ScopesOf(serverID string) []string
}

// Scopes is the user's map from server to scope to tools: the table [scopes] of
// config.toml. Each scope in it overrides the catalogue's:
//
//	[scopes."registry.openmcp.org/filesystem"]
//	read = ["read_file", "list_directory"]
type Scopes map[string]map[string][]string

// ReadScopes reads the user's map. It is empty if there is no file.
func ReadScopes(file string) (Scopes, error) {
	s := Scopes{}
	if _, err := home.ReadTable(file, "scopes", &s); err != nil {
		return nil, err
	}
	return s, nil
}

// readWorks reads the working folders of servers:
//
//	[server."registry.openmcp.org/filesystem"]
//	work = "/home/me/project"
func readWorks(file string) (map[string]string, error) {
	servers := map[string]map[string]any{}
	if _, err := home.ReadTable(file, "server", &servers); err != nil {
		return nil, err
	}
	works := map[string]string{}
	for id, settings := range servers {
		if work, ok := settings["work"].(string); ok {
			works[id] = work
		}
	}
	return works, nil
}

// Mapped lists the tools that a scope covers.
type Mapped struct {
	Scope string   `json:"scope"`
	Tools []string `json:"tools"`
	// From is the origin of the mapping: config.toml, catalogue, or empty if there is none.
	From string `json:"from,omitempty"`
}

// Map returns the tools that a scope of a server covers.
func (s Scopes) Map(c Catalogue, server, scope string) Mapped {
	m := Mapped{Scope: scope, Tools: []string{}}
	if tools, ok := s[server][scope]; ok {
		m.Tools, m.From = append(m.Tools, tools...), "config.toml"
	} else if c != nil {
		if tools := c.ScopeTools(server, scope); len(tools) > 0 {
			m.Tools, m.From = append(m.Tools, tools...), "catalogue"
		}
	}
	return m
}

// covering returns the scopes of a server that cover a tool.
func (s Scopes) covering(c Catalogue, server, tool string) []string {
	known := slices.Collect(maps.Keys(s[server]))
	if c != nil {
		known = append(known, c.ScopesOf(server)...)
	}
	slices.Sort(known)
	var covering []string
	for _, scope := range slices.Compact(known) {
		if slices.Contains(s.Map(c, server, scope).Tools, tool) {
			covering = append(covering, scope)
		}
	}
	return covering
}

// explain describes the scopes that cover a tool and the origin of each mapping.
func (s Scopes) explain(c Catalogue, scopes []string, server, tool string) string {
	if len(scopes) == 0 {
		return fmt.Sprintf("no scope of %s is mapped to %s", quote(server), quote(tool))
	}
	named := make([]string, len(scopes))
	for i, scope := range scopes {
		named[i] = fmt.Sprintf("%s (%s)", quote(scope), s.Map(c, server, scope).From)
	}
	return fmt.Sprintf("%s of %s is covered by the scope %s", quote(tool), quote(server), diag.Words(named, "and"))
}
