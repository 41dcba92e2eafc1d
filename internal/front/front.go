// Package front serves an agent over MCP: to a client it is one MCP server,
// whatever stands behind it.
//
// It answers initialize, server/discover, ping, tools/list and tools/call
// itself, in both protocol generations. Definitions of tools are the ones that
// were proven, byte for byte, except where two servers have a tool of the same
// name and both are served as <alias>_<tool>; there only the name is another.
// Results pass as they came; a client of the newer generation gets the
// resultType that an older server does not know of.
// Every call goes through the agent's gateway; a refusal reaches the client in
// band, as a result with isError whose structuredContent.error says why, so
// that the model can read it.
//
// [ServeStdio] is the face for desktop clients: one JSON-RPC message a line.
// Calls run side by side; notifications/cancelled ends one; after the end of
// input those under way may still be answered, for a while.
package front

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	jsonv2 "github.com/go-json-experiment/json"
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
}

// rpcError is an error as JSON-RPC tells it.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

const (
	parseError         = -32700
	invalidRequest     = -32600
	methodNotFound     = -32601
	invalidParams      = -32602
	internalError      = -32603
	unsupportedVersion = -32022
)

// lenient reads what a client sends: by exact names, without minding members
// that are there twice. What matters of it is read strictly by the gateway.
var lenient = jsonv2.JoinOptions(jsontext.AllowDuplicateNames(true))

// handle answers one request. The result is JSON.
func (a *Agent) handle(ctx context.Context, method string, params jsontext.Value, notify func(method string, params jsontext.Value)) (jsontext.Value, *rpcError) {
	version := versionOf(params)
	if version > modern {
		return nil, &rpcError{unsupportedVersion, "the protocol revision is not known here", map[string]any{"supported": append([]string{modern}, handshakes...), "requested": clip(version)}}
	}
	newer := version == modern
	switch method {
	case "initialize":
		return a.initialize(params), nil
	case "server/discover":
		return a.discover(), nil
	case "ping":
		return jsontext.Value("{}"), nil
	case "tools/list":
		return a.list(newer), nil
	case "tools/call":
		return a.call(ctx, params, newer, notify)
	}
	return nil, &rpcError{Code: methodNotFound, Message: "the method " + clip(method) + " is not known"}
}

// versionOf is the protocol revision that a request of the newer generation
// carries; empty in the older one.
func versionOf(params jsontext.Value) string {
	var p struct {
		Meta struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	}
	if jsonv2.Unmarshal(params, &p, lenient) != nil {
		return ""
	}
	return p.Meta.Version
}

func (a *Agent) info() map[string]any {
	who := a.Gateway.Agent()
	return map[string]any{"name": "ambit/" + agent.Slug(who.Name), "title": who.Name, "version": a.Version}
}

func (a *Agent) initialize(params jsontext.Value) jsontext.Value {
	var asked struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	version := handshakes[0]
	if jsonv2.Unmarshal(params, &asked, lenient) == nil && slices.Contains(handshakes, asked.ProtocolVersion) {
		version = asked.ProtocolVersion
	}
	return marshal(map[string]any{
		"protocolVersion": version, "serverInfo": a.info(), "instructions": a.Gateway.Agent().Description,
		"capabilities": map[string]any{"tools": struct{}{}},
	})
}

func (a *Agent) discover() jsontext.Value {
	return marshal(map[string]any{
		"resultType": "complete", "supportedVersions": append([]string{modern}, handshakes...),
		"capabilities": map[string]any{"tools": struct{}{}}, "instructions": a.Gateway.Agent().Description,
		"_meta": map[string]any{"io.modelcontextprotocol/serverInfo": a.info()},
		"ttlMs": 0, "cacheScope": "private",
	})
}

// list is the callable tools, as they were proven.
func (a *Agent) list(newer bool) jsontext.Value {
	who := a.Gateway.Agent()
	var b bytes.Buffer
	b.WriteString(`{"tools":[`)
	comma := ""
	for i := range who.Tools {
		t := &who.Tools[i]
		if !who.Callable(t) {
			continue
		}
		raw := a.Definition(t)
		if raw == nil {
			continue
		}
		if served := gateway.ServedName(who, t); served != t.Name {
			raw = set(raw, "name", marshal(served))
		}
		b.WriteString(comma)
		b.Write(raw)
		comma = ","
	}
	b.WriteByte(']')
	if newer {
		b.WriteString(`,"resultType":"complete","ttlMs":0,"cacheScope":"private"`)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// call takes a tools/call to the door.
func (a *Agent) call(ctx context.Context, params jsontext.Value, newer bool, notify func(string, jsontext.Value)) (jsontext.Value, *rpcError) {
	var p struct {
		Name      string         `json:"name"`
		Arguments jsontext.Value `json:"arguments"`
		Meta      struct {
			ProgressToken jsontext.Value `json:"progressToken"`
		} `json:"_meta"`
	}
	if err := jsonv2.Unmarshal(params, &p, lenient); err != nil || p.Name == "" {
		return nil, &rpcError{Code: invalidParams, Message: "tools/call needs a name and arguments"}
	}
	c := &call.Call{Tool: p.Name, Arguments: p.Arguments, Skill: a.Skill, Principal: "local"}
	if token := p.Meta.ProgressToken; token != nil {
		c.OnNotify = func(method string, params jsontext.Value) {
			if method == "notifications/progress" {
				params = set(params, "progressToken", token)
			}
			notify(method, params)
		}
	}
	result, err := a.Gateway.Call(ctx, c)
	raw := result.Raw
	if err != nil {
		refusal, ok := err.(*call.Refusal)
		if !ok {
			refusal = call.Refuse("act", call.ServerUnavailable, "%v", err)
		}
		raw = refused(refusal)
	} else if len(raw) == 0 {
		raw = jsontext.Value(`{"content":[]}`)
	}
	if start, _ := find(raw, "resultType"); newer && start < 0 {
		raw = set(raw, "resultType", jsontext.Value(`"complete"`))
	}
	return raw, nil
}

// refused is a refusal as a model reads it.
func refused(r *call.Refusal) jsontext.Value {
	text := r.Message
	if r.Hint != "" {
		text += " (" + r.Hint + ")"
	}
	return marshal(map[string]any{
		"isError": true,
		"content": []any{map[string]any{"type": "text", "text": string(r.Code) + ": " + text}},
		"structuredContent": map[string]any{"error": map[string]any{
			"code": r.Code, "message": r.Message, "hint": r.Hint, "retryable": r.Retryable,
		}},
	})
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
