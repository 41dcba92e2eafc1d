package journal

import (
	"encoding/json"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// Decision is what the door decided.
type Decision string

// The decisions.
const (
	Allow   Decision = "allow"
	Deny    Decision = "deny"
	Unknown Decision = "unknown"
)

// Kinds of records. A call has none.
const (
	kindBorn       = "log_born"
	kindCheckpoint = "log_checkpoint"
	// kindErased says that the records of a log before a size were erased, but
	// for those of the roster.
	kindErased = "log_erased"
	// kindHandover says that another key took over.
	kindHandover = "log_handover"
	// kindUnreadable is shown in place of a record that is damaged.
	kindUnreadable = "unreadable"
)

// Record is what the journal keeps of a call. No credential is ever in it.
type Record struct {
	// Log and Seq are its place, and are set by Append.
	Log int64 `json:"log"`
	Seq int64 `json:"seq"`
	// Kind is empty for a call.
	Kind string `json:"kind,omitempty"`
	// Time is kept to the microsecond. Append sets it if nobody did.
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
	// By is the owner who called in the principal's name.
	By string `json:"by,omitempty"`
	// Capabilities are those that the agent asks for; nil if it asks for none.
	Capabilities *Capabilities `json:"capabilities,omitempty"`

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

	// Roster is what log 0 keeps about another log.
	Roster *Roster `json:"roster,omitempty"`
	// Handover is of a record that says that another key took over.
	Handover *Handover `json:"handover,omitempty"`
	// Erasure is of a record that says that others were erased.
	Erasure *Erasure `json:"erasure,omitempty"`
}

// Capabilities are what an agent requires of whoever calls, what it would use
// besides, and what of both they held.
type Capabilities struct {
	Required []string `json:"required,omitempty"`
	Optional []string `json:"optional,omitempty"`
	Held     []string `json:"held,omitempty"`
}

// Roster is a log's birth, how far it had come at a checkpoint, or up to where it
// was erased.
type Roster struct {
	Log  int64      `json:"log"`
	Size int64      `json:"size"`
	Root *tlog.Hash `json:"root,omitempty"`
}

// Position is a record's place.
type Position struct {
	Log int64 `json:"log"`
	Seq int64 `json:"seq"`
}

// Entry is a record as the journal has it.
type Entry struct {
	Record
	Hash tlog.Hash `json:"hash"`
	// Erased says that only the hash is left.
	Erased bool `json:"erased,omitempty"`
}
