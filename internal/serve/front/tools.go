package front

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// listWait bounds how long a list waits for the servers. Clients time out at about the same time;
// they are notified when the servers are ready.
const listWait = 50 * time.Second

// levelWait bounds how long servers may take to change a log level, because the client waits for
// it.
const levelWait = 5 * time.Second

// ready waits until the servers are proven.
func (a *Agent) ready(ctx context.Context) *rpcError {
	if a.Ready == nil {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	err := a.Ready(waiting)
	switch {
	case err == nil:
		return nil
	case waiting.Err() != nil:
		a.late.Store(true)
		return &rpcError{Code: internalError, Message: "the agent's tool servers are still starting; a notification follows when its tools are ready"}
	}
	return &rpcError{Code: internalError, Message: explain(err), Data: refusalData(err)}
}

// Up is called when the servers are proven or have failed. Clients that asked too early are
// notified to ask again.
func (a *Agent) Up() {
	if a.late.Load() {
		a.Publish("notifications/tools/list_changed", nil)
	}
}

// explain describes an error to a person.
func explain(err error) string {
	r, ok := errors.AsType[*call.Refusal](err)
	if !ok {
		return err.Error()
	}
	if r.Hint != "" {
		return r.Error() + " (" + r.Hint + ")"
	}
	return r.Error()
}

func refusalData(err error) any {
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		return map[string]any{"error": refusalObject(r)}
	}
	return nil
}

// list returns the callable tools with their proven definitions.
func (a *Agent) list(ctx context.Context, r *request) (jsontext.Value, *rpcError) {
	if err := a.ready(ctx); err != nil {
		return nil, err
	}
	who := a.Gateway.Agent()
	served := gateway.ServedNames(who)
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
		if name := served(t); name != t.Name {
			raw = set(raw, "name", marshal(name))
		}
		b.WriteString(comma)
		b.Write(raw)
		comma = ","
	}
	b.WriteByte(']')
	if r.modern {
		b.WriteString(`,"resultType":"complete","ttlMs":0,"cacheScope":"private"`)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// served finds a tool by the name that clients use, or returns nil.
func (a *Agent) served(name string) *agent.Tool {
	who := a.Gateway.Agent()
	for i := range who.Tools {
		// Most names have different ends.
		if t := &who.Tools[i]; strings.HasSuffix(name, t.Name) && gateway.ServedName(who, t) == name || t.URI != nil && t.URI.String() == name {
			return t
		}
	}
	return nil
}

// definition returns the definition that clients see for a tool name.
func (a *Agent) definition(name string) []byte {
	t := a.served(name)
	if t == nil {
		return nil
	}
	return a.Definition(t)
}

// call makes a tool call through the gateway and converts its result for the client.
func (a *Agent) call(ctx context.Context, r *request) (jsontext.Value, *rpcError) {
	c, refusal, problem := a.newCall(ctx, r)
	if problem != nil {
		return nil, problem
	}
	for ; refusal == nil; r.round++ {
		result, err := a.Gateway.Call(ctx, c)
		if err != nil {
			refusal = call.AsRefusal("act", err)
			break
		}
		if result.Failure != nil {
			return nil, &rpcError{raw: result.Failure, Code: codeOf(result.Failure)}
		}
		raw := result.Raw
		if len(raw) == 0 {
			raw = jsontext.Value(`{"content":[]}`)
		}
		if asksMore(raw) {
			var next *call.Call
			if next, refusal = a.more(ctx, r, c, raw); refusal != nil {
				break
			}
			if next != nil {
				c = next
				continue
			}
			if raw, err = a.sealState(r, c, raw); err != nil {
				return nil, &rpcError{Code: internalError, Message: err.Error()}
			}
		}
		if r.modern {
			raw = fill(raw, "resultType", jsontext.Value(`"complete"`))
		}
		return raw, nil
	}
	return a.refused(r, c.Tool, refusal)
}

// newCall reads the call from a request. The refusal or the problem says why it cannot be made.
func (a *Agent) newCall(ctx context.Context, r *request) (*call.Call, *call.Refusal, *rpcError) {
	name, ok := text(lookup(r.Params, "name"))
	if !ok || name == "" {
		return nil, nil, &rpcError{Code: invalidParams, Message: "tools/call requires a name and arguments"}
	}
	c := &call.Call{
		ID: gateway.NewID(), Tool: name, Arguments: lookup(r.Params, "arguments"), Meta: r.meta.raw,
		Principal: r.principal, Client: a.client(r), Gone: r.gone, OnNotify: r.onNotify(),
	}
	refusal, problem := a.narrow(c, r)
	if problem == nil && refusal == nil && r.modern {
		problem = a.resume(ctx, r, c)
	}
	return c, refusal, problem
}

// onNotify passes on a server's notifications about a request to a client that asked for progress
// or, in the newer generation, for the log. It is nil for other clients.
func (r *request) onNotify() func(string, jsontext.Value) {
	token := r.meta.token
	if token == nil && !(r.modern && r.meta.logs) {
		return nil
	}
	return func(method string, params jsontext.Value) {
		switch {
		case method != "notifications/progress":
		case token == nil:
			return
		default:
			params = set(params, "progressToken", token)
		}
		r.notify(method, params)
	}
}

// narrow applies the skills to a call.
func (a *Agent) narrow(c *call.Call, r *request) (*call.Refusal, *rpcError) {
	c.Skill = a.Skill
	if r.meta.skill == nil {
		return nil, nil
	}
	c.Meta = without(c.Meta, metaSkill) // not for the server
	name, ok := text(r.meta.skill)
	if !ok {
		return nil, &rpcError{Code: invalidParams, Message: `_meta["` + metaSkill + `"] is not the name of a skill`}
	}
	chosen := a.Skills[name]
	if chosen == nil {
		refusal := call.Refuse("gate", call.NotInSkillAllowlist, "unknown skill %q", clip(name))
		refusal.Hint = "use a skill that the operator has registered, or omit " + metaSkill
		return refusal, nil
	}
	if c.Skill != nil {
		chosen = both{c.Skill, chosen}
	}
	c.Skill = chosen
	return nil, nil
}

// both allows what two skills allow.
type both [2]call.Allowlist

func (b both) Allows(uri string) bool { return b[0].Allows(uri) && b[1].Allows(uri) }
func (b both) Name() string           { return b[0].Name() + " and " + b[1].Name() }

func codeOf(failure jsontext.Value) int {
	if e := mcpwire.ReadError(failure); e != nil {
		return int(e.Code)
	}
	return internalError
}

func refusalObject(r *call.Refusal) map[string]any {
	o := map[string]any{"code": r.Code, "message": r.Message, "hint": r.Hint, "retryable": r.Retryable}
	if s := r.RetrySeconds(); s != nil {
		o["retry_after"] = *s
	}
	return o
}

// refused converts a refusal for the model. The newer generation has a protocol error for unknown
// tools, which carries the refusal in its data.
func (a *Agent) refused(r *request, tool string, refusal *call.Refusal) (jsontext.Value, *rpcError) {
	if e := a.gparsError(tool, refusal); e != nil {
		return nil, e
	}
	if r.modern && refusal.Code == call.UnknownTool {
		return nil, &rpcError{Code: invalidParams, Message: explain(refusal), Data: refusalData(refusal)}
	}
	words := refusal.Message
	if refusal.Hint != "" {
		words += " (" + refusal.Hint + ")"
	}
	result := map[string]any{
		"isError": true,
		"content": []any{map[string]any{"type": "text", "text": string(refusal.Code) + ": " + words}},
	}
	if lookup(a.definition(tool), "outputSchema") != nil {
		result["_meta"] = map[string]any{"ambit/error": refusalObject(refusal)}
	} else {
		result["structuredContent"] = map[string]any{"error": refusalObject(refusal)}
	}
	if r.modern {
		result["resultType"] = "complete"
	}
	return marshal(result), nil
}

// levels are the log levels in ascending order.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// setLevel sets the minimum level of log messages to the client.
func (a *Agent) setLevel(ctx context.Context, r *request) (jsontext.Value, *rpcError) {
	level, _ := text(lookup(r.Params, "level"))
	if !slices.Contains(levels, level) {
		return nil, &rpcError{Code: invalidParams, Message: "unknown log level"}
	}
	if r.peer != nil {
		r.peer.setLevel(level)
	}
	set := func(ctx context.Context) {
		if a.Level != nil && a.ready(ctx) == nil {
			ctx, cancel := context.WithTimeout(ctx, levelWait)
			defer cancel()
			a.Level(ctx, a.client(r), level)
		}
	}
	if a.Ready != nil && a.Ready(alreadyCancelled) != nil {
		go set(context.WithoutCancel(ctx)) // when the servers are ready
	} else {
		set(ctx)
	}
	return jsontext.Value("{}"), nil
}
