// Package front serves an agent over MCP. To a client the agent is one MCP server, in both protocol
// generations.
//
// # Messages
//
// The front answers the protocol itself. Tool definitions are the proven ones, byte for byte. If
// two servers have a tool with the same name, both are served as <alias>_<tool>, and only the name
// differs. Results and errors of servers are passed on unchanged; a client of the newer generation
// also gets the resultType that older servers do not send. Every call, and every other request to a
// server, goes through the agent's gateway.
//
// The front answers initialize immediately. tools/list waits until the servers are proven, within
// limits. If a server cannot be proven, the client learns why in the instructions, in a log
// message, and in the answers to tools/list and to every call.
//
// # Exposed requests
//
// Manifests do not declare the resources, prompts and completions of servers, nor their requests
// for sampling and roots. They are passed on only if [Agent.Expose] lists them. Elicitation is
// passed on to clients that support it. A server can ask only over a connection that one client
// owns or, in the newer generation, in the result of a call: that result carries our own
// requestState around the server's. It is sealed, valid once, and only for the same principal,
// agent, tool and arguments.
//
// # Refusals
//
// A refusal reaches the client in band, as a result with isError, so that the model can read it.
// Its structuredContent.error contains code, message, hint and retryable. Clients validate
// structuredContent against the tool's outputSchema, also in an error. For tools with an
// outputSchema the object is in _meta["ambit/error"] instead.
//
// # Transports
//
// [ServeStdio] serves one desktop client, one JSON-RPC message a line. [HTTP] is streamable HTTP
// for any number of clients. A session of the older generation is a sealed token with all its
// state, so that any replica accepts its requests. State that cannot move (a stream, an open
// question, the client's own connection) stays on one replica and ends with the session, or when
// the session is idle. The newer generation has no sessions.
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

// Supported protocol revisions, newest first.
const modern = "2026-07-28"

var handshakes = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

func supported() []string { return append([]string{modern}, handshakes...) }

// Agent is a served agent. Its fields are set before it is served, and do not change.
type Agent struct {
	Gateway Gateway
	// Definition returns a tool's proven definition, or nil.
	Definition func(*agent.Tool) []byte
	// Skill narrows what may be called; nil does not.
	Skill call.Allowlist
	// Skills are the skills that the operator registered, by the names that clients use. A skill
	// can only narrow.
	Skills  map[string]call.Allowlist
	Version string
	// Ready waits until the servers are proven, or returns why they are not. Nil means that they
	// always are.
	Ready func(context.Context) error
	// Prompts are the agent's own.
	Prompts []Prompt
	// Expose lists what servers may offer besides tools: some of [Exposable].
	Expose gateway.Exposed
	// Level sets the minimum level of the log messages that servers send to a client; nil if the
	// agent has no servers.
	Level func(ctx context.Context, c *call.Client, level string)
	// Capabilities returns the capabilities of a server, by its alias.
	Capabilities func(alias string) jsontext.Value
	// Keys returns the keys that seal states; it is called when they are needed.
	Keys func() (*identity.Keys, error)
	// Spend records that a sealed state was used, and reports whether it was unused. Nil means
	// that only this process remembers.
	Spend func(ctx context.Context, id string, until time.Time) (first bool, err error)
	// Release is called with the key of a client that has gone.
	Release func(key string)
	// Greeted is called with the one client on stdio, as soon as its capabilities are known.
	Greeted func(*call.Client)

	spent       spentStates
	late        atomic.Bool // a client asked before the servers were ready
	mu          sync.Mutex
	subscribers map[*subscriber]bool
	routes      routes
}

// Gateway is the part of [gateway.Gateway] that the front uses.
type Gateway interface {
	Agent() *agent.Agent
	Call(ctx context.Context, c *call.Call) (call.Result, error)
	call.Forwarder
}

var _ Gateway = (*gateway.Gateway)(nil)

// Roots exposes a client's roots to servers. A server may use them instead of the folders that the
// manifest names, so they are passed on only if the operator exposes them.
const Roots = "roots"

// Exposable are the kinds that no manifest declares.
var Exposable = []string{gateway.Sampling, gateway.Resources, gateway.Prompts, Roots}

func (a *Agent) exposes(kind string) bool { return slices.Contains(a.Expose, kind) }

// Prompt is a prompt of the agent itself.
type Prompt struct {
	// Definition is the entry of prompts/list, with this name.
	Name       string
	Definition jsontext.Value
	// Get returns the result of prompts/get.
	Get func(ctx context.Context, principal string, arguments jsontext.Value) (jsontext.Value, error)
}

// rpcError is a JSON-RPC error.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`

	raw jsontext.Value // a server's own, sent unchanged
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
)

// request is one message of a client, with everything that the front knows about it.
type request struct {
	mcpwire.Message
	meta      meta
	principal string
	modern    bool
	peer      *peer // nil without a session
	gone      <-chan struct{}
	notify    func(method string, params jsontext.Value)
	round     int // how often the server has asked for input
}

// method answers one request with a result in JSON, or with an error.
type method func(*Agent, context.Context, *request) (jsontext.Value, *rpcError)

// The methods of both protocol generations, of the newer one, and of the older ones.
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

// method finds the function that answers the request.
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

// check refuses a request that its protocol generation does not allow.
func (r *request) check() *rpcError {
	switch {
	case r.modern && r.meta.version == "":
		return &rpcError{Code: invalidParams, Message: "_meta has no io.modelcontextprotocol/protocolVersion"}
	case r.modern && r.meta.version != modern:
		return &rpcError{
			Code: unsupportedVersion, Message: "unsupported protocol revision",
			Data: map[string]any{"supported": supported(), "requested": clip(r.meta.version)},
		}
	case r.modern && r.meta.capabilities == nil:
		return &rpcError{Code: invalidParams, Message: "_meta has no io.modelcontextprotocol/clientCapabilities"}
	}
	return nil
}

// client describes the client of a request to the gateway and to servers.
func (a *Agent) client(r *request) *call.Client {
	switch {
	case r.modern:
		c := &call.Client{Capabilities: a.offered(r.meta.capabilities)}
		if r.peer != nil {
			c.Key = r.peer.key
		}
		return c
	case r.peer != nil:
		return r.peer.client()
	}
	return nil
}

// offered returns the client capabilities that servers may use.
func (a *Agent) offered(capabilities jsontext.Value) jsontext.Value {
	var b bytes.Buffer
	b.WriteByte('{')
	for _, c := range []struct {
		name string
		ok   bool
	}{{"elicitation", true}, {"sampling", a.exposes(gateway.Sampling)}, {"roots", a.exposes(Roots)}} {
		if start, end := find(capabilities, c.name); c.ok && start >= 0 && end-start <= maxCapability && capabilities[start] == '{' {
			if b.Len() > 1 {
				b.WriteByte(',')
			}
			b.WriteString(`"` + c.name + `":`)
			b.Write(capabilities[start:end])
		}
	}
	b.WriteByte('}')
	return b.Bytes()
}

// maxCapability bounds one capability that is stored for a client.
const maxCapability = 512

func (a *Agent) info() map[string]any {
	who := a.Gateway.Agent()
	return map[string]any{"name": "ambit/" + agent.Slug(who.Name), "title": who.Name, "version": a.Version}
}

// instructions are the agent's own, and why it cannot work, if it cannot.
func (a *Agent) instructions() string {
	who := a.Gateway.Agent()
	text := cmp.Or(who.Prompt, who.Description)
	if why := a.broken(); why != "" {
		text = "This agent is unavailable: " + why + "\n\n" + text
	}
	return text
}

// broken returns why the agent cannot work, as far as that is known.
func (a *Agent) broken() string {
	if a.Ready == nil {
		return ""
	}
	if err := a.Ready(alreadyCancelled); err != nil && !errors.Is(err, context.Canceled) {
		return explain(err)
	}
	return ""
}

// alreadyCancelled is for checks that must not wait.
var alreadyCancelled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// abilities are the capabilities in the answers to initialize and discover.
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
		r.peer.greet(a.offered(lookup(r.Params, "capabilities")))
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

// marshal encodes our own values, which never fails.
func marshal(v any) jsontext.Value {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return jsontext.Value("null")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
