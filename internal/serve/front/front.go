// Package front serves an agent over MCP: to a client it is one MCP server,
// whatever is behind it, in both protocol generations.
//
// # What passes
//
// It answers the protocol itself. Definitions of tools are the ones that were
// proven, byte for byte, except where two servers have a tool of the same name
// and both are served as <alias>_<tool>; there only the name is another.
// Results pass as they came, and so do the errors with which a server answers;
// a client of the newer generation gets the resultType that an older server
// does not know of. Every call goes through the agent's gateway, and so does
// whatever else goes to a server.
//
// Initialize is answered at once, whatever the servers are doing. tools/list
// waits until they are proven, within reason. If one cannot be, the client
// learns why wherever it may look: in the instructions, by a log message, and by
// the answers to tools/list and to every call.
//
// # What passes only if the operator exposes it
//
// Resources, prompts and completions of servers, and their requests for
// sampling and roots, appear in no manifest. They pass only if [Agent.Expose] has them.
// Elicitation passes to a client that takes it. A server can ask only by a
// connection that one client owns, or in the newer generation by the result of
// a call: that passes with a requestState of our own around the server's,
// sealed, good once, and only for the same principal, agent, tool and arguments.
//
// # Refusals
//
// A refusal reaches the client in band, as a result with isError, so that the
// model can read it. Its structuredContent.error says code, message, hint and
// retryable. Clients hold structuredContent to the tool's outputSchema, also in
// an error, so for a tool that has one the same object is in
// _meta["ambit/error"] instead.
//
// # Two faces
//
// [ServeStdio] is the face for desktop clients: one JSON-RPC message a line.
// [HTTP] is streamable HTTP, for any number of clients. A session of the older
// generation is a sealed token that holds what it stands for, so that any
// replica takes its requests; what cannot be moved (a stream, a question that
// waits for its answer, a connection of the client's own) stays where it is and
// ends with the session, or when it is idle. The newer generation has none.
package front

import (
	"bytes"
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

// Protocol revisions that are spoken, newest first.
const modern = "2026-07-28"

var handshakes = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

func supported() []string { return append([]string{modern}, handshakes...) }

// Agent is an agent as it is served. Its fields are set before it is, and stay.
type Agent struct {
	// Door is the agent's gateway.
	Door Door
	// Definition is a tool's proven definition, nil if there is none.
	Definition func(*agent.Tool) []byte
	// Skill narrows what may be called; nil if nothing does.
	Skill call.Allowlist
	// Skills are those that the operator registered, by the names under which a
	// client may choose one. They can only narrow.
	Skills  map[string]call.Allowlist
	Version string
	// Ready waits until the servers are proven, or returns why they are not. Nil
	// means that they always are.
	Ready func(context.Context) error
	// Prompts are the agent's own.
	Prompts []Prompt
	// Expose is what passes of the servers besides tools: some of [Exposable].
	Expose gateway.Exposed
	// Level sets the least level of log messages that servers send a client; nil
	// if the servers have none.
	Level func(ctx context.Context, c *call.Client, level string)
	// Capabilities are what a server says it can do, by its alias.
	Capabilities func(alias string) jsontext.Value
	// Keys seal what clients bring back. They are asked for when they are needed.
	Keys func() (*identity.Keys, error)
	// Spend takes note that something sealed was used, and reports whether that
	// was the first time. Nil means that only this process remembers.
	Spend func(ctx context.Context, id string, until time.Time) (first bool, err error)
	// Release is called with the key of a client that has gone.
	Release func(key string)
	// Greeted is called with the one client on stdio, as soon as it is known.
	Greeted func(*call.Client)

	spent  spentStates
	late   atomic.Bool // a client asked before the servers were there
	mu     sync.Mutex
	ears   map[*ear]bool
	routes routes
}

// Door is what the front sees of a gateway.
type Door interface {
	Agent() *agent.Agent
	Call(ctx context.Context, c *call.Call) (call.Result, error)
	call.Forwarder
}

var _ Door = (*gateway.Gateway)(nil)

// Roots is the kind of thing that servers learn from a client's roots. A server
// may take them for folders that it is to work in, in the place of those that
// the manifest names, so they pass only if the operator exposes them.
const Roots = "roots"

// Exposable are the kinds of things that no manifest declares.
var Exposable = []string{gateway.Sampling, gateway.Resources, gateway.Prompts, Roots}

func (a *Agent) exposes(kind string) bool { return slices.Contains(a.Expose, kind) }

// Prompt is one that the agent itself offers.
type Prompt struct {
	// Definition is what prompts/list shows, with this name.
	Name       string
	Definition jsontext.Value
	// Get makes the result of prompts/get.
	Get func(ctx context.Context, principal string, arguments jsontext.Value) (jsontext.Value, error)
}

// rpcError is a JSON-RPC error.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`

	raw jsontext.Value // a server's own, sent as it is
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

// request is one message of a client, and all that the front knows about it.
type request struct {
	mcpwire.Message
	meta      meta
	principal string
	modern    bool
	peer      *peer // nil where there is no session
	gone      <-chan struct{}
	notify    func(method string, params jsontext.Value)
	round     int // how often the server has asked for more
}

// method answers one request with a result in JSON, or with an error.
type method func(*Agent, context.Context, *request) (jsontext.Value, *rpcError)

// The methods of both protocol generations, of the newer one, and of the older
// ones.
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
		"subscriptions/listen": (*Agent).subscribed,
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
	return &rpcError{Code: methodNotFound, Message: "the method " + clip(method) + " is not known"}
}

// check refuses a request that its protocol generation does not allow.
func (r *request) check() *rpcError {
	switch {
	case r.modern && r.meta.version == "":
		return &rpcError{Code: invalidParams, Message: "_meta has no io.modelcontextprotocol/protocolVersion"}
	case r.modern && r.meta.version != modern:
		return &rpcError{
			Code: unsupportedVersion, Message: "the protocol revision is not known here",
			Data: map[string]any{"supported": supported(), "requested": clip(r.meta.version)},
		}
	case r.modern && r.meta.capabilities == nil:
		return &rpcError{Code: invalidParams, Message: "_meta has no io.modelcontextprotocol/clientCapabilities"}
	}
	return nil
}

// client is the connection that a request came by, for the gateway and servers.
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

// offered is what servers may ask of a client that can be asked this.
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

// maxCapability bounds one capability that is kept for a client.
const maxCapability = 512

func (a *Agent) info() map[string]any {
	who := a.Door.Agent()
	return map[string]any{"name": "ambit/" + agent.Slug(who.Name), "title": who.Name, "version": a.Version}
}

// instructions are the agent's own; where it cannot work, they say why.
func (a *Agent) instructions() string {
	who := a.Door.Agent()
	text := who.Prompt
	if text == "" {
		text = who.Description
	}
	if why := a.broken(); why != "" {
		text = "This agent cannot work at present: " + why + "\n\n" + text
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

// alreadyCancelled is the context of a question that does not wait.
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

// marshal writes our own values, which always can be.
func marshal(v any) jsontext.Value {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return jsontext.Value("null")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
