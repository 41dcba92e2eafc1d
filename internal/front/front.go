// Package front serves an agent over MCP: to a client it is one MCP server,
// whatever stands behind it.
//
// It answers initialize, server/discover, ping, tools/list and tools/call
// itself, in both protocol generations. Definitions of tools are the ones that
// were proven, byte for byte, except where two servers have a tool of the same
// name and both are served as <alias>_<tool>. Results pass as they came.
// Every call goes through the agent's gateway; a refusal reaches the client in
// band, as a result with isError whose structuredContent.error says why, so
// that the model can read it.
//
// [ServeStdio] is the face for desktop clients: one JSON-RPC message a line.
// Calls run side by side; notifications/cancelled ends one; the end of input
// ends all of them.
package front

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/gateway"
)

// Protocol revisions that are spoken, newest first.
const modern = "2026-07-28"

var handshakes = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// Agent is an agent as it is served.
type Agent struct {
	Gateway *gateway.Gateway
	// Definition is a tool's proven definition, nil if there is none.
	Definition func(*agent.Tool) []byte
	// Skill narrows what may be called; nil if nothing does.
	Skill   call.Allowlist
	Version string

	tools json.RawMessage
}

// rpcError is an error as JSON-RPC tells it.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

const (
	methodNotFound = -32601
	invalidParams  = -32602
	invalidRequest = -32600
	parseError     = -32700
)

// handle answers one request. The result is JSON.
func (a *Agent) handle(ctx context.Context, method string, params jsontext.Value, notify func(method string, params jsontext.Value)) (any, *rpcError) {
	switch method {
	case "initialize":
		return a.initialize(params), nil
	case "server/discover":
		return a.discover(), nil
	case "ping":
		return struct{}{}, nil
	case "tools/list":
		return a.list(params), nil
	case "tools/call":
		return a.call(ctx, params, notify)
	}
	return nil, &rpcError{methodNotFound, "the method " + clip(method) + " is not known"}
}

func (a *Agent) info() map[string]any {
	who := a.Gateway.Agent()
	return map[string]any{"name": "ambit/" + agent.Slug(who.Name), "title": who.Name, "version": a.Version}
}

func (a *Agent) initialize(params jsontext.Value) any {
	var asked struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	version := handshakes[0]
	if json.Unmarshal(params, &asked) == nil {
		for _, known := range handshakes {
			if asked.ProtocolVersion == known {
				version = known
			}
		}
	}
	return map[string]any{
		"protocolVersion": version, "serverInfo": a.info(), "instructions": a.Gateway.Agent().Description,
		"capabilities": map[string]any{"tools": map[string]any{}},
	}
}

func (a *Agent) discover() any {
	return map[string]any{
		"resultType": "complete", "supportedVersions": []string{modern}, "serverInfo": a.info(),
		"instructions": a.Gateway.Agent().Description, "capabilities": map[string]any{"tools": map[string]any{}},
		"ttlMs": 0, "cacheScope": "private",
	}
}

// isModern reports whether a request carries its protocol version, as the
// newer generation does.
func isModern(params jsontext.Value) bool {
	var p struct {
		Meta struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	}
	return json.Unmarshal(params, &p) == nil && p.Meta.Version >= modern
}

// list is the callable tools, as they were proven.
func (a *Agent) list(params jsontext.Value) any {
	if a.tools == nil {
		a.tools = a.definitions()
	}
	result := map[string]any{"tools": a.tools}
	if isModern(params) {
		result["resultType"], result["ttlMs"], result["cacheScope"] = "complete", 0, "private"
	}
	return result
}

func (a *Agent) definitions() json.RawMessage {
	who := a.Gateway.Agent()
	list := []json.RawMessage{}
	for i := range who.Tools {
		t := &who.Tools[i]
		if !who.Callable(t) {
			continue
		}
		if raw := a.Definition(t); raw != nil {
			list = append(list, named(raw, t.Name, gateway.ServedName(who, t)))
		}
	}
	b, err := json.Marshal(list)
	if err != nil {
		return json.RawMessage("[]") // of definitions that were read before
	}
	return b
}

// named gives a definition the name it is served under.
func named(raw []byte, own, served string) json.RawMessage {
	if own == served {
		return raw
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return raw
	}
	name, err := json.Marshal(served)
	if err != nil {
		return raw
	}
	fields["name"] = name
	out, err := json.Marshal(fields)
	if err != nil {
		return raw
	}
	return out
}

// call takes a tools/call to the door.
func (a *Agent) call(ctx context.Context, params jsontext.Value, notify func(string, jsontext.Value)) (any, *rpcError) {
	var p struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(params, &p); err != nil || p.Name == "" {
		return nil, &rpcError{invalidParams, "tools/call needs a name and arguments"}
	}
	c := &call.Call{Tool: p.Name, Arguments: jsontext.Value(p.Arguments), Skill: a.Skill, Principal: "local"}
	if p.Meta.ProgressToken != nil {
		c.OnNotify = func(method string, params jsontext.Value) {
			notify(method, withToken(method, params, p.Meta.ProgressToken))
		}
	}
	result, err := a.Gateway.Call(ctx, c)
	if err == nil {
		return json.RawMessage(result.Raw), nil
	}
	refusal, ok := err.(*call.Refusal)
	if !ok {
		refusal = call.Refuse("act", call.ServerUnavailable, "%v", err)
	}
	return refused(refusal, isModern(params)), nil
}

// withToken gives a progress notification the client's own token.
func withToken(method string, params jsontext.Value, token json.RawMessage) jsontext.Value {
	if method != "notifications/progress" {
		return params
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(params, &fields) != nil {
		return params
	}
	fields["progressToken"] = token
	out, err := json.Marshal(fields)
	if err != nil {
		return params
	}
	return out
}

// refused is a refusal as a model reads it.
func refused(r *call.Refusal, newer bool) any {
	text := r.Message
	if r.Hint != "" {
		text += " (" + r.Hint + ")"
	}
	result := map[string]any{
		"isError": true,
		"content": []any{map[string]any{"type": "text", "text": string(r.Code) + ": " + text}},
		"structuredContent": map[string]any{"error": map[string]any{
			"code": r.Code, "message": r.Message, "hint": r.Hint, "retryable": r.Retryable,
		}},
	}
	if newer {
		result["resultType"] = "complete"
	}
	return result
}

func clip(s string) string {
	if len(s) > 100 {
		s = strings.ToValidUTF8(s[:100], "") + "…"
	}
	return s
}
