// Package findagent implements the FindAgent dialect: agents that are a
// prompt, a list of declared tools, and the rails that hold them back.
//
// The manifest is JSON, called findagent.json. Everything in it is a
// description: a tool's action is one of three kinds of binding (http,
// prompt-template, compose), never code. A credential is a slot that the operator
// fills at installation, bound to the hosts it may be sent to; a slot without
// hosts is refused, because it could be sent anywhere. Guardrails are declared
// here and enforced by the runtime, and the mandatory one, the scan for leaked
// secrets, cannot be switched off.
//
// The limits are those of the dialect, counted in characters. Where it leaves
// a choice, ambit takes the safe one:
//
//   - An action goes to one host by https. The host is a DNS name written out
//     in the url: no address in any spelling, no wildcard, no name of the local
//     network, no placeholder. Everything behind it may hold {param}, and each
//     must be a property of the tool's input_schema.
//   - auth_ref must name a slot whose hosts cover the action's host, exactly or
//     as a parent domain. {credential} is allowed only in headers.
//   - A host of a slot or bundle is the name of one owner. A public suffix such
//     as co.uk is an error; one below which anybody can register, such as
//     github.io, is a warning.
//   - deny_patterns are regular expressions that match in linear time, letter
//     case aside. One that matches the empty text would deny every call, so it
//     is an error.
//   - max_amount is a decimal and kept as it is written. A number caps one
//     call; an object can also cap a day and name a currency.
//   - Unknown fields are warnings, each with the field it was probably meant to
//     be. category, version and $schema are known.
package findagent

import "encoding/json"

// Manifest is a FindAgent manifest.
type Manifest struct {
	Schema         string            `json:"$schema,omitempty"`
	Name           string            `json:"name"`
	Description    string            `json:"description,omitempty"`
	Version        string            `json:"version,omitempty"`
	Kind           string            `json:"kind,omitempty"`
	Category       string            `json:"category,omitempty"`
	SystemPrompt   string            `json:"system_prompt"`
	ExamplePrompts []string          `json:"example_prompts"`
	Compatibility  map[string]string `json:"compatibility,omitempty"`

	Tools           []Tool           `json:"tools,omitempty"`
	CredentialSlots []CredentialSlot `json:"credential_slots,omitempty"`
	Guardrails      *Guardrails      `json:"guardrails,omitempty"`

	Delivery *Delivery `json:"delivery,omitempty"`
	Exec     string    `json:"exec,omitempty"`
	Targets  []string  `json:"targets,omitempty"`
	Auth     string    `json:"auth,omitempty"`

	SkillsSource  *SkillsSource `json:"skills_source,omitempty"`
	Skills        []Skill       `json:"skills,omitempty"`
	RouterSkillID string        `json:"router_skill_id,omitempty"`

	Entrypoint *Entrypoint `json:"entrypoint,omitempty"`
	Runtime    *Runtime    `json:"runtime,omitempty"`
	// AllowedHosts is nil where the manifest has none; a bundle then reaches
	// nothing, as with an empty list.
	AllowedHosts []string `json:"allowed_hosts,omitzero"`
	MCP          *MCP     `json:"mcp,omitempty"`
	UI           string   `json:"ui,omitempty"`
	Env          []EnvVar `json:"env,omitempty"`
}

// Tool is a capability that the agent can call.
type Tool struct {
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema,omitempty"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	Annotations  *Annotations    `json:"annotations,omitempty"`
	Action       *Action         `json:"action,omitempty"`
}

// Annotations are hints of a tool's behaviour; nil means not said.
type Annotations struct {
	Title           string `json:"title,omitempty"`
	ReadOnlyHint    *bool  `json:"readOnlyHint,omitempty"`
	DestructiveHint *bool  `json:"destructiveHint,omitempty"`
	IdempotentHint  *bool  `json:"idempotentHint,omitempty"`
	OpenWorldHint   *bool  `json:"openWorldHint,omitempty"`
}

// Action is what a tool does when it is called. Type selects which of the other
// fields count.
type Action struct {
	Type string `json:"type"`

	Method       string            `json:"method,omitempty"`
	URL          string            `json:"url,omitempty"`
	Headers      map[string]string `json:"headers,omitempty"`
	BodyTemplate string            `json:"body_template,omitempty"`
	AuthRef      string            `json:"auth_ref,omitempty"`

	Template string `json:"template,omitempty"`

	Agent string `json:"agent,omitempty"`
	Tool  string `json:"tool,omitempty"`
}

// CredentialSlot is a credential that the operator supplies.
type CredentialSlot struct {
	Ref          string   `json:"ref"`
	Label        string   `json:"label"`
	Env          string   `json:"env,omitempty"`
	AllowedHosts []string `json:"allowed_hosts"`
	Type         string   `json:"type,omitempty"`
	Description  string   `json:"description,omitempty"`
	Required     *bool    `json:"required,omitempty"`
}

// Guardrails are the rails that the runtime holds the agent to.
type Guardrails struct {
	Input   *InputRails            `json:"input,omitempty"`
	Output  *OutputRails           `json:"output,omitempty"`
	Actions map[string]ActionRails `json:"actions,omitempty"`
}

// InputRails hold before a call.
type InputRails struct {
	MaxLength    int64    `json:"max_length,omitempty"`
	DenyPatterns []string `json:"deny_patterns,omitempty"`
	PIIRedaction []string `json:"pii_redaction,omitempty"`
}

// OutputRails hold after it.
type OutputRails struct {
	SecretLeakScan *bool           `json:"secret_leak_scan,omitempty"`
	Schema         json.RawMessage `json:"schema,omitempty"`
	OnLeak         string          `json:"on_leak,omitempty"`
}

// ActionRails hold for one tool.
type ActionRails struct {
	Approval   string     `json:"approval,omitempty"`
	MaxAmount  *MaxAmount `json:"max_amount,omitempty"`
	RateLimit  string     `json:"rate_limit,omitempty"`
	Idempotent *bool      `json:"idempotent,omitempty"`
}

// MaxAmount caps what a tool may spend. Amounts are decimals as written.
type MaxAmount struct {
	PerCall, PerDay, Currency string
}

// MarshalJSON writes a cap on one call as a number, any other as an object.
func (m MaxAmount) MarshalJSON() ([]byte, error) {
	if m.PerDay == "" && m.Currency == "" {
		return json.Marshal(json.Number(m.PerCall))
	}
	return json.Marshal(struct {
		PerCall  string `json:"per_call,omitempty"`
		PerDay   string `json:"per_day,omitempty"`
		Currency string `json:"currency,omitempty"`
	}(m))
}

// Delivery is how clients reach the agent.
type Delivery struct {
	Prompt bool
	Stdio  *Stdio
	Remote *Remote
}

// Stdio is what a client would start. It is shown, never executed.
type Stdio struct {
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
}

// Remote is where a hosted agent is reached.
type Remote struct {
	URL string `json:"url,omitempty"`
}

// MarshalJSON writes the object form.
func (d Delivery) MarshalJSON() ([]byte, error) {
	type mcp struct {
		Stdio  *Stdio  `json:"stdio,omitempty"`
		Remote *Remote `json:"remote,omitempty"`
	}
	return json.Marshal(struct {
		Prompt bool `json:"prompt,omitempty"`
		MCP    mcp  `json:"mcp,omitzero"`
	}{d.Prompt, mcp{d.Stdio, d.Remote}})
}

// SkillsSource is where a bundle's skill files are.
type SkillsSource struct {
	Kind string `json:"kind"`
	Key  string `json:"key"`
}

// Skill is one skill of a bundle.
type Skill struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Tags        []string `json:"tags,omitempty"`
}

// Entrypoint is the function that a code bundle is called by.
type Entrypoint struct {
	Path   string `json:"path"`
	Export string `json:"export,omitempty"`
}

// Runtime is what runs a code bundle.
type Runtime struct {
	Kind    string `json:"kind"`
	Version string `json:"version,omitempty"`
}

// MCP is how a code bundle is served: wrapped, or by its own server.
type MCP struct {
	Mode    string   `json:"mode"`
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
}

// EnvVar is a setting that a bundle expects; never a secret.
type EnvVar struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

// Keys are the top-level keys that only this dialect has.
var Keys = []string{
	"system_prompt", "example_prompts", "credential_slots", "guardrails", "delivery", "targets", "compatibility",
	"skills_source", "router_skill_id", "entrypoint",
}

// The words that fields take. Where a field has a default, it is the first.
var (
	kinds       = []string{"static-recipe", "mcp-tool", "autonomous-agent", "skills-bundle", "code-bundle"}
	actionTypes = []string{"http", "prompt-template", "compose"}
	methods     = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}
	slotTypes   = []string{"string", "secret", "json"}
	deliveries  = []string{"prompt", "mcp.stdio", "mcp.remote"}
	execs       = []string{"user-local", "findagent-hosted"}
	auths       = []string{"none", "api-key", "oauth-device"}
	clients     = []string{"claude-desktop", "claude-code", "chatgpt", "cursor", "vscode", "gemini-cli", "windsurf", "cli", "web"}
)

// The dialect's limits.
const (
	nameLeast, nameMost     = 3, 80
	descriptionMost         = 4000
	promptLeast, promptMost = 50, 20_000
	toolsMost               = 40
	examplesMost            = 5
)
