// Package gpars implements the GPARS dialect: agents that list which MCP
// servers they need, and leave it to the user's policy what they get.
//
// The manifest is JSON with a closed set of fields. It declares requirements:
// server ids from a registry, version constraints and scopes. It grants
// nothing and starts nothing, so a server that is missing, or an id that no
// registry knows, never keeps an agent from starting.
//
// Where the dialect leaves a choice, ambit takes these. Unknown fields are
// errors that point to extensions, at the top and inside entries. A constraint
// is npm's: comparators, ^ and ~, x-ranges, hyphen ranges, a space for and, ||
// for or; what only other tools read (!=, commas) is taken with a warning.
// Scopes are opaque: any text that is not empty. An optional entry may give
// its server_id alone, with a warning, since the dialect's prose asks for
// three fields and its formal schema for one. A server in both lists is
// required.
package gpars

import "encoding/json"

// Manifest is a GPARS agent capability manifest.
type Manifest struct {
	ID                 string        `json:"id"`
	Version            string        `json:"version,omitempty"`
	RequiredMCPServers []ServerEntry `json:"required_mcp_servers"`
	OptionalMCPServers []ServerEntry `json:"optional_mcp_servers,omitempty"`
	// Extensions is an object of other people's fields, in canonical form.
	Extensions json.RawMessage `json:"extensions,omitempty"`
}

// ServerEntry is an MCP server that the agent needs or can use. In an optional
// entry Version may be empty and PermissionScopes nil: not said.
type ServerEntry struct {
	ServerID         string   `json:"server_id"`
	Version          string   `json:"version,omitempty"`
	PermissionScopes []string `json:"permission_scopes,omitzero"`
}

// Keys are the top-level keys that only this dialect has.
var Keys = []string{"required_mcp_servers", "optional_mcp_servers"}
