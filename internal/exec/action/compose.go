package action

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// maxDepth bounds the length of a chain of agents.
const maxDepth = 8

// chain is the context key of the tools being called, outermost first, as NAME/tool.
type chain struct{}

// compose calls a tool of another agent through that agent's gateway. It refuses a chain of calls that
// contains a cycle.
func (b *binding) compose(ctx context.Context, t *agent.Tool, to agent.Compose, c *call.Call) (call.Result, error) {
	if b.Agents == nil {
		return call.Result{}, call.Unsent(call.Refuse(stage, call.ServerUnavailable,
			"other agents cannot be called from here: %s needs %s", t.Name, diag.Quote(to.Agent)))
	}
	steps, _ := ctx.Value(chain{}).([]string)
	steps = append(slices.Clone(steps), b.Name+"/"+t.Name)
	if slices.Contains(steps, to.Agent+"/"+to.Tool) {
		return call.Result{}, chainRefusal("the agents call each other in a circle", steps, to)
	}
	if len(steps) > maxDepth {
		return call.Result{}, chainRefusal(fmt.Sprintf("the agents call each other more than %d deep", maxDepth), steps, to)
	}
	inner := &call.Call{
		Tool: to.Tool, Arguments: c.Arguments, Principal: c.Principal, Parent: c.ID, Skill: c.Skill, Timeout: c.Timeout,
		OnNotify: c.OnNotify, By: c.By, Gone: c.Gone,
	}
	// A repeated call repeats its inner call with the same key.
	switch prefix := "compose/" + b.Name + "/"; {
	case c.IdempotencyKey != "":
		inner.IdempotencyKey = prefix + c.IdempotencyKey
	case t.Policy.Idempotent:
		inner.IdempotencyKey = prefix + c.ID
	}
	result, err := b.Agents.CallAgent(context.WithValue(ctx, chain{}, steps), to.Agent, inner)
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		named := *r
		named.Message = "agent " + to.Agent + ": " + r.Message
		return call.Result{}, &named
	}
	return result, err
}

func chainRefusal(what string, steps []string, to agent.Compose) error {
	r := call.Refuse(stage, call.PolicyDenied, "%s: %s", what, strings.Join(append(steps, to.Agent+"/"+to.Tool), " → "))
	r.Hint = "change one of the manifests so that the calls end"
	return call.Unsent(r)
}
