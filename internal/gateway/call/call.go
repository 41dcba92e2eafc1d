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

// Call is a call as its caller requested it.
type Call struct {
	// ID names the call: 32 hex digits.
	ID string
	// Tool is the requested tool: a name or a matrix:// URI.
	Tool string
	// Arguments is a JSON object, as received.
	Arguments jsontext.Value
	// Meta is the _meta object of the request, as received; nil if there is none.
	Meta jsontext.Value
	// Continues is the ID of the call that this one continues after the server asked for
	// more input; empty for a new call. It comes only from a request state that this ambit
	// sealed.
	Continues string
	// More is an object with the further params of a continued call: inputResponses and
	// the server's requestState. Nil if there are none.
	More jsontext.Value
	// Principal is the caller.
	Principal string
	// By is the owner who calls on behalf of the principal; empty if the principal calls.
	By string
	// Held are the agent's capabilities that the principal holds. Only the gateway sets it.
	Held []string
	// Parent is the ID of the call that this one is part of; empty if none.
	Parent string
	// Waited is set if the call waited for its turn after its caller was
	// authenticated, so that the caller is checked again.
	Waited bool
	// IdempotencyKey makes a repeated call the same call; empty if none.
	IdempotencyKey string
	// Client is the client that made the call; nil if there is none.
	Client *Client
	// Refused is set if the call was refused before the gateway. The gateway still judges
	// and records it, but charges no limits and quotas. A repeated call still gets its
	// answer.
	Refused *Refusal
	// Skill, if set, restricts the tools that may be called.
	Skill Allowlist
	// Gone is closed when the client stops waiting without cancelling the call; nil if
	// that cannot be detected.
	Gone <-chan struct{}
	// Timeout bounds the call; 0 means the tool's own timeout.
	Timeout time.Duration
	// OnNotify receives progress and log messages during the call.
	OnNotify func(method string, params jsontext.Value)
}

// Allowlist has the tools that a skill allows.
type Allowlist interface {
	// Allows reports whether the tool of that URI may be called.
	Allows(uri string) bool
	// Name returns the name of the skill, for messages.
	Name() string
}

// Result is the result of a call that was carried out.
type Result struct {
	// Raw is the tools/call result of the binding, byte for byte.
	Raw jsontext.Value
	// IsError is set if the tool itself reported a failure.
	IsError bool
	// Failure is the server's JSON-RPC error object, if it answered with one instead of a
	// result. Raw then contains all of it in the form of a result.
	Failure  jsontext.Value
	Duration time.Duration
	// Log identifies what the call wrote to the operator's log, so that the log can be
	// compared with the journal; empty if nothing. Failed calls have it too.
	Log string
}

// Outcome is the outcome of a call.
type Outcome struct {
	Result Result
	// Refusal is set if there is no result.
	Refusal *Refusal
	// Begun is set if the gateway had committed to the call.
	Begun bool
}

// Binding carries out calls that passed the gate.
type Binding interface {
	Act(ctx context.Context, tool *agent.Tool, c *Call) (Result, error)
}

// Effect is the side effect of a refused or failed call.
type Effect string

// The effects. Only a call without effect may be repeated.
const (
	NoEffect      Effect = "none"
	EffectDone    Effect = "done"
	EffectUnknown Effect = "unknown"
)

// Refusal is the reason that a call was denied or failed.
type Refusal struct {
	Code Code `json:"code"`
	// Reason is the way in which a program failed; empty for other codes.
	Reason    string `json:"reason,omitempty"`
	Stage     string `json:"stage"`
	Message   string `json:"message"`
	Hint      string `json:"hint,omitempty"`
	Effect    Effect `json:"effect"`
	Retryable bool   `json:"retryable"`
	// RetryAfter is the time to wait before a retry; 0 if unknown.
	RetryAfter time.Duration `json:"-"`
	// Command completes a hint that is not the code's own.
	Command diag.Command `json:"-"`
	// Unsent is set if the call was certainly not sent, so that it counts towards no
	// limit. A read that was sent has no effect either, but counts.
	Unsent bool `json:"-"`
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Code, r.Message) }

// Refuse returns the refusal of a call without effect, with the code's own hint.
func Refuse(stage string, code Code, format string, args ...any) *Refusal {
	message := fmt.Sprintf(format, args...)
	return &Refusal{Code: code, Stage: stage, Message: message, Hint: meaningOf(code).Fix, Effect: NoEffect}
}

// Uncertain returns the refusal of a call that may have had an effect.
func Uncertain(stage string, code Code, format string, args ...any) *Refusal {
	r := Refuse(stage, code, format, args...)
	r.Effect = EffectUnknown
	return r
}

// Unsent marks a refusal as that of a call that was never sent. It returns a copy,
// because calls may share a refusal.
func Unsent(err error) error {
	r, ok := errors.AsType[*Refusal](err)
	if !ok || r.Unsent {
		return err
	}
	marked := *r
	marked.Unsent = true
	return &marked
}

// AsRefusal returns an error of a call as a refusal. The effect of a call that failed
// with any other error is unknown.
func AsRefusal(stage string, err error) *Refusal {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r
	}
	return Uncertain(stage, ServerUnavailable, "%v", err)
}

// Again marks a refusal as retryable, if the call had no effect.
func (r *Refusal) Again() *Refusal {
	r.Retryable = r.Effect == NoEffect
	return r
}

// RetrySeconds returns RetryAfter in seconds; nil if unknown.
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

// Document returns the result of a call for ambit call --json and the daemon's API. Its
// fields are a contract.
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

// WithStanding adds a check of the caller to the context of a call. A call may wait for
// its turn or for a person, and the caller's key may be revoked meanwhile.
func WithStanding(ctx context.Context, still func(context.Context) error) context.Context {
	return context.WithValue(ctx, standingKey{}, still)
}

// Standing returns an error if the caller may no longer call: a [*Refusal], or the error
// of the check. Without a check, the caller is assumed valid.
func Standing(ctx context.Context) error {
	if still, ok := ctx.Value(standingKey{}).(func(context.Context) error); ok {
		return still(ctx)
	}
	return nil
}
