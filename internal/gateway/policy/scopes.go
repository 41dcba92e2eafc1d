package policy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
)

// Catalogue maps the scopes of a server to its tools.
type Catalogue interface {
	// ScopeTools returns the names of the tools that a scope covers, or none if the scope is unknown.
	ScopeTools(serverID, scope string) []string
	// ScopesOf returns the known scopes of a server.
	ScopesOf(serverID string) []string
}

// Scopes maps a server and a scope to tools. It is the table [scopes] of config.toml. A scope in this table takes
// precedence over the same scope in the catalogue. For example:
//
//	[scopes."registry.openmcp.org/filesystem"]
//	read = ["read_file", "list_directory"]
type Scopes map[string]map[string][]string

// ReadScopes reads the table [scopes] of a file. The result is empty if the file does not exist.
func ReadScopes(file string) (Scopes, error) {
	s := Scopes{}
	if _, err := home.ReadTable(file, "scopes", &s); err != nil {
		return nil, err
	}
	return s, nil
}

// readWorks reads the working folders of servers from config.toml:
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
	// From is the origin of the mapping: config.toml or catalogue. It is empty if there is no mapping.
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

// scopesCovering returns the scopes of a server that cover a tool.
func (s Scopes) scopesCovering(c Catalogue, server, tool string) []string {
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

// explain describes the scopes that cover a tool, and where each mapping comes from.
func (s Scopes) explain(c Catalogue, scopes []string, server, tool string) string {
	if len(scopes) == 0 {
		return fmt.Sprintf("no scope of %s is mapped to %s", quote(server), quote(tool))
	}
	named := make([]string, len(scopes))
	for i, scope := range scopes {
		named[i] = fmt.Sprintf("%s (%s)", quote(scope), s.Map(c, server, scope).From)
	}
	return fmt.Sprintf("the tool %s of %s is covered by the scope %s",
		quote(tool), quote(server), diag.Words(named, "and"))
}
