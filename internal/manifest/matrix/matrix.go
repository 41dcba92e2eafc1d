// Package matrix implements the Matrix dialect: agents that use MCP tool servers only,
// listed with every tool they advertise.
//
// The manifest is JSON. Its rules are numbered in the dialect's own documentation: Q15
// (transports are stdio and streamable HTTP), Q17 (tool URIs are pinned), Q18
// (credentials only as $env:NAME references), Q19 (native_tools is a reserved slot),
// Q21 (tools lists exactly what the server advertises) and Q22 (package_digest is the
// sha256 of the published package).
//
// Where the dialect leaves a choice, ambit decides for safety. A missing
// allowed_side_effects allows nothing. A reference may be part of a value (Bearer
// $env:TOKEN). A literal credential, recognized by its name or its form, is an error.
// The address of an http server is endpoint; url is accepted with a warning.
package matrix

// AgentManifest is a Matrix agent manifest.
type AgentManifest struct {
	SchemaVersion      int               `json:"schema_version"`
	Agent              string            `json:"agent"`
	Description        string            `json:"description,omitempty"`
	AllowedSideEffects []string          `json:"allowed_side_effects"`
	Servers            []ServerEntry     `json:"servers"`
	NativeTools        []NativeToolEntry `json:"native_tools,omitempty"`
}

// ServerEntry is an MCP tool server and exactly the tools it advertises.
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
}

// ToolEntry is a tool that a server advertises.
type ToolEntry struct {
	Name            string `json:"name"`
	Description     string `json:"description,omitempty"`
	SideEffectClass string `json:"side_effect_class"`
	TimeoutMS       int64  `json:"timeout_ms,omitempty"`
}

// NativeToolEntry is a tool of the host itself. It is declared and cannot be called
// yet.
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
	schemaVersion = 1
)

// Keys are the top-level keys that only this dialect has.
var Keys = []string{"schema_version", "agent", "allowed_side_effects", "servers", "native_tools"}

// namespaces are the namespaces of native tools.
var namespaces = []string{"argus", "orob", "plv", "pofq", "registry", "payments", "attest", "chain"}
