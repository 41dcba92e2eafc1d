// Package gpars implements the GPARS dialect. A GPARS agent lists the MCP servers that it needs. The user's policy
// decides what the agent may do with these servers.
//
// The manifest is JSON with a fixed set of fields. The manifest contains requirements: server ids in a registry,
// version constraints and scopes. The manifest grants no permissions and starts no servers. An agent can therefore
// start even if a server is missing or unknown.
//
// Where the dialect leaves a choice, ambit decides as follows:
//
//   - Unknown fields are errors, at the top and inside entries. The hint suggests "extensions".
//   - A version constraint has the syntax of npm: comparators, ^ and ~, x-ranges and hyphen ranges, with a space for
//     "and" and || for "or". The syntax of other tools, such as != and commas, is a warning.
//   - A scope is any text that is not empty. ambit does not interpret the text.
//   - An optional entry with only a server_id is a warning. The text of the specification requires three fields, but
//     its formal schema requires only server_id.
//   - A server that is in both lists counts as required.
package gpars

import "github.com/ambit-run/ambit/internal/manifest/read"

// Manifest is a GPARS agent capability manifest.
type Manifest struct {
	ID                 string        `json:"id"`
	Version            string        `json:"version,omitempty"`
	RequiredMCPServers []ServerEntry `json:"required_mcp_servers"`
	OptionalMCPServers []ServerEntry `json:"optional_mcp_servers,omitempty"`
	Extensions         *Extensions   `json:"extensions,omitempty"`
}

// Extensions contains the extensions that ambit knows.
type Extensions struct {
	Ambit *Extension `json:"run.ambit,omitempty"`
}

// Extension is ambit's extension of a manifest.
type Extension struct {
	// Reach maps the id of a server to the rights that the manifest proposes for the server.
	Reach map[string]*read.Rights `json:"reach,omitempty"`
}

// ServerEntry is an MCP server that the agent needs or can use. In an optional entry, an empty Version or a nil
// PermissionScopes means that the manifest lacks the field.
type ServerEntry struct {
	ServerID         string   `json:"server_id"`
	Version          string   `json:"version,omitempty"`
	PermissionScopes []string `json:"permission_scopes,omitzero"`
}

// Keys lists the top-level keys that only this dialect has.
var Keys = []string{"required_mcp_servers", "optional_mcp_servers"}
