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

// listWait bounds how long a list waits for the servers. Clients give up about
// then too; they are notified when the servers are there.
const listWait = 50 * time.Second

// levelWait bounds how long servers may take to hear of a log level: the client
// waits for that, and has little of it.
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
		return &rpcError{Code: internalError, Message: "the agent's tool servers are still being started; its tools will be announced when they are there"}
	}
	return &rpcError{Code: internalError, Message: explain(err), Data: refusalData(err)}
}

// Up is called when the servers are there, or it is known why not. Clients that
// asked too early are notified to ask again.
func (a *Agent) Up() {
	if a.late.Load() {
		a.Publish("notifications/tools/list_changed", nil)
	}
}

// explain is an error in words for a person.
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

// list is the callable tools, as they were proven.
func (a *Agent) list(ctx context.Context, r *request) (jsontext.Value, *rpcError) {
	if err := a.ready(ctx); err != nil {
		return nil, err
	}
	who := a.Door.Agent()
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

// served is the tool that a client means by a name, nil if none is.
func (a *Agent) served(name string) *agent.Tool {
	who := a.Door.Agent()
	for i := range who.Tools {
		// Most names differ in their ends.
		if t := &who.Tools[i]; strings.HasSuffix(name, t.Name) && gateway.ServedName(who, t) == name || t.URI != nil && t.URI.String() == name {
			return t
		}
	}
	return nil
}

// definition is the one that a client has seen of the tool of that name.
func (a *Agent) definition(name string) []byte {
	t := a.served(name)
	if t == nil {
		return nil
	}
	return a.Definition(t)
}

// call makes a tool call through the gateway and writes its result for the client.
func (a *Agent) call(ctx context.Context, r *request) (jsontext.Value, *rpcError) {
	c, refusal, problem := a.newCall(ctx, r)
	if problem != nil {
		return nil, problem
	}
	for ; refusal == nil; r.round++ {
		result, err := a.Door.Call(ctx, c)
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

// newCall reads the call that a request asks for. The refusal or the problem says
// why it cannot be made.
func (a *Agent) newCall(ctx context.Context, r *request) (*call.Call, *call.Refusal, *rpcError) {
	name, ok := text(lookup(r.Params, "name"))
	if !ok || name == "" {
		return nil, nil, &rpcError{Code: invalidParams, Message: "tools/call needs a name and arguments"}
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

// onNotify hands on what a server says about a request while it works on it: to
// a client that asked for progress or, in the newer generation, for its log. Nil
// if it did not.
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

// narrow puts a call under the skills that hold for it.
func (a *Agent) narrow(c *call.Call, r *request) (*call.Refusal, *rpcError) {
	c.Skill = a.Skill
	if r.meta.skill == nil {
		return nil, nil
	}
	c.Meta = without(c.Meta, metaSkill) // no business of the server's
	name, ok := text(r.meta.skill)
	if !ok {
		return nil, &rpcError{Code: invalidParams, Message: `_meta["` + metaSkill + `"] is not the name of a skill`}
	}
	chosen := a.Skills[name]
	if chosen == nil {
		refusal := call.Refuse("gate", call.NotInSkillAllowlist, "there is no skill %q here", clip(name))
		refusal.Hint = "the operator registers skills; without one of them leave " + metaSkill + " out"
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
	o := map[string]any{"code": r.Code, "message": r.Message, "hint": r.HintFor(""), "retryable": r.Retryable}
	if s := r.RetrySeconds(); s != nil {
		o["retry_after"] = *s
	}
	return o
}

// refused is a refusal as a model reads it. The newer generation has an error of
// the protocol for a tool that there is not, so there the refusal is in its data.
func (a *Agent) refused(r *request, tool string, refusal *call.Refusal) (jsontext.Value, *rpcError) {
	if e := a.gparsError(tool, refusal); e != nil {
		return nil, e
	}
	if r.modern && refusal.Code == call.UnknownTool {
		return nil, &rpcError{Code: invalidParams, Message: explain(refusal), Data: refusalData(refusal)}
	}
	words := refusal.Message
	if refusal.Hint != "" {
		words += " (" + refusal.HintFor("") + ")"
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

// levels are those of log messages, from the least to the worst.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// setLevel sets the least level of log messages that the client asks for.
func (a *Agent) setLevel(ctx context.Context, r *request) (jsontext.Value, *rpcError) {
	level, _ := text(lookup(r.Params, "level"))
	if !slices.Contains(levels, level) {
		return nil, &rpcError{Code: invalidParams, Message: "there is no such log level"}
	}
	if r.peer != nil {
		r.peer.setLevel(level)
	}
	tell := func(ctx context.Context) {
		if a.Level != nil && a.ready(ctx) == nil {
			ctx, cancel := context.WithTimeout(ctx, levelWait)
			defer cancel()
			a.Level(ctx, a.client(r), level)
		}
	}
	if a.Ready != nil && a.Ready(alreadyCancelled) != nil {
		go tell(context.WithoutCancel(ctx)) // once they are there
	} else {
		tell(ctx)
	}
	return jsontext.Value("{}"), nil
}
