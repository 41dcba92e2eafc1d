package call

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Call is one call as its caller asked for it.
type Call struct {
	// ID names the call: 32 hex digits.
	ID string
	// Tool is what was asked for: a name or a matrix:// URI.
	Tool string
	// Arguments is a JSON object, as it came.
	Arguments jsontext.Value
	// Meta is the _meta object of the request, as it came; nil if there is none.
	Meta jsontext.Value
	// Continues is the ID of the call that this one continues, after the
	// server had asked for more; empty for a new one. Only what was sealed here
	// may set it.
	Continues string
	// More holds the further params of such a call, inputResponses and the
	// server's own requestState, as an object; nil if there are none.
	More jsontext.Value
	// Principal is who is calling.
	Principal string
	// By is the owner who calls in the principal's name; empty if the principal calls.
	By string
	// Held are the capabilities that the principal holds of those which the agent
	// asks for. Only the gateway sets it.
	Held []string
	// Parent is the ID of the call that this one is part of; empty if none.
	Parent string
	// Waited is set if the call waited for its turn after its caller was
	// authenticated, so that the caller is checked again.
	Waited bool
	// IdempotencyKey makes a repeated call the same call; empty if none.
	IdempotencyKey string
	// Client is the connection that the call came by; nil if there is none.
	Client *Client
	// Refused is why the call is refused before it comes to the gateway, which then
	// judges and records it like any other, and takes nothing from limits and
	// quotas. A repeated call still gets its answer.
	Refused *Refusal
	// Skill, if there is one, narrows what may be called.
	Skill Allowlist
	// Gone is closed when the client no longer waits for the answer, although it did
	// not cancel the call; nil if that cannot be known.
	Gone <-chan struct{}
	// Timeout bounds the work; 0 leaves it to the tool.
	Timeout time.Duration
	// OnNotify gets progress and log messages while the tool works.
	OnNotify func(method string, params jsontext.Value)
}

// Allowlist is what a skill lets its user call.
type Allowlist interface {
	// Allows reports whether the tool of that URI may be called.
	Allows(uri string) bool
	// Name is that of the skill, for messages.
	Name() string
}

// Result is what came of a call that was carried out.
type Result struct {
	// Raw is the tools/call result as the binding gave it, byte for byte.
	Raw jsontext.Value
	// IsError is set if the tool itself reported a failure.
	IsError bool
	// Failure is the JSON-RPC error object with which the server answered instead
	// of a result, as it wrote it. Raw then reports it in the form of a result, and
	// contains all of it.
	Failure  jsontext.Value
	Duration time.Duration
	// Log says what the work wrote to the operator's log, in a form by which that
	// can be held against it; empty if nothing. It is told also of work that failed.
	Log string
}

// Outcome is what became of a call.
type Outcome struct {
	Result Result
	// Refusal is why there is no result; nil if there is one.
	Refusal *Refusal
	// Begun is set if the gateway had committed to the call.
	Begun bool
}

// Binding does the work of a call that passed the gate.
type Binding interface {
	Act(ctx context.Context, tool *agent.Tool, c *Call) (Result, error)
}

// Effect is what a refused or failed call did to the world.
type Effect string

// The effects. Only a call without one may be repeated.
const (
	NoEffect      Effect = "none"
	EffectDone    Effect = "done"
	EffectUnknown Effect = "unknown"
)

// Refusal is why a call did not happen, or failed.
type Refusal struct {
	Code Code `json:"code"`
	// Reason is how a program failed; empty for any other code.
	Reason    string `json:"reason,omitempty"`
	Stage     string `json:"stage"`
	Message   string `json:"message"`
	Hint      string `json:"hint,omitempty"`
	Effect    Effect `json:"effect"`
	Retryable bool   `json:"retryable"`
	// RetryAfter is how long to wait before a retry can pass; 0 if that is not known.
	RetryAfter time.Duration `json:"-"`
	// Command completes a hint that is not the code's own.
	Command diag.Command `json:"-"`
	// Unsent is set if nothing of the call was sent, so that it counts towards no
	// limit. It is set only where that is certain: a read that was sent has no effect
	// either, and counts.
	Unsent bool `json:"-"`
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Code, r.Message) }

// Refuse makes the refusal of a call that did nothing. Its hint is the code's
// own.
func Refuse(stage string, code Code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Stage: stage, Message: fmt.Sprintf(format, args...), Hint: meaningOf(code).Fix, Effect: NoEffect}
}

// Uncertain makes the refusal of a call that may have done something.
func Uncertain(stage string, code Code, format string, args ...any) *Refusal {
	r := Refuse(stage, code, format, args...)
	r.Effect = EffectUnknown
	return r
}

// Unsent marks a refusal as that of a call that was never sent. It returns a copy,
// since one refusal may be that of many calls.
func Unsent(err error) error {
	r, ok := errors.AsType[*Refusal](err)
	if !ok || r.Unsent {
		return err
	}
	marked := *r
	marked.Unsent = true
	return &marked
}

// AsRefusal is an error of a call as a refusal. The effect of a call that failed with
// any other error is unknown.
func AsRefusal(stage string, err error) *Refusal {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r
	}
	return Uncertain(stage, ServerUnavailable, "%v", err)
}

// Again marks a refusal as one that may pass if it is tried again.
func (r *Refusal) Again() *Refusal {
	r.Retryable = r.Effect == NoEffect
	return r
}

// RetrySeconds is RetryAfter in seconds; nil if that is not known.
func (r *Refusal) RetrySeconds() *float64 {
	if r.RetryAfter <= 0 {
		return nil
	}
	s := r.RetryAfter.Round(time.Millisecond).Seconds()
	return &s
}

// Advice returns the hint, and the command that completes it.
func (r *Refusal) Advice() (string, diag.Command) {
	if m := meaningOf(r.Code); r.Hint == m.Fix {
		return m.Fix, m.Command
	}
	return r.Hint, r.Command
}

// HintFor returns the hint with its command, for a reader who knows the agent's
// manifest under this name or path; see [diag.Command].
func (r *Refusal) HintFor(manifest string) string {
	hint, command := r.Advice()
	return command.After(hint, manifest)
}

// Reason is the result of one stage of a call.
type Reason struct {
	Stage   string `json:"stage"`
	Code    Code   `json:"code,omitempty"`
	Allowed bool   `json:"allowed"`
	Detail  string `json:"detail"`
	// Hint says how to get a denied call allowed. If it is empty, the code's own applies.
	Hint string `json:"hint,omitempty"`
	// Command completes Hint.
	Command diag.Command `json:"-"`
}

// Refusal returns the refusal for a reason that denies the call.
func (r Reason) Refusal() *Refusal {
	refusal := Refuse(r.Stage, r.Code, "%s", r.Detail)
	if r.Hint != "" {
		refusal.Hint, refusal.Command = r.Hint, r.Command
	}
	return refusal
}

// Deny returns the reason of a stage that refused the call.
func (r *Refusal) Deny(stage string) Reason {
	return Reason{Stage: stage, Code: r.Code, Detail: r.Message, Hint: r.Hint, Command: r.Command}
}

// Document is the result of a call in ambit call --json and in the daemon's API.
// Its fields are a contract.
func (r Result) Document(id string) map[string]any {
	doc := map[string]any{"call_id": id, "duration_ms": r.Duration.Milliseconds(), "is_error": r.IsError}
	var raw struct {
		Content           json.RawMessage `json:"content"`
		StructuredContent json.RawMessage `json:"structuredContent"`
	}
	if json.Unmarshal(r.Raw, &raw) != nil || len(raw.Content) == 0 || raw.Content[0] != '[' {
		raw.Content = json.RawMessage("[]")
	}
	doc["content"] = raw.Content
	if raw.StructuredContent != nil {
		doc["structuredContent"] = raw.StructuredContent
	}
	return doc
}

type standingKey struct{}

// WithStanding gives the context of a call a check of its caller. A call may wait for
// its turn or for a person, and the caller's key may be revoked meanwhile.
func WithStanding(ctx context.Context, still func(context.Context) error) context.Context {
	return context.WithValue(ctx, standingKey{}, still)
}

// Standing returns why the caller may no longer call: a [*Refusal], or the error of
// the check. Without a check, the caller is assumed valid.
func Standing(ctx context.Context) error {
	if still, ok := ctx.Value(standingKey{}).(func(context.Context) error); ok {
		return still(ctx)
	}
	return nil
}
