// Package agent defines the neutral model of an agent. Every manifest dialect compiles to it, and the rest of ambit
// reads nothing else.
//
// # Design
//
// The model answers one question, whatever the dialect: what may this agent do? An [Agent] has [Tool]s. Each tool has a
// [Binding], which does the work when the tool is called. The tools' needs are listed beside them: [Server]s to start or
// connect to, [Slot]s for credentials, a [Program] to run, and [Requirement]s that the operator has to meet. So are the
// limits: the allowed [SideEffectPolicy], [Guardrails], [Resources] and [Capabilities]. [Agent.Reach] derives from all
// of this what a reviewer asks first: hosts, programs, files, secrets and side effects.
//
// The values are already checked. A dialect's rules ran before its manifest became an Agent (see package manifest), so
// code that receives an Agent does not validate it again. The model keeps what the manifest declares and fills in the
// defaults that the dialect states. Where absent and empty differ, the field is a pointer or its comment explains it.
//
// The model is data. It contains names of secrets and never a secret, and it runs nothing. An Agent is shared between
// goroutines and must not be modified. Its JSON form reads back as an equal Agent.
package agent

import (
	"cmp"
	"slices"
	"time"

	"github.com/ambit-run/ambit/tooluri"
)

// Dialect is one of the manifest formats that describe agents.
type Dialect string

// The dialects.
const (
	Matrix    Dialect = "matrix"
	GPARS     Dialect = "gpars"
	Covenant  Dialect = "covenant"
	FindAgent Dialect = "findagent"
)

// Dialects lists the dialects in display order.
var Dialects = []Dialect{Matrix, GPARS, Covenant, FindAgent}

// Agent is one agent.
type Agent struct {
	Dialect Dialect `json:"dialect"`
	// ID identifies the agent within its dialect: matrix://agent/NAME, a GPARS id, name@host, or the slug of a
	// FindAgent name.
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Version     string `json:"version,omitempty"`
	// Digest is the digest of the manifest.
	Digest string `json:"digest,omitempty"`
	Kind   Kind   `json:"kind"`

	// Prompt is the agent's instructions. Examples are opening messages for people.
	Prompt   string   `json:"prompt,omitempty"`
	Examples []string `json:"examples,omitempty"`

	// SideEffects lists the classes of tools that may be called.
	SideEffects SideEffectPolicy `json:"side_effects"`

	Tools        []Tool        `json:"tools,omitempty"`
	Servers      []Server      `json:"servers,omitempty"`
	Slots        []Slot        `json:"slots,omitempty"`
	Requirements []Requirement `json:"requirements,omitempty"`
	Program      *Program      `json:"program,omitempty"`
	Skills       *Skills       `json:"skills,omitempty"`

	Capabilities Capabilities `json:"capabilities,omitzero"`
	Resources    *Resources   `json:"resources,omitempty"`
	Settlement   *Settlement  `json:"settlement,omitempty"`
	Guardrails   Guardrails   `json:"guardrails,omitzero"`
	Delivery     Delivery     `json:"delivery,omitzero"`

	// Category and Compatibility are hints for people and clients.
	Category      string            `json:"category,omitempty"`
	Compatibility map[string]string `json:"compatibility,omitempty"`
}

// Kind is the shape of an agent.
type Kind string

// The kinds. FindAgent has the first five, Matrix and GPARS have ToolServers, and Covenant has ProgramAgent.
const (
	StaticRecipe    Kind = "static-recipe"
	MCPTool         Kind = "mcp-tool"
	AutonomousAgent Kind = "autonomous-agent"
	SkillsBundle    Kind = "skills-bundle"
	CodeBundle      Kind = "code-bundle"
	ToolServers     Kind = "tool-servers"
	ProgramAgent    Kind = "program"
)

// SideEffect classifies the effects of a tool.
type SideEffect string

// The side-effect classes, from harmless to dangerous.
const (
	Read    SideEffect = "read"
	Write   SideEffect = "write"
	Network SideEffect = "network"
	Shell   SideEffect = "shell"
	Chain   SideEffect = "chain"
)

// SideEffects lists the classes in that order.
var SideEffects = []SideEffect{Read, Write, Network, Shell, Chain}

// Rank orders the classes by danger. An unknown class ranks highest.
func (s SideEffect) Rank() int {
	if i := slices.Index(SideEffects, s); i >= 0 {
		return i
	}
	return len(SideEffects)
}

// SideEffectPolicy limits which classes of tools may be called. It is Restricted if the manifest lists classes; a
// restricted policy with nothing Allowed allows no tool.
type SideEffectPolicy struct {
	Restricted bool         `json:"restricted"`
	Allowed    []SideEffect `json:"allowed,omitempty"`
}

// Allows reports whether tools of class s may be called.
func (p SideEffectPolicy) Allows(s SideEffect) bool {
	return !p.Restricted || slices.Contains(p.Allowed, s)
}

// Tool is a tool of the agent.
type Tool struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// URI is the tool's pinned name; nil in dialects without one.
	URI        *tooluri.URI `json:"uri,omitempty"`
	SideEffect SideEffect   `json:"side_effect"`
	// InputSchema and OutputSchema are the text of JSON Schemas; empty if the manifest has none.
	InputSchema  string      `json:"input_schema,omitempty"`
	OutputSchema string      `json:"output_schema,omitempty"`
	Annotations  Annotations `json:"annotations,omitzero"`
	// Timeout bounds one call; 0 means the runtime's default.
	Timeout time.Duration `json:"-"`
	Policy  ToolPolicy    `json:"policy,omitzero"`
	// Binding does the work. A tool without a binding is shown to people and never served.
	Binding Binding `json:"-"`
}

// Annotations are a tool's own hints about its behaviour; nil means that the tool gives no hint.
type Annotations struct {
	Title       string `json:"title,omitempty"`
	ReadOnly    *bool  `json:"readOnlyHint,omitempty"`
	Destructive *bool  `json:"destructiveHint,omitempty"`
	Idempotent  *bool  `json:"idempotentHint,omitempty"`
	OpenWorld   *bool  `json:"openWorldHint,omitempty"`
}

// Tool returns the tool with that name, or nil. The server is empty for a tool that is not on a server.
func (a *Agent) Tool(server, name string) *Tool {
	for i := range a.Tools {
		t := &a.Tools[i]
		on, _ := t.Binding.(OnServer)
		if t.Name == name && on.Alias == server {
			return t
		}
	}
	return nil
}

// Callable reports whether the manifest itself allows calls of t.
func (a *Agent) Callable(t *Tool) bool {
	if _, native := t.Binding.(Native); native || t.Binding == nil {
		return false
	}
	return a.SideEffects.Allows(t.SideEffect)
}

// Program is code that the agent runs.
type Program struct {
	Runtime Runtime `json:"runtime"`
	// RuntimeVersion is a hint, and may be empty.
	RuntimeVersion string `json:"runtime_version,omitempty"`
	// Entry is the file to run, relative to the manifest unless absolute.
	Entry string `json:"entry"`
	// Export is the name that a bundle's entry exports; empty for other programs.
	Export string `json:"export,omitempty"`
	// Contract is the protocol between ambit and the program.
	Contract Contract `json:"contract"`
	// Command and Args start a program with the contract NativeMCP.
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	// Hosts are the only hosts that a bundle may reach.
	Hosts []string `json:"hosts,omitempty"`
	// UI is a folder of static pages, and may be empty.
	UI  string   `json:"ui,omitempty"`
	Env []EnvVar `json:"env,omitempty"`
}

// Runtime runs a program.
type Runtime string

// The runtimes.
const (
	RustBin Runtime = "rust-bin" // a native executable
	Python3 Runtime = "python3"
	Node    Runtime = "node"
)

// Contract is the protocol between ambit and a program.
type Contract string

// The contracts.
const (
	// OneLine reads one line of JSON and writes one line of JSON.
	OneLine Contract = "one-line"
	// Wrapped exports a function, which the runtime serves over MCP.
	Wrapped Contract = "wrap"
	// NativeMCP is an MCP server itself.
	NativeMCP Contract = "native"
)

// EnvVar is a setting that a program expects. It is never a secret.
type EnvVar struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

// Skills is a bundle of instructions that ambit serves as prompts.
type Skills struct {
	// SourceKind and SourceKey locate the files.
	SourceKind string  `json:"source_kind"`
	SourceKey  string  `json:"source_key"`
	Router     string  `json:"router,omitempty"`
	List       []Skill `json:"list"`
}

// Skill is one skill of a bundle.
type Skill struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Tags        []string `json:"tags,omitempty"`
}

// Delivery is how clients reach the agent.
type Delivery struct {
	// Modes contains prompt, mcp.stdio and mcp.remote.
	Modes []string `json:"modes,omitempty"`
	// Command and Args are the command that the manifest names for clients. ambit shows it and never executes it.
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	URL     string   `json:"url,omitempty"`
	Exec    string   `json:"exec,omitempty"`
	Auth    string   `json:"auth,omitempty"`
	Targets []string `json:"targets,omitempty"`
}

// RemoteAlias is the alias of the server of a hosted agent, and RemoteKey the name of
// its API key.
const (
	RemoteAlias = "remote"
	RemoteKey   = "FINDAGENT_TOKEN"
)

// Hosted reports whether the agent runs at a URL that its manifest names.
func (a *Agent) Hosted() bool {
	return a.Delivery.Exec == "findagent-hosted" && a.Delivery.URL != ""
}

// Remote returns a hosted agent as seen from this machine: the same tools and guardrails, but the server at the agent's
// URL does the work. The program and the skills stay with the host.
func (a *Agent) Remote() *Agent {
	r := *a
	r.Program, r.Skills = nil, nil
	r.Tools = slices.Clone(a.Tools)
	for i := range r.Tools {
		if r.Tools[i].Binding != nil {
			r.Tools[i].Binding = OnServer{Alias: RemoteAlias}
		}
	}
	s := Server{
		Alias: RemoteAlias, Transport: StreamableHTTP, Endpoint: a.Delivery.URL, Version: cmp.Or(a.Version, "0.0.0"),
	}
	if a.Delivery.Auth == "api-key" {
		s.Headers = []Setting{{Name: "Authorization", Value: "Bearer $env:" + RemoteKey, Refs: []string{RemoteKey}}}
	}
	r.Servers = []Server{s}
	return &r
}
