package journal

import (
	"encoding/json"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// Decision is the gateway's decision about a call, or the outcome of a call that the gateway allowed.
type Decision string

// The possible decisions.
const (
	Allow Decision = "allow"
	Deny  Decision = "deny"
	// Failed means that the gateway allowed the call, and then the tool reported an error, the program failed, or the
	// time ran out.
	Failed  Decision = "failed"
	Unknown Decision = "unknown"
)

// The kinds of records. The record of a call has an empty kind.
const (
	// A record of the kind kindBorn describes the first append to another log. A record of the kind kindCheckpoint
	// describes a checkpoint of another log. Both kinds of records are in log 0.
	kindBorn       = "log_born"
	kindCheckpoint = "log_checkpoint"
	// kindErased means that the first records of a log were erased. Roster records are never erased.
	kindErased = "log_erased"
	// kindHandover means that another key has replaced the journal's key.
	kindHandover = "log_handover"
	// kindUnreadable replaces the kind of a damaged record when the record is read. It is never stored.
	kindUnreadable = "unreadable"
)

// Record is the journal's record of a call. It never contains a credential.
type Record struct {
	// Log and Seq are the position of the record. Append sets them.
	Log int64 `json:"log"`
	Seq int64 `json:"seq"`
	// Kind is empty for the record of a call.
	Kind string `json:"kind,omitempty"`
	// Time has a precision of one microsecond. Append sets Time if it is zero.
	Time time.Time `json:"time"`
	// Call is the id of the call. Parent is the id of the enclosing call, if any.
	Call   string `json:"call"`
	Parent string `json:"parent,omitempty"`
	// Agent is the name under which the agent runs. ID is the id in the agent's manifest. Digest is the digest of the
	// manifest.
	Agent     string `json:"agent"`
	ID        string `json:"id"`
	Digest    string `json:"digest"`
	Principal string `json:"principal"`
	// By is the name of the owner who made the call on behalf of Principal. It is empty if Principal made the call.
	By string `json:"by,omitempty"`
	// Capabilities is nil if the agent declares no capabilities.
	Capabilities *Capabilities `json:"capabilities,omitempty"`

	Tool       string `json:"tool"`
	URI        string `json:"uri,omitempty"`
	SideEffect string `json:"side_effect,omitempty"`

	Decision Decision `json:"decision"`
	Code     string   `json:"code,omitempty"`
	Stage    string   `json:"stage,omitempty"`
	Effect   string   `json:"effect,omitempty"`
	Detail   string   `json:"detail,omitempty"`

	// Arguments contains the redacted arguments, or nothing if they are too large. ArgumentsMAC is a keyed hash of
	// the original arguments. ArgumentsSize is the size of the original arguments in bytes.
	Arguments     json.RawMessage `json:"arguments,omitempty"`
	ArgumentsMAC  string          `json:"arguments_mac,omitempty"`
	ArgumentsSize int             `json:"arguments_size,omitempty"`

	ResultHash string `json:"result_hash,omitempty"`
	ResultSize int    `json:"result_size,omitempty"`
	// ToolError reports whether the tool's result is an error.
	ToolError  bool  `json:"tool_error,omitempty"`
	DurationUS int64 `json:"duration_us,omitempty"`
	// Replay is the id of an earlier call with the same idempotency key. It is set if the call returned the result of
	// that earlier call.
	Replay string `json:"replay,omitempty"`
	// Approval is set if the call waited for an approval. It is the id of the approval.
	Approval string `json:"approval,omitempty"`
	// Contacted lists the hosts that the tool's server contacted while the call ran. Each host is HOST:PORT. Refused
	// lists what the server's sandbox refused in that time. If the server carried out other calls at the same time, the
	// lists may include entries of those calls. Omitted is the number of contacts and refusals that are not listed.
	Contacted []string `json:"contacted,omitempty"`
	Refused   []Denial `json:"refused,omitempty"`
	Omitted   int      `json:"omitted,omitempty"`
	// Origins lists where the doubtful arguments of the call were first seen.
	Origins []Origin `json:"origins,omitempty"`

	// Roster is set in roster records, which describe a log.
	Roster *Roster `json:"roster,omitempty"`
	// Handover is set in the record of a handover to another key.
	Handover *Handover `json:"handover,omitempty"`
	// Erasure is set in the record of an erasure.
	Erasure *Erasure `json:"erasure,omitempty"`
}

// Capabilities lists an agent's required and optional capabilities, and the capabilities that the caller had.
type Capabilities struct {
	Required []string `json:"required,omitempty"`
	Optional []string `json:"optional,omitempty"`
	Held     []string `json:"held,omitempty"`
}

// Denial is something that the sandbox of a tool server refused.
type Denial struct {
	// Kind is "connect" or "execute".
	Kind string `json:"kind"`
	// The field What contains the refused HOST:PORT or program.
	What string `json:"what"`
	// Private is set if the refused host has an address that is not public.
	Private bool `json:"private,omitempty"`
}

// Origin is where a doubtful argument was first seen.
type Origin struct {
	// Argument is a JSON pointer to the argument. It is empty if the call as a whole is doubtful.
	Argument string `json:"argument,omitempty"`
	Reason   string `json:"reason"`
	// Call is the id of the call whose result contained the value. It is empty if that call is unknown.
	Call string `json:"call,omitempty"`
	// ValueMAC is a keyed hash of the value.
	ValueMAC string `json:"value_mac,omitempty"`
}

// Roster describes a log at its beginning or at a checkpoint. In the record of an erasure, Size is the sequence
// number of the first record after the erased range.
type Roster struct {
	Log  int64      `json:"log"`
	Size int64      `json:"size"`
	Root *tlog.Hash `json:"root,omitempty"`
}

// Position identifies a record by its log and its sequence number.
type Position struct {
	Log int64 `json:"log"`
	Seq int64 `json:"seq"`
}

// Entry is a record with its hash.
type Entry struct {
	Record
	Hash tlog.Hash `json:"hash"`
	// Erased reports whether the record was erased. If so, only its position and its hash are left.
	Erased bool `json:"erased,omitempty"`
}
