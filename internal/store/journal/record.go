package journal

import (
	"encoding/json"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// Decision is the gateway's decision about a call.
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
	// kindErased records that a log was erased up to a size, except for the roster.
	kindErased = "log_erased"
	// kindHandover records that another key took over.
	kindHandover = "log_handover"
	// kindUnreadable is shown in place of a damaged record.
	kindUnreadable = "unreadable"
)

// Record is the journal's record of a call. It never contains a credential.
type Record struct {
	// Log and Seq are the record's place. Append sets them.
	Log int64 `json:"log"`
	Seq int64 `json:"seq"`
	// Kind is empty for a call.
	Kind string `json:"kind,omitempty"`
	// Time has a precision of a microsecond. Append sets it if it is zero.
	Time time.Time `json:"time"`
	// Call is the call's id, Parent the id of the call that it was part of.
	Call   string `json:"call"`
	Parent string `json:"parent,omitempty"`
	// Agent is the name that the agent runs under. ID is the id in its manifest, Digest
	// the digest of the manifest.
	Agent     string `json:"agent"`
	ID        string `json:"id"`
	Digest    string `json:"digest"`
	Principal string `json:"principal"`
	// By is the owner who called on behalf of the principal.
	By string `json:"by,omitempty"`
	// Capabilities is nil if the agent declares none.
	Capabilities *Capabilities `json:"capabilities,omitempty"`

	Tool       string `json:"tool"`
	URI        string `json:"uri,omitempty"`
	SideEffect string `json:"side_effect,omitempty"`

	Decision Decision `json:"decision"`
	Code     string   `json:"code,omitempty"`
	Stage    string   `json:"stage,omitempty"`
	Effect   string   `json:"effect,omitempty"`
	Detail   string   `json:"detail,omitempty"`

	// Arguments are redacted and capped. ArgumentsMAC is a keyed hash of the original
	// arguments, ArgumentsSize their length.
	Arguments     json.RawMessage `json:"arguments,omitempty"`
	ArgumentsMAC  string          `json:"arguments_mac,omitempty"`
	ArgumentsSize int             `json:"arguments_size,omitempty"`

	ResultHash string `json:"result_hash,omitempty"`
	ResultSize int    `json:"result_size,omitempty"`
	// ToolError is set if the tool itself reported a failure.
	ToolError  bool  `json:"tool_error,omitempty"`
	DurationUS int64 `json:"duration_us,omitempty"`
	// Replay is set if the call returned the result of an earlier call with the same key.
	Replay string `json:"replay,omitempty"`

	// Roster is set in records of log 0 about a log.
	Roster *Roster `json:"roster,omitempty"`
	// Handover is set in the record of a hand-over.
	Handover *Handover `json:"handover,omitempty"`
	// Erasure is set in the record of an erasure.
	Erasure *Erasure `json:"erasure,omitempty"`
}

// Capabilities lists the capabilities that an agent requires of its caller, those that it
// can use optionally, and which of both the caller held.
type Capabilities struct {
	Required []string `json:"required,omitempty"`
	Optional []string `json:"optional,omitempty"`
	Held     []string `json:"held,omitempty"`
}

// Roster is the state of a log: at its birth, at a checkpoint, or the end of an erasure.
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

// Entry is a record with its hash.
type Entry struct {
	Record
	Hash tlog.Hash `json:"hash"`
	// Erased is set if only the hash is left.
	Erased bool `json:"erased,omitempty"`
}
