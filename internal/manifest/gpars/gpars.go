// Package gpars implements the GPARS dialect: agents that list the MCP servers they
// need, and leave the permissions to the user's policy.
//
// The manifest is JSON with a closed set of fields. It declares requirements: server
// ids from a registry, version constraints and scopes. It grants nothing and starts
// nothing, so a missing server, or an id that no registry knows, does not keep an
// agent from starting.
//
// Where the dialect leaves a choice, ambit decides as follows. Unknown fields are
// errors, at the top and inside entries; the hint points to extensions. A constraint
// has npm's syntax: comparators, ^ and ~, x-ranges, hyphen ranges, a space for and, ||
// for or. Syntax of other tools (!=, commas) is accepted with a warning. Scopes are
// opaque: any nonempty text. An optional entry may have only a server_id, with a
// warning, since the dialect's prose requires three fields and its formal schema one.
// A server in both lists is required.
package gpars

import "encoding/json"

// Manifest is a GPARS agent capability manifest.
type Manifest struct {
	ID                 string        `json:"id"`
	Version            string        `json:"version,omitempty"`
	RequiredMCPServers []ServerEntry `json:"required_mcp_servers"`
	OptionalMCPServers []ServerEntry `json:"optional_mcp_servers,omitempty"`
	// Extensions is an object of third-party fields, in canonical form.
	Extensions json.RawMessage `json:"extensions,omitempty"`
}

// ServerEntry is an MCP server that the agent needs or can use. In an optional entry
// Version may be empty and PermissionScopes nil, meaning unspecified.
type ServerEntry struct {
	ServerID         string   `json:"server_id"`
	Version          string   `json:"version,omitempty"`
	PermissionScopes []string `json:"permission_scopes,omitzero"`
}

// Keys are the top-level keys that only this dialect has.
var Keys = []string{"required_mcp_servers", "optional_mcp_servers"}
