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

// listWait is how long a request waits for the servers to be verified. Many clients time out after about the same time.
// A client whose request has timed out is notified when the servers are ready.
const listWait = 50 * time.Second

// levelWait is how long a logging/setLevel request waits for the servers to change their level.
const levelWait = 5 * time.Second

// ready waits until the servers are verified, but not longer than listWait.
func (a *Agent) ready(ctx context.Context) *rpcError {
	waiting, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	err := a.Ready(waiting)
	switch {
	case err == nil:
		return nil
	case waiting.Err() != nil:
		a.late.Store(true)
		const why = "the agent's tool servers are still starting; a notification will be sent when the tools are ready"
		return &rpcError{Code: internalError, Message: why}
	}
	return asRPC(err)
}

// Up must be called when the servers have been verified or verification has failed. If a request timed out before that,
// Up asks all clients to list the tools again.
func (a *Agent) Up() {
	if a.late.Load() {
		a.Publish("notifications/tools/list_changed", nil)
	}
}

// explain returns the text of an error. For a refusal, the text includes the hint.
func explain(err error) string {
	r, ok := errors.AsType[*call.Refusal](err)
	if !ok {
		return err.Error()
	}
	if r.Hint != "" {
		return r.Error() + " (" + r.HintFor("") + ")"
	}
	return r.Error()
}

func refusalData(err error) any {
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		return map[string]any{"error": refusalObject(r)}
	}
	return nil
}

// list returns the definitions of all callable tools that are not hidden from the caller. The tools of unavailable
// servers are left out, and the result's metadata contains the reasons.
func (a *Agent) list(ctx context.Context, r *request) (jsontext.Value, *rpcError) {
	if err := a.ready(ctx); err != nil {
		return nil, err
	}
	if a.Wake != nil {
		a.Wake(ctx, r.principal)
	}
	who, hidden := a.Gateway.Listed(r.caller())
	served := gateway.ServedNames(who)
	var b bytes.Buffer
	b.WriteString(`{"tools":[`)
	comma := ""
	for i := range who.Tools {
		t := &who.Tools[i]
		if !who.Callable(t) || hidden != nil && hidden[i] {
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
	if down := a.unavailable(); len(down) > 0 {
		var reasons []any
		for _, r := range down {
			reasons = append(reasons, refusalObject(r))
		}
		b.WriteString(`,"_meta":`)
		b.Write(marshal(map[string]any{"ambit/unavailable": reasons}))
	}
	if r.modern {
		b.WriteString(`,"resultType":"complete","ttlMs":0,"cacheScope":"private"`)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func (r *request) caller() *call.Call {
	return &call.Call{Principal: r.principal, Attributes: r.attributes}
}

// toolNamed returns the tool that clients know by this name or URI, or nil.
func (a *Agent) toolNamed(name string) *agent.Tool {
	who := a.Gateway.Agent()
	for i := range who.Tools {
		// The cheap suffix check excludes most tools.
		t := &who.Tools[i]
		if strings.HasSuffix(name, t.Name) && gateway.ServedName(who, t) == name || t.URI != nil && t.URI.String() == name {
			return t
		}
	}
	return nil
}

// serverOfTool returns the alias of the server of the tool that clients know by this name. A tool that is not on a
// server has no alias, so serverOfTool returns the name.
func (a *Agent) serverOfTool(name string) string {
	if t := a.toolNamed(name); t != nil {
		if on, ok := t.Binding.(agent.OnServer); ok {
			return on.Alias
		}
	}
	return name
}

// definition returns the definition of the tool that clients know by this name. It returns nil if there is no such
// tool.
func (a *Agent) definition(name string) []byte {
	t := a.toolNamed(name)
	if t == nil {
		return nil
	}
	return a.Definition(t)
}

// call makes a tool call through the gateway and returns the result for the client.
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
		if asksForInput(raw) {
			var next *call.Call
			if next, refusal = a.askPeer(ctx, r, c, raw); refusal != nil {
				break
			}
			if next != nil {
				c = next
				continue
			}
			if raw, err = a.sealState(r, c, a.nameAll(a.serverOfTool(c.Tool), raw)); err != nil {
				return nil, &rpcError{Code: internalError, Message: err.Error()}
			}
		}
		if r.modern {
			raw = fill(raw, "resultType", jsontext.Value(`"complete"`))
		}
		return raw, nil
	}
	if result, problem, asked := a.askSignIn(r, c, refusal); asked {
		return result, problem
	}
	if question := a.askApproval(r, refusal); question != nil {
		return question, nil
	}
	return a.refusalResult(r, c.Tool, refusal)
}

// newCall returns the call that a request describes. If the call is not possible, newCall returns a refusal, which the
// model can read, or a protocol error.
func (a *Agent) newCall(ctx context.Context, r *request) (*call.Call, *call.Refusal, *rpcError) {
	name, ok := text(lookup(r.Params, "name"))
	if !ok || name == "" {
		return nil, nil, &rpcError{Code: invalidParams, Message: "tools/call requires a name and arguments"}
	}
	c := &call.Call{
		ID: gateway.NewID(), Tool: name, Arguments: lookup(r.Params, "arguments"), Meta: r.meta.raw,
		Principal: r.principal, Attributes: r.attributes, Client: a.client(r), Gone: r.gone, OnNotify: r.onNotify(),
	}
	refusal, problem := a.narrow(c, r)
	if problem == nil && refusal == nil && r.modern {
		refusal, problem = a.resume(ctx, r, c)
	}
	return c, refusal, problem
}

// onNotify returns a function that forwards a server's notifications about this request to the client. It returns nil
// if the client has not requested notifications.
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

// narrow limits a call to the agent's skill and to the skill that the client chose in _meta.
func (a *Agent) narrow(c *call.Call, r *request) (refusal *call.Refusal, problem *rpcError) {
	c.Skill, refusal, problem = a.skillOf(r)
	if r.meta.skill != nil {
		c.Meta = without(c.Meta, metaSkill) // delete the skill, because the server does not need to know it
	}
	return refusal, problem
}

// skillOf returns the skill that limits a request, or nil if there is none.
func (a *Agent) skillOf(r *request) (call.Allowlist, *call.Refusal, *rpcError) {
	if r.meta.skill == nil {
		return a.Skill, nil, nil
	}
	name, ok := text(r.meta.skill)
	if !ok {
		return nil, nil, &rpcError{Code: invalidParams, Message: `_meta["` + metaSkill + `"] is not the name of a skill`}
	}
	chosen := a.Skills[name]
	if chosen == nil {
		refusal := call.Refuse("gate", call.NotInSkillAllowlist, "unknown skill %q", clip(name))
		refusal.Hint = "use a skill that the operator has registered, or omit " + metaSkill + " from _meta"
		return a.Skill, refusal, nil
	}
	if a.Skill != nil {
		chosen = intersection{a.Skill, chosen}
	}
	return chosen, nil, nil
}

// intersection allows a URI only if both allowlists allow it.
type intersection [2]call.Allowlist

func (b intersection) Allows(uri string) bool { return b[0].Allows(uri) && b[1].Allows(uri) }
func (b intersection) Name() string           { return b[0].Name() + " and " + b[1].Name() }

func codeOf(failure jsontext.Value) int {
	if e := mcpwire.ReadError(failure); e != nil {
		return int(e.Code)
	}
	return internalError
}

func refusalObject(r *call.Refusal) map[string]any {
	o := map[string]any{"code": r.Code, "message": r.Message, "hint": r.HintFor(""), "retryable": r.Retryable}
	if s := r.RetrySeconds(); s != nil {
		o["retry_after"] = *s
	}
	return o
}

// refusalResult converts a refusal to a result that the model can read. In the newer protocol, it returns a protocol
// error for an unknown tool instead.
func (a *Agent) refusalResult(r *request, tool string, refusal *call.Refusal) (jsontext.Value, *rpcError) {
	if e := a.gparsError(tool, refusal); e != nil {
		return nil, e
	}
	if r.modern && refusal.Code == call.UnknownTool {
		return nil, &rpcError{Code: invalidParams, Message: explain(refusal), Data: refusalData(refusal)}
	}
	result := map[string]any{
		"isError": true,
		"content": []any{map[string]any{"type": "text", "text": explain(refusal)}},
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

// levels lists the log levels, least severe first.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// setLevel answers logging/setLevel. It sets the minimum level of the log messages that the client gets.
func (a *Agent) setLevel(ctx context.Context, r *request) (jsontext.Value, *rpcError) {
	level, _ := text(lookup(r.Params, "level"))
	if !slices.Contains(levels, level) {
		return nil, &rpcError{Code: invalidParams, Message: "unknown log level " + clip(level)}
	}
	if r.peer != nil {
		r.peer.setLevel(level)
	}
	set := func(ctx context.Context) {
		if a.ready(ctx) == nil {
			ctx, cancel := context.WithTimeout(ctx, levelWait)
			defer cancel()
			a.Level(ctx, a.client(r), level)
		}
	}
	if a.Ready(alreadyCancelled) != nil {
		go set(context.WithoutCancel(ctx)) // the level is set later, when the servers are ready
	} else {
		set(ctx)
	}
	return jsontext.Value("{}"), nil
}
