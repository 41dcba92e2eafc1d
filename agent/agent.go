// Package agent defines the model of an agent. ambit converts every manifest dialect to this model. The rest of ambit
// uses only the model.
//
// # Design
//
// The model answers one question for all dialects: what is this agent allowed to do?
//
//   - An [Agent] has [Tool]s. Each tool has a [Binding], which does the work when the tool is called.
//   - The agent lists what its tools need: [Server]s to start or connect to, [Slot]s for credentials, a [Program] to
//     run, and [Requirement]s for servers that the operator provides.
//   - The agent also lists its limits: [SideEffectPolicy], [Guardrails], [Resources] and [Capabilities].
//
// [Agent.Reach] lists the hosts, programs, files, secrets and side effects of an agent for a reviewer.
//
// An Agent is always valid. Package manifest checks the rules of the dialect before it builds the Agent. Code that
// receives an Agent does not validate it again. If the manifest leaves out a value, the Agent contains the default of
// the dialect. A field that must distinguish "absent" from "empty" is a pointer, or its comment explains the
// difference.
//
// An Agent is only data. It contains the names of secrets, but never the secrets themselves. Goroutines share an
// Agent, so code must not modify it. Encoding an Agent as JSON and decoding it again yields an equal Agent, except that
// JSON does not contain proposed rights.
package agent

import (
	"cmp"
	"slices"
	"time"

	"github.com/ambit-run/ambit/tooluri"
)

// Dialect is a manifest format.
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
	// ID identifies the agent within its dialect: matrix://agent/NAME or a did:key for Matrix, the id in the manifest for
	// GPARS, name@host for Covenant, and the slug of the name for FindAgent.
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Version     string `json:"version,omitempty"`
	// Digest is the digest of the manifest.
	Digest string `json:"digest,omitempty"`
	Kind   Kind   `json:"kind"`

	// Prompt is the text that instructs the model.
	Prompt string `json:"prompt,omitempty"`
	// Examples lists messages with which a user can begin a conversation.
	Examples []string `json:"examples,omitempty"`

	// SideEffects limits the classes of tools that clients can call.
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

	// Category and Compatibility are information for users and clients. ambit does not interpret them.
	Category      string            `json:"category,omitempty"`
	Compatibility map[string]string `json:"compatibility,omitempty"`
}

// Kind classifies agents by their content, such as tool servers, skills or a program.
type Kind string

// The kinds of agents. Matrix and GPARS agents have the kind ToolServers. Covenant agents have the kind ProgramAgent.
// All other kinds are for FindAgent agents.
const (
	StaticRecipe    Kind = "static-recipe"
	MCPTool         Kind = "mcp-tool"
	AutonomousAgent Kind = "autonomous-agent"
	SkillsBundle    Kind = "skills-bundle"
	CodeBundle      Kind = "code-bundle"
	ToolServers     Kind = "tool-servers"
	ProgramAgent    Kind = "program"
)

// SideEffect is a class of tools with the same kind of effect.
type SideEffect string

// The side-effect classes, from harmless to dangerous.
const (
	Read    SideEffect = "read"
	Write   SideEffect = "write"
	Network SideEffect = "network"
	Shell   SideEffect = "shell"
	Chain   SideEffect = "chain"
)

// SideEffects lists the side-effect classes from harmless to dangerous.
var SideEffects = []SideEffect{Read, Write, Network, Shell, Chain}

// Rank returns the position of the class in SideEffects. An unknown class has the highest rank.
func (s SideEffect) Rank() int {
	if i := slices.Index(SideEffects, s); i >= 0 {
		return i
	}
	return len(SideEffects)
}

// SideEffectPolicy limits the classes of tools that clients can call.
type SideEffectPolicy struct {
	// Restricted is set if the manifest lists the allowed classes. If Restricted is false, all classes are allowed.
	Restricted bool `json:"restricted"`
	// Allowed lists the allowed classes of a restricted policy. An empty list allows no tool.
	Allowed []SideEffect `json:"allowed,omitempty"`
}

// Allows reports whether the policy allows calls to tools of the class s.
func (p SideEffectPolicy) Allows(s SideEffect) bool {
	return !p.Restricted || slices.Contains(p.Allowed, s)
}

// Tool is a tool of the agent.
type Tool struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// URI is the tool's pinned name. It is nil in dialects without tool URIs.
	URI        *tooluri.URI `json:"uri,omitempty"`
	SideEffect SideEffect   `json:"side_effect"`
	// InputSchema and OutputSchema are JSON Schemas in JSON. A schema is empty if the manifest has none.
	InputSchema  string      `json:"input_schema,omitempty"`
	OutputSchema string      `json:"output_schema,omitempty"`
	Annotations  Annotations `json:"annotations,omitzero"`
	// Timeout limits the duration of one call. If Timeout is 0, the program's wall-clock limit or the gateway's default
	// timeout applies.
	Timeout time.Duration `json:"-"`
	Policy  ToolPolicy    `json:"policy,omitzero"`
	// Binding defines how calls to the tool are carried out. If Binding is nil, users see the tool, but clients cannot
	// call it.
	Binding Binding `json:"-"`
}

// Annotations are a tool's hints about its own behaviour. A field is nil if the tool does not give the hint.
type Annotations struct {
	Title       string `json:"title,omitempty"`
	ReadOnly    *bool  `json:"readOnlyHint,omitempty"`
	Destructive *bool  `json:"destructiveHint,omitempty"`
	Idempotent  *bool  `json:"idempotentHint,omitempty"`
	OpenWorld   *bool  `json:"openWorldHint,omitempty"`
}

// Tool returns the tool with the given name on the given server, or nil. The server is identified by its alias. The
// alias is empty for a tool that is not on a server.
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

// Callable reports whether the manifest allows calls to the tool t. Later checks can still refuse a call.
func (a *Agent) Callable(t *Tool) bool {
	if _, native := t.Binding.(Native); native || t.Binding == nil {
		return false
	}
	return a.SideEffects.Allows(t.SideEffect)
}

// Program is code that the agent runs.
type Program struct {
	Runtime Runtime `json:"runtime"`
	// RuntimeVersion is the version constraint for the runtime of a code bundle. It may be empty.
	RuntimeVersion string `json:"runtime_version,omitempty"`
	// Entry is the path of the file to run. A relative path is relative to the manifest's folder.
	Entry string `json:"entry"`
	// Export is the name of the function that a code bundle's entry exports. It is empty for other programs.
	Export string `json:"export,omitempty"`
	// Contract is the protocol between ambit and the program.
	Contract Contract `json:"contract"`
	// Command and Args are the command line of a NativeMCP program. They are empty for other programs.
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	// Hosts lists the hosts that a code bundle can reach. The bundle can also reach their subdomains, but no other
	// hosts.
	Hosts []string `json:"hosts,omitempty"`
	// Isolation is the weakest sandbox in which the program is allowed to run. If it is empty, the operator decides.
	Isolation Isolation `json:"isolation,omitempty"`
	// UI is the path of a folder with static pages. It may be empty.
	UI  string   `json:"ui,omitempty"`
	Env []EnvVar `json:"env,omitempty"`
}

// Isolation is a kind of sandbox for programs.
type Isolation string

// The kinds of sandboxes, from the weakest to the strongest.
const (
	StandardIsolation Isolation = "standard" // a sandbox that shares the kernel of the machine
	StrongIsolation   Isolation = "strong"   // a sandbox with its own kernel
)

// Runtime is the interpreter that runs a program.
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
	// OneLine programs read one line of JSON and write one line of JSON.
	OneLine Contract = "one-line"
	// Wrapped programs export a function. ambit calls this function for each tool call.
	Wrapped Contract = "wrap"
	// NativeMCP programs are MCP servers.
	NativeMCP Contract = "native"
)

// EnvVar is an environment variable that a program expects. The variable must not be a secret.
type EnvVar struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

// Skills is a bundle of instructions. ambit serves each skill as a prompt.
type Skills struct {
	// SourceKind and SourceKey identify the location of the files.
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

// Delivery describes how clients connect to the agent.
type Delivery struct {
	// Modes lists the supported modes: prompt, mcp.stdio or mcp.remote.
	Modes []string `json:"modes,omitempty"`
	// Command and Args are the command that clients run. ambit shows the command, but never runs it.
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	URL     string   `json:"url,omitempty"`
	Exec    string   `json:"exec,omitempty"`
	Auth    string   `json:"auth,omitempty"`
	Targets []string `json:"targets,omitempty"`
}

const (
	// RemoteAlias is the alias of a hosted agent's only server; see [Agent.Remote].
	RemoteAlias = "remote"
	// RemoteKey is the name of the secret that contains the API key for a hosted agent's server.
	RemoteKey = "FINDAGENT_TOKEN"
)

// HostedExec is the value of Delivery.Exec for an agent that runs on a server, not on the user's machine.
const HostedExec = "findagent-hosted"

// Hosted reports whether the agent is hosted at the URL in its manifest.
func (a *Agent) Hosted() bool { return a.Delivery.Exec == HostedExec && a.Delivery.URL != "" }

// RunsHere reports whether the manifest says how to run the agent without its host: with a program, with skills, or
// with a tool that has a binding.
func (a *Agent) RunsHere() bool {
	return a.Program != nil || a.Skills != nil ||
		slices.ContainsFunc(a.Tools, func(t Tool) bool { return t.Binding != nil })
}

// Remote returns a copy of a hosted agent. The copy has the same tools and guardrails, but all calls go to the server
// at the agent's URL. The copy has no program, skills or credential slots, because the host has them. Some tools may
// have no binding. If the agent cannot run without its host, the server also carries out these tools. Otherwise,
// clients can see these tools, but cannot call them.
func (a *Agent) Remote() *Agent {
	r := *a
	r.Program, r.Skills, r.Slots = nil, nil, nil
	r.Tools = slices.Clone(a.Tools)
	for i := range r.Tools {
		if r.Tools[i].Binding != nil || !a.RunsHere() {
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
