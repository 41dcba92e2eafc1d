// Package matrix implements the Matrix dialect. A Matrix agent uses only MCP tool servers. The manifest lists every
// tool that each server advertises.
//
// The manifest is JSON. The dialect's own documentation numbers its rules:
//
//   - Q15: The transports are stdio and streamable HTTP.
//   - Q17: Tool URIs are pinned.
//   - Q18: Credentials are allowed only as $env:NAME references.
//   - Q19: native_tools is a reserved field.
//   - Q21: tools lists exactly the tools that the server advertises.
//   - Q22: package_digest is the SHA-256 of the published package.
//
// Where the dialect leaves a choice, ambit chooses the safe option:
//
//   - If allowed_side_effects is missing, no tool can be called.
//   - A reference can be a part of a value, as in "Bearer $env:TOKEN".
//   - A literal credential is an error. ambit recognizes credentials by the name of the setting or by the format of
//     the value.
//   - The field for the address of an http server is endpoint. The field url is a warning.
package matrix

import "github.com/ambit-run/ambit/internal/manifest/read"

// AgentManifest is a Matrix agent manifest.
type AgentManifest struct {
	SchemaVersion      int               `json:"schema_version"`
	Agent              string            `json:"agent"`
	Description        string            `json:"description,omitempty"`
	AllowedSideEffects []string          `json:"allowed_side_effects"`
	Servers            []ServerEntry     `json:"servers"`
	NativeTools        []NativeToolEntry `json:"native_tools,omitempty"`
}

// ServerEntry is an MCP tool server, with every tool that it advertises.
type ServerEntry struct {
	Alias         string            `json:"alias"`
	Transport     string            `json:"transport"`
	Command       string            `json:"command,omitempty"`
	Args          []string          `json:"args,omitempty"`
	Endpoint      string            `json:"endpoint,omitempty"`
	Env           []string          `json:"env,omitempty"`
	Headers       map[string]string `json:"headers,omitempty"`
	PackageDigest string            `json:"package_digest,omitempty"`
	Version       string            `json:"version"`
	Tools         []ToolEntry       `json:"tools"`
	Extension     *Extension        `json:"x-ambit,omitempty"`
}

// Extension is ambit's extension of a server entry.
type Extension struct {
	// Reach proposes rights for the server.
	Reach *read.Rights `json:"reach,omitempty"`
	// Required means that the agent cannot work without the server.
	Required bool `json:"required,omitempty"`
	// Review lists the tools whose side-effect class is a guess that no person has checked yet.
	Review []string `json:"review,omitempty"`
}

// ToolEntry is a tool that a server advertises.
type ToolEntry struct {
	Name            string `json:"name"`
	Description     string `json:"description,omitempty"`
	SideEffectClass string `json:"side_effect_class"`
	TimeoutMS       int64  `json:"timeout_ms,omitempty"`
}

// NativeToolEntry is a tool of the host itself. A manifest can declare native tools, but no agent can call them yet.
type NativeToolEntry struct {
	Namespace       string `json:"namespace"`
	Name            string `json:"name"`
	Version         string `json:"version"`
	Digest          string `json:"digest"`
	Description     string `json:"description,omitempty"`
	SideEffectClass string `json:"side_effect_class,omitempty"`
}

const (
	agentPrefix   = "matrix://agent/"
	didKeyPrefix  = "did:key:"
	schemaVersion = 1
)

// Keys lists the top-level keys that only this dialect has.
var Keys = []string{"schema_version", "agent", "allowed_side_effects", "servers", "native_tools"}

// namespaces lists the allowed namespaces of native tools.
var namespaces = []string{"argus", "orob", "plv", "pofq", "registry", "payments", "attest", "chain"}
