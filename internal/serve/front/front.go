// Package front serves an agent to MCP clients. To a client, the agent looks like one MCP server. The package
// supports two protocols. The newer protocol is revision 2026-07-28. The older protocol is every earlier revision. It
// begins with an initialize handshake.
//
// # Messages
//
// Tool calls and other requests to servers go through the agent's gateway. The front answers all other messages
// itself.
//
// A server is verified if its tools match the manifest and the lock file. The front lists the verified tool
// definitions unchanged. If two servers have a tool with the same name, these tools are listed as <alias>_<tool>.
// Results and errors of servers are passed on unchanged. Only the member resultType is added for clients of the newer
// protocol, because older servers do not send it.
//
// The front answers initialize at once. A tools/list request waits for a limited time until the servers are verified.
// If verification fails, the client sees the reason in the instructions, in a log message, and in the answers to
// tools/list and to every call.
//
// # Exposed requests
//
// Manifests do not declare the resources, prompts and completions of a server, nor a server's sampling and roots
// requests to the client. The front passes these requests on only if [Agent.Expose] lists them. Elicitation requests
// reach every client that supports elicitation. Their messages begin with the names of the server and the agent.
//
// A server can send requests to the client over a connection that belongs to this client alone. In the newer
// protocol, the result of a call can also contain requests, together with a requestState. The front wraps the
// requestState in a sealed state of its own. A sealed state can be used once, for the same principal, agent, tool and
// arguments.
//
// # Refusals
//
// A refused call returns a result with isError, not a protocol error. The model can therefore read the refusal. The
// member structuredContent.error contains code, message, hint and retryable. For a tool with an outputSchema, this
// object is in _meta["ambit/error"] instead. Clients check structuredContent against the outputSchema even in an error.
// If the caller must sign in to a remote server, and the client supports URL-mode elicitation, the client gets the
// address of the sign-in page instead.
//
// # Transports
//
// [ServeStdio] serves one desktop client with one JSON-RPC message per line. [HTTP] serves any number of clients over
// streamable HTTP.
//
// In the older protocol, an HTTP session id is a sealed token with the session's state. Any replica can therefore
// serve the session. A replica keeps only what cannot move: open streams, unanswered questions to the client, and
// connections that belong to the client. The replica releases them when the session ends or becomes idle. The newer
// protocol has no sessions.
package front

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// newerRevision is the supported revision of the newer protocol.
const newerRevision = "2026-07-28"

// handshakes lists the supported revisions of the older protocol, newest first.
var handshakes = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

func supported() []string { return append([]string{newerRevision}, handshakes...) }

// Agent is an agent that is served to clients. The exported fields must not change once the agent is served.
type Agent struct {
	Gateway Gateway
	// Definition returns the verified definition of a tool. It returns nil if the tool is not verified.
	Definition func(*agent.Tool) []byte
	// Skill limits every call to the tools that the skill allows. If Skill is nil, this limit does not apply.
	Skill call.Allowlist
	// Skills contains the registered skills by name. A client can choose one of them for a call. The chosen skill can
	// exclude tools that Skill allows, but it cannot allow tools that Skill excludes.
	Skills  map[string]call.Allowlist
	Version string
	// Ready waits until the servers are verified. It returns an error if verification fails.
	Ready func(context.Context) error
	// Wake starts the servers that only this principal uses, and waits a few seconds for them. It may be nil.
	Wake func(ctx context.Context, principal string)
	// Prompts lists the agent's own prompts. They are served in addition to the servers' prompts.
	Prompts []Prompt
	// Expose is the list of features that are forwarded between servers and clients in addition to tools. It can contain
	// only values from [Exposable].
	Expose gateway.Exposed
	// Level sets the minimum level of the log messages from servers to the client c.
	Level func(ctx context.Context, c *call.Client, level string)
	// Capabilities returns the capabilities of the server with the given alias.
	Capabilities func(alias string) jsontext.Value
	// Keys returns the keys that encrypt states. It is called only when a state is sealed or opened.
	Keys func() (*identity.Keys, error)
	// Unavailable returns the reasons why some servers of a working agent cannot be used. It may be nil.
	Unavailable func() []*call.Refusal
	// Spend marks the sealed state with the given id as used. The first result is false if the state was already marked.
	// The mark is kept at least until the given time.
	Spend func(ctx context.Context, id string, until time.Time) (first bool, err error)
	// SignInPage returns the page at which a caller signs in to a remote server, and the id of the caller's present
	// sign-in. The page is "" if there is none, and the id is "" if the caller is not signed in. SignInPage may be nil.
	SignInPage func(principal, server string) (page, id string)
	// Release is called when a client has disconnected. The parameter is the client's key.
	Release func(key string)
	// Greeted is called when the capabilities of the client on stdio are known.
	Greeted func(*call.Client)

	recheckLists time.Duration // tests shorten this time; see the constant of the same name

	late        atomic.Bool // whether a request has timed out before the servers were ready
	mu          sync.Mutex
	subscribers map[*subscriber]bool
	routes      routes
}

// Gateway is the part of [gateway.Gateway] that the front uses.
type Gateway interface {
	Agent() *agent.Agent
	// Listed returns the agent. hidden[i] reports whether tool i of the agent is hidden from the caller of c. If hidden
	// is nil, no tool is hidden.
	Listed(c *call.Call) (who *agent.Agent, hidden []bool)
	// Offers reports whether the policy can allow the request f for an item of a list. If open is not empty, it is the
	// name of an argument that can have any value.
	Offers(f *call.Forward, open string) bool
	// PolicyVersion returns a value that changes when the answers of Offers may have changed.
	PolicyVersion(c *call.Call) any
	Call(ctx context.Context, c *call.Call) (call.Result, error)
	// Answer decides an approval with the answer of the client's user. It returns a refusal if the answer is not yes.
	Answer(ctx context.Context, approval, principal string, answer jsontext.Value) *call.Refusal
	call.Forwarder
}

var _ Gateway = (*gateway.Gateway)(nil)

// Roots is the [Agent.Expose] value that shows a client's roots to servers. A server could use the roots instead of
// the folders in the manifest. Roots are therefore hidden by default.
const Roots = "roots"

// Exposable contains all values that are allowed in [Agent.Expose].
var Exposable = []string{gateway.Sampling, gateway.Resources, gateway.Prompts, Roots}

func (a *Agent) exposes(kind string) bool { return slices.Contains(a.Expose, kind) }

// Prompt is one of the agent's own prompts.
type Prompt struct {
	Name string
	// Definition is the prompt's entry in the result of prompts/list. It must contain Name.
	Definition jsontext.Value
	// Get returns the result of a prompts/get request for this prompt.
	Get func(ctx context.Context, f *call.Forward) (jsontext.Value, error)
}

// rpcError is a JSON-RPC error.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`

	raw jsontext.Value // the whole error object of a server; if it is set, the other fields are ignored
}

func (e *rpcError) json() jsontext.Value {
	if e.raw != nil {
		return e.raw
	}
	return marshal(e)
}

const (
	parseError         = -32700
	invalidRequest     = -32600
	methodNotFound     = -32601
	invalidParams      = -32602
	internalError      = -32603
	headerMismatch     = -32020
	missingCapability  = -32021
	unsupportedVersion = -32022
	signInRequired     = -32042 // URLElicitationRequired of revision 2025-11-25
)

// request is a message from a client with everything needed to answer it.
type request struct {
	mcpwire.Message
	meta       meta
	principal  string
	attributes *identity.Attributes // the attributes from the principal's verified credential; nil if there are none
	modern     bool
	peer       *peer           // nil if this replica has no state for the client
	gone       <-chan struct{} // closed when the HTTP connection is closed; nil if the connection is not watched
	notify     func(method string, params jsontext.Value)
	round      int // the number of times that a server has asked for input
}

// method handles a request. It returns a JSON result or an error.
type method func(*Agent, context.Context, *request) (jsontext.Value, *rpcError)

// methods contains the methods that are served in both protocols. newerMethods and olderMethods contain the methods
// that are served in only one protocol.
var (
	methods = map[string]method{
		"tools/call":               (*Agent).call,
		"tools/list":               (*Agent).list,
		"server/discover":          (*Agent).discover,
		"prompts/list":             (*Agent).pass,
		"prompts/get":              (*Agent).pass,
		"resources/list":           (*Agent).pass,
		"resources/templates/list": (*Agent).pass,
		"resources/read":           (*Agent).pass,
		"completion/complete":      (*Agent).pass,
	}
	newerMethods = map[string]method{
		"subscriptions/listen": (*Agent).listen,
	}
	olderMethods = map[string]method{
		"initialize":            (*Agent).initialize,
		"ping":                  (*Agent).ping,
		"logging/setLevel":      (*Agent).setLevel,
		"resources/subscribe":   (*Agent).subscribe,
		"resources/unsubscribe": (*Agent).subscribe,
	}
)

func (r *request) method() method {
	only := olderMethods
	if r.modern {
		only = newerMethods
	}
	for _, known := range []map[string]method{methods, only} {
		if answer := known[r.Method]; answer != nil {
			return answer
		}
	}
	return (*Agent).unknown
}

func (a *Agent) unknown(_ context.Context, r *request) (jsontext.Value, *rpcError) {
	return nil, unknownMethod(r.Method)
}

func (a *Agent) ping(context.Context, *request) (jsontext.Value, *rpcError) {
	return jsontext.Value("{}"), nil
}

func unknownMethod(method string) *rpcError {
	return &rpcError{Code: methodNotFound, Message: "unknown method " + clip(method)}
}

// check returns an error if a request of the newer protocol is invalid. A valid request contains a supported revision
// and the client's capabilities.
func (r *request) check() *rpcError {
	switch {
	case r.modern && r.meta.version == "":
		return &rpcError{Code: invalidParams, Message: "_meta has no io.modelcontextprotocol/protocolVersion"}
	case r.modern && r.meta.version != newerRevision:
		return &rpcError{
			Code: unsupportedVersion, Message: "unsupported protocol revision",
			Data: map[string]any{"supported": supported(), "requested": clip(r.meta.version)},
		}
	case r.modern && r.meta.capabilities == nil:
		return &rpcError{Code: invalidParams, Message: "_meta has no io.modelcontextprotocol/clientCapabilities"}
	}
	return nil
}

// client returns a description of the client for the gateway and the servers. It returns nil if nothing is known about
// the client.
func (a *Agent) client(r *request) *call.Client {
	switch {
	case r.modern:
		c := &call.Client{Capabilities: a.Offered(r.meta.capabilities), Repeats: r.Method == "tools/call"}
		if r.peer != nil {
			c.Key = r.peer.key
		}
		return c
	case r.peer != nil:
		return r.peer.client()
	}
	return nil
}

// Offered returns the subset of the client's capabilities that servers are allowed to use.
func (a *Agent) Offered(capabilities jsontext.Value) jsontext.Value {
	kinds := []string{"elicitation"}
	for _, kind := range []string{gateway.Sampling, Roots} {
		if a.exposes(kind) {
			kinds = append(kinds, kind)
		}
	}
	offered := jsontext.Value("{}")
	for _, kind := range slices.Backward(kinds) {
		if value := lookup(capabilities, kind); len(value) > 0 && len(value) <= maxCapability && value[0] == '{' {
			offered = set(offered, kind, value)
		}
	}
	return offered
}

// maxCapability is the maximum size of a client capability in bytes. Larger capabilities are dropped.
const maxCapability = 512

func (a *Agent) info() map[string]any {
	who := a.Gateway.Agent()
	return map[string]any{"name": "ambit/" + agent.Slug(who.Name), "title": who.Name, "version": a.Version}
}

// instructions returns the agent's prompt or description. If the agent or some of its servers are unavailable, the text
// begins with the reasons.
func (a *Agent) instructions() string {
	who := a.Gateway.Agent()
	text := cmp.Or(who.Prompt, who.Description)
	if why := a.brokenReason(); why != "" {
		text = "This agent is unavailable: " + why + "\n\n" + text
	}
	for _, r := range a.unavailable() {
		text = "Some tools are unavailable: " + reasonFor(r) + "\n\n" + text
	}
	return text
}

// reasonFor describes a refusal in the instructions for the model. Models trust the instructions, and the message of a
// refusal can quote a server. So the description contains the message only if a credential is missing, and otherwise
// only the code.
func reasonFor(r *call.Refusal) string {
	if r.Code == call.CredentialMissing {
		return explain(r)
	}
	return string(r.Code) + "; to see the reason, call a tool"
}

func (a *Agent) unavailable() []*call.Refusal {
	if a.Unavailable == nil {
		return nil
	}
	return a.Unavailable()
}

// brokenReason returns the reason why the agent cannot work. It returns "" if the agent works or is still starting.
func (a *Agent) brokenReason() string {
	if err := a.Ready(alreadyCancelled); err != nil && !errors.Is(err, context.Canceled) {
		return reasonFor(call.AsRefusal("act", err))
	}
	return ""
}

// alreadyCancelled is the context for checks that must not wait.
var alreadyCancelled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// abilities returns the agent's capabilities for initialize and server/discover.
func (a *Agent) abilities() map[string]any {
	changes := map[string]any{"listChanged": true}
	c := map[string]any{"tools": changes, "logging": struct{}{}}
	if a.exposes(gateway.Prompts) || len(a.Prompts) > 0 {
		c["prompts"] = changes
	}
	if a.exposes(gateway.Resources) {
		c["resources"] = map[string]any{"listChanged": true, "subscribe": true}
	}
	if a.exposes(gateway.Prompts) || a.exposes(gateway.Resources) {
		c["completions"] = struct{}{}
	}
	return c
}

func (a *Agent) initialize(_ context.Context, r *request) (jsontext.Value, *rpcError) {
	version := handshakes[0]
	if asked, _ := text(lookup(r.Params, "protocolVersion")); slices.Contains(handshakes, asked) {
		version = asked
	}
	if r.peer != nil {
		r.peer.greet(a.Offered(lookup(r.Params, "capabilities")))
	}
	return marshal(map[string]any{
		"protocolVersion": version, "serverInfo": a.info(), "instructions": a.instructions(), "capabilities": a.abilities(),
	}), nil
}

func (a *Agent) discover(context.Context, *request) (jsontext.Value, *rpcError) {
	return marshal(map[string]any{
		"resultType": "complete", "supportedVersions": supported(),
		"capabilities": a.abilities(), "instructions": a.instructions(),
		"_meta": map[string]any{"io.modelcontextprotocol/serverInfo": a.info()},
		"ttlMs": 0, "cacheScope": "private",
	}), nil
}

// marshal encodes a value as JSON. The values in this package can always be encoded.
func marshal(v any) jsontext.Value {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return jsontext.Value("null")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
