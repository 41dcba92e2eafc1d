package journal

import (
	"encoding/json"
	"time"
)

// Decision is what the door decided.
type Decision string

// The decisions.
const (
	Allow   Decision = "allow"
	Deny    Decision = "deny"
	Unknown Decision = "unknown"
)

// Record is what the journal keeps of a call. No credential is ever in it.
type Record struct {
	Time time.Time `json:"time"`
	// Call is the call's id, Parent that of the call it was part of.
	Call   string `json:"call"`
	Parent string `json:"parent,omitempty"`
	// Agent is the name it runs under, ID what its manifest calls itself, and
	// Digest that manifest's.
	Agent     string `json:"agent"`
	ID        string `json:"id"`
	Digest    string `json:"digest"`
	Principal string `json:"principal"`

	Tool       string `json:"tool"`
	URI        string `json:"uri,omitempty"`
	SideEffect string `json:"side_effect,omitempty"`

	Decision Decision `json:"decision"`
	Code     string   `json:"code,omitempty"`
	Stage    string   `json:"stage,omitempty"`
	Effect   string   `json:"effect,omitempty"`
	Detail   string   `json:"detail,omitempty"`

	// Arguments are redacted and capped; ArgumentsMAC is a keyed hash of all of
	// them as they came, ArgumentsSize their length.
	Arguments     json.RawMessage `json:"arguments,omitempty"`
	ArgumentsMAC  string          `json:"arguments_mac,omitempty"`
	ArgumentsSize int             `json:"arguments_size,omitempty"`

	ResultHash string `json:"result_hash,omitempty"`
	ResultSize int    `json:"result_size,omitempty"`
	// ToolError says that the tool itself reported a failure.
	ToolError  bool  `json:"tool_error,omitempty"`
	DurationUS int64 `json:"duration_us,omitempty"`
	// Replay says that the answer of an earlier call of the same key was given.
	Replay string `json:"replay,omitempty"`
}
