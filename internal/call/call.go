package call

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
)

// Call is one call as somebody asked for it.
type Call struct {
	// ID names the call: 32 hex digits.
	ID string
	// Tool is what was asked for: a name or a matrix:// URI.
	Tool string
	// Arguments is a JSON object, as it came.
	Arguments jsontext.Value
	// Meta is the _meta object of the request, as it came; nil if there is none.
	Meta jsontext.Value
	// Continues is the ID of the call that this one goes on with, after the
	// server had asked for more; empty for a new one. Only what was sealed here
	// may set it.
	Continues string
	// More holds the further params of such a call, inputResponses and the
	// server's own requestState, as an object; nil if there are none.
	More jsontext.Value
	// Principal is who is calling.
	Principal string
	// By is the owner who calls in the principal's name; empty if nobody does.
	By string
	// Held are the capabilities that the principal holds of those which the agent
	// asks for. Only the door sets it.
	Held []string
	// Parent is the ID of the call that this one is part of; empty if none.
	Parent string
	// Waited says that the call waited for its turn since its caller was let in, who
	// is therefore looked at again.
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
	// Gone is closed when nobody waits for the answer any more, although the call
	// was not cancelled; nil if that cannot be known.
	Gone <-chan struct{}
	// Timeout bounds the work; 0 leaves it to the tool.
	Timeout time.Duration
	// OnNotify is told of progress and log messages while the tool works.
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
	// IsError says that the tool itself reported a failure.
	IsError bool
	// Failure is the JSON-RPC error object with which the server answered instead
	// of a result, as it wrote it. Raw then tells of it in the form of a result,
	// and holds all of it.
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
	// Begun says that the gateway had committed to the call.
	Begun bool
}

// Binding does the work of a call that passed the gate.
type Binding interface {
	Act(ctx context.Context, tool *agent.Tool, c *Call) (Result, error)
}

// Effect says what a refused or failed call did to the world.
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
	// RetryAfter is how long to wait before a retry can pass; 0 says nothing.
	RetryAfter time.Duration `json:"-"`
	// Unsent says that nothing of the call left for whoever does its work, so that
	// it counts towards no limit. It is set only where that is certain: a read that
	// was sent has no effect either, and counts.
	Unsent bool `json:"-"`
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Code, r.Message) }

// Refuse makes the refusal of a call that did nothing. Its hint is the code's
// own.
func Refuse(stage string, code Code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Stage: stage, Message: fmt.Sprintf(format, args...), Hint: Fix(code), Effect: NoEffect}
}

// Uncertain makes the refusal of a call that may have done something.
func Uncertain(stage string, code Code, format string, args ...any) *Refusal {
	r := Refuse(stage, code, format, args...)
	r.Effect = EffectUnknown
	return r
}

// Unsent is the error of a call of which nothing left: where it is a refusal, one
// that says so. That is a copy, since one reason may refuse many calls.
func Unsent(err error) error {
	r, ok := errors.AsType[*Refusal](err)
	if !ok || r.Unsent {
		return err
	}
	marked := *r
	marked.Unsent = true
	return &marked
}

// AsRefusal is what an error of a call says: a refusal, or that nobody knows. Nobody
// said that nothing happened.
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

// RetrySeconds is RetryAfter as it is told: in seconds, nil if it says nothing.
func (r *Refusal) RetrySeconds() *float64 {
	if r.RetryAfter <= 0 {
		return nil
	}
	s := r.RetryAfter.Round(time.Millisecond).Seconds()
	return &s
}

// Fix is what to do about a code, whatever the call.
func Fix(code Code) string {
	for _, m := range Meanings {
		if m.Code == code {
			return m.Fix
		}
	}
	return ""
}

// Reason is one stage's word on a call.
type Reason struct {
	Stage   string `json:"stage"`
	Code    Code   `json:"code,omitempty"`
	Allowed bool   `json:"allowed"`
	Detail  string `json:"detail"`
	// Hint is what to do about a no; empty leaves it to [Fix].
	Hint string `json:"hint,omitempty"`
}
