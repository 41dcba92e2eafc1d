// Package findagent implements the FindAgent dialect. A FindAgent agent consists of a prompt, a list of tools and
// guardrails.
//
// The manifest is JSON, in a file named findagent.json. The manifest contains no code. The action of a tool has the
// type http, prompt-template or compose. The manifest contains no credentials either. The manifest declares
// credential slots, which the operator fills when the agent is installed. Each slot lists the hosts that may receive
// the credential. A slot without hosts is an error, because the credential could be sent anywhere. The runtime
// enforces the guardrails. The scan for leaked secrets is mandatory.
//
// The dialect limits the lengths of texts. ambit counts lengths in characters. Where the dialect leaves a choice,
// ambit chooses the safe option:
//
//   - An action sends its request to one host over https. The URL contains the DNS name of the host. IP addresses,
//     wildcards, names of the local network and placeholders are errors. The path and the query can contain
//     placeholders such as {param}. Each placeholder must be a property of the tool's input_schema.
//   - The field auth_ref must name a slot that allows the action's host or a parent domain of the host. {credential}
//     is allowed only in headers.
//   - Each host of a slot or bundle must belong to one owner. A public suffix such as co.uk is an error. A domain
//     such as github.io is a warning, because anyone can get a name below the domain.
//   - The deny_patterns are regular expressions that match in linear time and ignore case. A pattern that matches the
//     empty string is an error, because the pattern would deny every call.
//   - The value of max_amount is a decimal, which ambit stores as written. A number limits one call. An object can
//     also set a limit per day and name a currency.
//   - Unknown fields are warnings, with a similar known field as the hint. The fields category, version and $schema
//     are known.
package findagent

import (
	"encoding/json"

	"github.com/ambit-run/ambit/agent"
)

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
	Skills        []agent.Skill `json:"skills,omitempty"`
	RouterSkillID string        `json:"router_skill_id,omitempty"`

	Entrypoint *Entrypoint `json:"entrypoint,omitempty"`
	Runtime    *Runtime    `json:"runtime,omitempty"`
	// AllowedHosts is nil if the manifest does not have the field. In that case, as with an empty list, a bundle cannot
	// connect to any host.
	AllowedHosts []string       `json:"allowed_hosts,omitzero"`
	MCP          *MCP           `json:"mcp,omitempty"`
	UI           string         `json:"ui,omitempty"`
	Env          []agent.EnvVar `json:"env,omitempty"`
}

// Tool is a capability that the agent can call.
type Tool struct {
	Name         string             `json:"name"`
	Description  string             `json:"description"`
	InputSchema  json.RawMessage    `json:"input_schema,omitempty"`
	OutputSchema json.RawMessage    `json:"output_schema,omitempty"`
	Annotations  *agent.Annotations `json:"annotations,omitempty"`
	Action       *Action            `json:"action,omitempty"`
}

// Action is the operation that a call of a tool performs. The type decides which of the other fields apply. The first
// group of fields is for http, Template is for prompt-template, and Agent and Tool are for compose.
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
	Scopes       []string `json:"scopes,omitempty"`
	Description  string   `json:"description,omitempty"`
	Required     *bool    `json:"required,omitempty"`
}

// Guardrails are the checks that the runtime makes on every call.
type Guardrails struct {
	Input  *InputRails  `json:"input,omitempty"`
	Output *OutputRails `json:"output,omitempty"`
	// Actions contains the guardrails of single tools, by tool name.
	Actions map[string]ActionRails `json:"actions,omitempty"`
}

// InputRails are the checks on the input of a call.
type InputRails struct {
	MaxLength    int64    `json:"max_length,omitempty"`
	DenyPatterns []string `json:"deny_patterns,omitempty"`
	PIIRedaction []string `json:"pii_redaction,omitempty"`
}

// OutputRails are the checks on the output of a call.
type OutputRails struct {
	SecretLeakScan *bool           `json:"secret_leak_scan,omitempty"`
	Schema         json.RawMessage `json:"schema,omitempty"`
	OnLeak         string          `json:"on_leak,omitempty"`
	OnResult       string          `json:"on_result,omitempty"`
	OnInjection    string          `json:"on_injection,omitempty"`
}

// ActionRails are the guardrails of one tool.
type ActionRails struct {
	Approval   string     `json:"approval,omitempty"`
	MaxAmount  *MaxAmount `json:"max_amount,omitempty"`
	RateLimit  string     `json:"rate_limit,omitempty"`
	Idempotent *bool      `json:"idempotent,omitempty"`
}

// MaxAmount limits the amount that a tool can spend. The amounts are decimal strings, exactly as in the manifest.
type MaxAmount agent.Cap

// MarshalJSON returns a number if there is no daily limit and no currency, and an object otherwise.
func (m MaxAmount) MarshalJSON() ([]byte, error) {
	if m.PerDay == "" && m.Currency == "" {
		return json.Marshal(json.Number(m.PerCall))
	}
	return json.Marshal(agent.Cap(m))
}

// Delivery lists the ways in which clients can reach the agent.
type Delivery struct {
	Prompt bool
	Stdio  *Stdio
	Remote *Remote
}

// Stdio is the command with which a client starts the agent. ambit shows the command but never executes it.
type Stdio struct {
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
}

// Remote is the address of a hosted agent.
type Remote struct {
	URL string `json:"url,omitempty"`
}

// MarshalJSON returns an object, even if delivery is a single word in the manifest.
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

// SkillsSource is the location of the skill files of a bundle.
type SkillsSource struct {
	Kind string `json:"kind"`
	Key  string `json:"key"`
}

// Entrypoint is the function that runs when a tool of a code bundle is called.
type Entrypoint struct {
	Path   string `json:"path"`
	Export string `json:"export,omitempty"`
}

// Runtime is the language runtime of a code bundle.
type Runtime struct {
	Kind    string `json:"kind"`
	Version string `json:"version,omitempty"`
}

// MCP says how clients reach the tools of a code bundle. In the mode "wrap", ambit serves the tools. In the mode
// "native", the bundle's own server serves the tools.
type MCP struct {
	Mode    string   `json:"mode"`
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
}

// Keys lists the top-level keys that only this dialect has.
var Keys = []string{
	"system_prompt", "example_prompts", "credential_slots", "guardrails", "delivery", "targets", "compatibility",
	"skills_source", "router_skill_id", "entrypoint",
}

// The allowed values of enumerated fields. The default, if any, is the first value.
var (
	kinds       = []string{"static-recipe", "mcp-tool", "autonomous-agent", "skills-bundle", "code-bundle"}
	actionTypes = []string{"http", "prompt-template", "compose"}
	methods     = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}
	slotTypes   = []string{"string", "secret", "json"}
	deliveries  = []string{"prompt", "mcp.stdio", "mcp.remote"}
	execs       = []string{"user-local", agent.HostedExec}
	auths       = []string{"none", "api-key", "oauth-device"}
	clients     = []string{
		"claude-desktop", "claude-code", "chatgpt", "cursor", "vscode", "gemini-cli", "windsurf", "cli", "web",
	}
)

// The limits of the dialect.
const (
	nameLeast, nameMost     = 3, 80
	descriptionMost         = 4000
	promptLeast, promptMost = 50, 20_000
	toolsMost               = 40
	examplesMost            = 5
)
