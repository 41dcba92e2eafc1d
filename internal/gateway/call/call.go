package call

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// Call is a tool call, as the caller requested it.
type Call struct {
	// ID identifies the call. It has 32 hex digits.
	ID string
	// Tool is the name or the matrix:// URI of the requested tool.
	Tool string
	// Arguments is a JSON object, exactly as the caller sent it.
	Arguments jsontext.Value
	// Meta is the _meta object of the request, or nil if the request has none.
	Meta jsontext.Value
	// Continues is the ID of an earlier call. That call stopped because the server asked for more input, and this call
	// supplies the input. Continues is empty for a new call. The ID comes from a request state that ambit encrypted, so a
	// caller cannot forge it.
	Continues string
	// More is a JSON object with the additional params of a call that continues an earlier call: inputResponses and the
	// server's requestState. It is nil if there are none.
	More jsontext.Value
	// Principal is the caller.
	Principal string
	// Attributes contains the caller's properties from a verified credential. It is nil if there is no credential.
	Attributes *identity.Attributes
	// AttributesLost is set if an earlier process made the call and did not store the caller's attributes. The policy
	// refuses such a call if a rule depends on them.
	AttributesLost bool
	// By is the owner who makes the call on behalf of Principal. It is empty if Principal itself makes the call.
	By string
	// Held lists the capabilities that the agent's manifest declares and that the principal holds. Only the gateway sets
	// it.
	Held []string
	// Flow describes where the arguments come from. It is nil if the call is not traced. Only the gateway sets it.
	Flow *Flow
	// Parent is the ID of the call that caused this call, or empty.
	Parent string
	// Waited is set if the call waited in a queue after the caller was authenticated. If Waited is set, the gateway checks
	// the caller's access again.
	Waited bool
	// IdempotencyKey identifies retries of the same call. A second call with the same key gets the answer to the first
	// call. The key is optional.
	IdempotencyKey string
	// Client is the client that made the call, or nil.
	Client *Client
	// Refused is set if the call was refused before it reached the gateway. The gateway still checks and records such a
	// call, but does not count it toward any limit or quota. If the call repeats an answered call, it still gets the
	// earlier answer.
	Refused *Refusal
	// Skill lists the tools that the current skill allows. Nil means that no skill restricts the call.
	Skill Allowlist
	// Known caches what the policy has read from the arguments. Only the policy uses it.
	Known any
	// Gone is a channel that is closed when the client stops waiting for the answer without cancelling the call. Gone is
	// nil if ambit cannot detect this.
	Gone <-chan struct{}
	// Timeout shortens the tool's timeout for this call. Zero means no change.
	Timeout time.Duration
	// OnNotify receives the server's progress and log messages during the call.
	OnNotify func(method string, params jsontext.Value)
}

// Flow describes where the arguments of a call come from, for policy rules.
type Flow struct {
	// Untrusted is set if an agent of the principal has read untrusted text, which is text that others can write.
	Untrusted bool
	// Strict is set if ambit no longer has all of the untrusted text, or if the operator requires strict decisions.
	Strict bool
	// Doubtful lists the arguments whose value comes from untrusted text or has no known origin.
	Doubtful []string
	// Origin lists the tools that returned the untrusted text.
	Origin []string
	// AskedForIn lists the tools whose untrusted text asks for this call.
	AskedForIn []string
}

// Allowlist is the list of tools that a skill allows.
type Allowlist interface {
	// Allows reports whether the skill allows the tool with this URI.
	Allows(uri string) bool
	// Name returns the name of the skill. Policy rules and messages use this name.
	Name() string
}

// Result is the result of a call that was carried out.
type Result struct {
	// Raw is the tools/call result that the binding returned.
	Raw jsontext.Value
	// IsError is set if the tool itself reported a failure.
	IsError bool
	// Failure is set if the server answered with a JSON-RPC error instead of a result. It is the error object, and Raw
	// contains the same error as a tool result. Failure is nil for all other answers.
	Failure  jsontext.Value
	Duration time.Duration
	// Log identifies the call's output in the operator's log, so that the journal can refer to it. It is empty if there
	// was no output. A failed call can have a Log too.
	Log string
	// Observed is set for a call to a server in a sandbox, even if the call failed.
	Observed Observed
}

// Observed is what a server in a sandbox did while a call ran. If the server carried out other calls at the same time,
// Observed may include what the server did for those calls.
type Observed struct {
	// Contacted lists hosts as HOST:PORT.
	Contacted []string
	// Refused lists the rights that the server lacked.
	Refused []agent.Right
	// Omitted is the number of contacts and refusals that are not listed.
	Omitted int
}

// Outcome is a call's result or refusal.
type Outcome struct {
	Result Result
	// Refusal is nil if there is a result.
	Refusal *Refusal
	// Begun is set if the gateway stored the call's intent. An intent is a row that the gateway writes before it sends
	// the call.
	Begun bool
}

// Untrusted is the name of the member of _meta that marks a result with an injection.
const Untrusted = "ambit/untrusted"

// Binding carries out the calls that the gateway allows.
type Binding interface {
	Act(ctx context.Context, tool *agent.Tool, c *Call) (Result, error)
}

// Preparer is a binding that can start a tool's server before the call. The gateway uses it before it asks a person to
// approve the call, so that a person is asked only about a call that can be made.
type Preparer interface {
	Prepare(ctx context.Context, tool *agent.Tool, principal string) error
}

// Effect says whether a refused or failed call had a side effect.
type Effect string

// The possible effects of a call. A call can be repeated safely only if its effect is NoEffect.
const (
	NoEffect      Effect = "none"
	EffectDone    Effect = "done"
	EffectUnknown Effect = "unknown"
)

// Refusal explains why a call was denied or failed.
type Refusal struct {
	Code Code `json:"code"`
	// Reason says how a program failed. It is set only if the code is program_failed.
	Reason    string `json:"reason,omitempty"`
	Stage     string `json:"stage"`
	Message   string `json:"message"`
	Hint      string `json:"hint,omitempty"`
	Effect    Effect `json:"effect"`
	Retryable bool   `json:"retryable"`
	// RetryAfter is how long to wait before a retry. Zero means unknown.
	RetryAfter time.Duration `json:"-"`
	// Command is a shell command that is shown after Hint. If Hint is the default hint of Code, the default command of
	// Code is shown instead.
	Command diag.Command `json:"-"`
	// SignIn is the alias of the remote server that needs a sign-in of the caller. It is "" if a sign-in does not help.
	SignIn string `json:"-"`
	// Question is set if the client's user can approve the call.
	Question *Question `json:"-"`
	// Unsent is set if the call certainly never reached the tool. An unsent call does not count toward any limit. In
	// contrast, a read that was sent does count, although its effect is also NoEffect.
	Unsent bool `json:"-"`
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Code, r.Message) }

// Refuse returns a refusal of a call that had no effect. The refusal has the default hint of its code.
func Refuse(stage string, code Code, format string, args ...any) *Refusal {
	message := fmt.Sprintf(format, args...)
	return &Refusal{Code: code, Stage: stage, Message: message, Hint: meaningOf(code).Fix, Effect: NoEffect}
}

// Uncertain returns a refusal for a call that may have had an effect.
func Uncertain(stage string, code Code, format string, args ...any) *Refusal {
	r := Refuse(stage, code, format, args...)
	r.Effect = EffectUnknown
	return r
}

// Unsent marks the refusal in err as unsent: the call never reached the tool. It returns a copy, because several
// calls can share a refusal. An error that is not a refusal is returned unchanged.
func Unsent(err error) error {
	r, ok := errors.AsType[*Refusal](err)
	if !ok || r.Unsent {
		return err
	}
	marked := *r
	marked.Unsent = true
	return &marked
}

// AsRefusal converts the error of a call to a refusal. Any error that is not already a refusal becomes
// ServerUnavailable with an unknown effect.
func AsRefusal(stage string, err error) *Refusal {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r
	}
	return Uncertain(stage, ServerUnavailable, "%v", err)
}

// Again sets r.Retryable and returns r. The refusal is retryable only if the call had no effect.
func (r *Refusal) Again() *Refusal {
	r.Retryable = r.Effect == NoEffect
	return r
}

// RetrySeconds returns RetryAfter in seconds, or nil if RetryAfter is unknown.
func (r *Refusal) RetrySeconds() *float64 {
	if r.RetryAfter <= 0 {
		return nil
	}
	s := r.RetryAfter.Round(time.Millisecond).Seconds()
	return &s
}

// Advice returns the hint and the shell command to show after it.
func (r *Refusal) Advice() (string, diag.Command) {
	if m := meaningOf(r.Code); r.Hint == m.Fix {
		return m.Fix, m.Command
	}
	return r.Hint, r.Command
}

// HintFor returns the hint followed by its shell command. It inserts the name or path of the agent's manifest into the
// command. See [diag.Command].
func (r *Refusal) HintFor(manifest string) string {
	hint, command := r.Advice()
	return command.After(hint, manifest)
}

// Reason explains why a stage allows or denies a call.
type Reason struct {
	Stage   string `json:"stage"`
	Code    Code   `json:"code,omitempty"`
	Allowed bool   `json:"allowed"`
	Detail  string `json:"detail"`
	// Hint describes what to change so that a denied call is allowed. The default is the hint of Code.
	Hint string `json:"hint,omitempty"`
	// Command is a shell command that is shown after Hint.
	Command diag.Command `json:"-"`
}

// Refusal converts the reason for a denial to a refusal.
func (r Reason) Refusal() *Refusal {
	refusal := Refuse(r.Stage, r.Code, "%s", r.Detail)
	if r.Hint != "" {
		refusal.Hint, refusal.Command = r.Hint, r.Command
	}
	return refusal
}

// Deny converts a refusal to a [Reason] for the given stage.
func (r *Refusal) Deny(stage string) Reason {
	return Reason{Stage: stage, Code: r.Code, Detail: r.Message, Hint: r.Hint, Command: r.Command}
}

// Document returns the result in the format that `ambit call --json` and the daemon's API use. The field names must
// never change.
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
	if mark := rawjson.Lookup(r.Raw, "_meta", Untrusted); mark.Kind() == '{' {
		doc["untrusted"] = json.RawMessage(mark)
	}
	return doc
}

type standingKey struct{}

// WithStanding returns a copy of ctx that contains an access check. The check reports whether the caller still has
// access. It is needed because the caller's key can be revoked while a call waits in a queue or for an approval.
func WithStanding(ctx context.Context, still func(context.Context) error) context.Context {
	return context.WithValue(ctx, standingKey{}, still)
}

// Standing runs the access check in ctx. It returns a [*Refusal] if the caller has lost access, and any other error if
// the check itself failed. If ctx contains no check, the caller has access.
func Standing(ctx context.Context) error {
	if still, ok := ctx.Value(standingKey{}).(func(context.Context) error); ok {
		return still(ctx)
	}
	return nil
}

type askingKey struct{}

// WithAsking returns a copy of ctx that contains the alias of the server whose request [Asker.Ask] forwards.
func WithAsking(ctx context.Context, alias string) context.Context {
	return context.WithValue(ctx, askingKey{}, alias)
}

// Asking returns the alias in ctx, or "" if ctx contains none.
func Asking(ctx context.Context) string {
	alias, _ := ctx.Value(askingKey{}).(string)
	return alias
}

// Question asks the client's user to approve a call.
type Question struct {
	Approval string         // the id of the approval
	Params   jsontext.Value // the params of elicitation/create
}

// Asker forwards a server's request to the client: elicitation/create, sampling/createMessage or roots/list. If ctx
// contains the alias of the server, Ask adds the names of the server and the agent to a message for the client's user.
// Ask changes nothing else.
type Asker interface {
	Ask(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error)
}

// CapabilityFor returns the capability that a client must declare to receive requests with this method. The result is
// empty if the method needs no capability.
func CapabilityFor(method string) string {
	switch method {
	case "elicitation/create":
		return "elicitation"
	case "sampling/createMessage":
		return "sampling"
	case "roots/list":
		return "roots"
	}
	return ""
}

// Client is the client that made a call. A server can send requests to the client over a connection that no other
// client uses. In the newer protocol, the result of a call can also contain requests.
type Client struct {
	// Key identifies the client while it is connected. Server connections that belong to this client alone are stored
	// under this key.
	Key string
	// Principal is the caller who uses the client. It is empty if several callers do.
	Principal string
	// Capabilities is a JSON object with the client's capabilities that the operator allows. Servers can use no others.
	// Nil and {} mean none.
	Capabilities jsontext.Value
	// Asker sends requests to the client. It is nil if the client accepts no requests during a call.
	Asker Asker
	// Repeats is set if the client answers questions by repeating the call with the answers, as in revision 2026-07-28.
	// Asker is nil then.
	Repeats bool
	// Notify sends a server's notifications to the client. It is used only for server connections that belong to this
	// client alone. Notify is nil if the client does not listen.
	Notify func(method string, params jsontext.Value)
}

// Forward is a request for a server's resource, prompt or completion. Manifests do not declare such requests. The
// gateway refuses them unless the operator has exposed this kind of request.
type Forward struct {
	// ID identifies the request. It has 32 hex digits, like [Call.ID].
	ID string
	// Server is the alias of the server.
	Server string
	// Method is an MCP method such as resources/read or prompts/get.
	Method string
	// Params is a JSON object, or nil.
	Params jsontext.Value
	// Principal is the caller, and Attributes is what the caller's verified credential says. See [Call].
	Principal  string
	Attributes *identity.Attributes
	// Skill is the current skill, which policy rules can refer to. It is nil if there is none.
	Skill Allowlist
	// Client is the client that sent the request, or nil.
	Client *Client
	// OnNotify receives the server's progress and log messages until the answer arrives.
	OnNotify func(method string, params jsontext.Value)
	// Again returns an error if the gateway no longer allows the request. The gateway sets it. A binding calls Again before
	// it repeats the request by itself, for example to renew a subscription after the server was restarted.
	Again func(ctx context.Context) error
	// OnDrop is called if a binding ends a subscription because Again returned an error. It may be nil.
	OnDrop func()
}

// Allowed asks the gateway whether the request may be repeated. If the gateway refuses, Allowed calls OnDrop, unless
// ctx has ended.
func (f *Forward) Allowed(ctx context.Context) error {
	if f.Again == nil {
		return nil
	}
	err := f.Again(ctx)
	if err != nil && ctx.Err() == nil && f.OnDrop != nil {
		f.OnDrop()
	}
	return err
}

// Forwarder forwards a request to a server. The gateway and the binding are forwarders. The error is a [*Refusal] if
// ambit refused the request, or an [*Answer] if the server answered with an error.
type Forwarder interface {
	Forward(ctx context.Context, f *Forward) (jsontext.Value, error)
}

// Answer is an error with which a server answered a request.
type Answer struct {
	// Raw is the server's JSON-RPC error object, unchanged.
	Raw jsontext.Value
}

func (a *Answer) Error() string { return "the server answered with an error" }
