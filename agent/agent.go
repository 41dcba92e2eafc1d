// Package agent is the neutral model of an agent: what every manifest dialect
// compiles to, and all that the rest of ambit knows about one.
//
// The model answers a single question, whatever the dialect: what may this
// agent do? An [Agent] has [Tool]s, and each tool has a [Binding], which is
// what does the work when the tool is called. What the tools need stands
// beside them: [Server]s to start or connect to, [Slot]s for credentials, a
// [Program] to run, [Requirement]s that somebody else has to meet. What holds
// them back stands there too: the allowed side effects, [Guardrails],
// [Resources], [Capabilities].
//
// Values here are already checked: a dialect's rules ran before its manifest
// became an Agent, so nothing in the model needs a second look. The model
// keeps what was declared, and defaults are filled in where a dialect states
// them. Absent is not the same as empty where the difference matters; such
// fields are pointers, or say so.
//
// The model is data: it holds no secret, only names of secrets, and nothing
// in it runs anything. [Agent.Reach] derives from it what a reviewer asks
// first: hosts, programs, files, secrets, side effects.
package agent

import (
	"slices"

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

// Dialects lists them in the order they are shown.
var Dialects = []Dialect{Matrix, GPARS, Covenant, FindAgent}

// Agent is one agent.
type Agent struct {
	Dialect Dialect `json:"dialect"`
	// ID identifies the agent within its dialect: matrix://agent/NAME, a GPARS
	// id, name@host, or the slug of a FindAgent name.
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Version     string `json:"version,omitempty"`
	// Digest is that of the manifest the agent was read from.
	Digest string `json:"digest,omitempty"`
	Kind   Kind   `json:"kind"`

	// Prompt is the agent's instructions, Examples how a person might start.
	Prompt   string   `json:"prompt,omitempty"`
	Examples []string `json:"examples,omitempty"`

	// SideEffects says which classes of tools may be called.
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

// The kinds. The last two are those of agents whose dialect has only one.
const (
	StaticRecipe    Kind = "static-recipe"
	MCPTool         Kind = "mcp-tool"
	AutonomousAgent Kind = "autonomous-agent"
	SkillsBundle    Kind = "skills-bundle"
	CodeBundle      Kind = "code-bundle"
	ToolServers     Kind = "tool-servers"
	ProgramAgent    Kind = "program"
)

// SideEffect is the class of what a tool does to the world.
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

// Rank orders the classes; an unknown class ranks above all.
func (s SideEffect) Rank() int {
	if i := slices.Index(SideEffects, s); i >= 0 {
		return i
	}
	return len(SideEffects)
}

// SideEffectPolicy says which classes of tools may be called. Dialects without
// such a list are not Restricted; a restricted policy with nothing Allowed
// allows nothing.
type SideEffectPolicy struct {
	Restricted bool         `json:"restricted"`
	Allowed    []SideEffect `json:"allowed,omitempty"`
}

// Allows reports whether tools of class s may be called.
func (p SideEffectPolicy) Allows(s SideEffect) bool {
	return !p.Restricted || slices.Contains(p.Allowed, s)
}

// Tool is something the agent can call.
type Tool struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// URI is the tool's pinned name, where the dialect gives it one.
	URI        *tooluri.URI `json:"uri,omitempty"`
	SideEffect SideEffect   `json:"side_effect"`
	// InputSchema and OutputSchema are JSON Schemas, as text; empty where the
	// manifest has none.
	InputSchema  string      `json:"input_schema,omitempty"`
	OutputSchema string      `json:"output_schema,omitempty"`
	Annotations  Annotations `json:"annotations,omitzero"`
	// TimeoutMS bounds one call; 0 leaves it to the runtime.
	TimeoutMS int64      `json:"timeout_ms,omitempty"`
	Policy    ToolPolicy `json:"policy,omitzero"`
	// Binding does the work. A tool with a nil Binding is described to people
	// and never served.
	Binding Binding `json:"-"`
}

// Annotations are hints of a tool's behaviour; nil means not said.
type Annotations struct {
	Title       string `json:"title,omitempty"`
	ReadOnly    *bool  `json:"readOnlyHint,omitempty"`
	Destructive *bool  `json:"destructiveHint,omitempty"`
	Idempotent  *bool  `json:"idempotentHint,omitempty"`
	OpenWorld   *bool  `json:"openWorldHint,omitempty"`
}

// Tool returns the tool of that name on that server (empty for a tool that is
// on none), or nil.
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

// Callable reports whether the agent's own rules let t be called at all.
func (a *Agent) Callable(t *Tool) bool {
	if _, native := t.Binding.(Native); native || t.Binding == nil {
		return false
	}
	return a.SideEffects.Allows(t.SideEffect)
}

// Program is code that the agent runs.
type Program struct {
	// Runtime is rust-bin, python3 or node.
	Runtime string `json:"runtime"`
	// RuntimeVersion is a hint, empty where there is none.
	RuntimeVersion string `json:"runtime_version,omitempty"`
	// Entry is the file that is run, relative to the manifest unless absolute.
	Entry string `json:"entry"`
	// Export is what a bundle's entry exports; empty for a program that is run.
	Export string `json:"export,omitempty"`
	// Contract says how the program is talked to.
	Contract Contract `json:"contract"`
	// Command and Args start a program that is its own MCP server.
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	// Hosts are the only ones a bundle may reach.
	Hosts []string `json:"hosts,omitempty"`
	// UI is a folder of static pages, empty where there is none.
	UI  string   `json:"ui,omitempty"`
	Env []EnvVar `json:"env,omitempty"`
}

// Contract is how a program is talked to.
type Contract string

// The contracts.
const (
	// OneLine is one line of JSON in, one line out.
	OneLine Contract = "one-line"
	// Wrapped is a function that the runtime serves over MCP.
	Wrapped Contract = "wrap"
	// NativeMCP is a program that speaks MCP itself.
	NativeMCP Contract = "native"
)

// EnvVar is a setting that a program expects; never a secret.
type EnvVar struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

// Skills is a bundle of instructions that are served as prompts.
type Skills struct {
	// Source is where the files come from: kind and key.
	SourceKind string  `json:"source_kind"`
	SourceKey  string  `json:"source_key"`
	Router     string  `json:"router,omitempty"`
	List       []Skill `json:"list"`
}

// Skill is one of them.
type Skill struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Tags        []string `json:"tags,omitempty"`
}

// Delivery is how clients reach the agent.
type Delivery struct {
	// Modes holds prompt, mcp.stdio, mcp.remote.
	Modes []string `json:"modes,omitempty"`
	// Command and Args are what the manifest says a client would start. They
	// are shown, never executed.
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	URL     string   `json:"url,omitempty"`
	Exec    string   `json:"exec,omitempty"`
	Auth    string   `json:"auth,omitempty"`
	Targets []string `json:"targets,omitempty"`
}
