// Package action does the work of tools whose manifest says what that is: an
// http request, a prompt that is filled in, a tool of another agent.
//
// Nothing here runs code of an agent. A manifest gives templates; a call gives
// values; and what matters is that a value stays one:
//
//   - A template is filled in one pass, so that a value that looks like a
//     placeholder is text.
//   - Each place has its own escaping: in paths and queries all but the
//     unreserved characters are percent-encoded, in JSON a placeholder without
//     quotes takes a JSON value and one within quotes its text, forms and XML
//     are escaped as such, and a line break in a header is refused.
//   - The address is read again when it is filled, and must have the scheme,
//     host and port that the manifest wrote. A path segment that becomes empty,
//     . or .. would be another path than the one that was reviewed: refused.
//   - A value that is missing is an error, unless the input schema has a default
//     for it: an address with a hole in it means something else.
//
// The credential comes last, when everything else stands, and goes only to its
// audience (package credential). The connection goes only to public addresses
// (package egress).
//
// What a server answers is the tool's result, also if it is a no: then it is an
// error that the agent gets to read. Only what got no answer is a refusal.
package action

import (
	"context"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
)

const stage = "act"

// Credentials finds the secret of a slot.
type Credentials interface {
	Slot(a *agent.Agent, slot *agent.Slot) (credential.Secret, error)
}

// Caller takes a call to the door of another agent, by that agent's NAME.
type Caller interface {
	CallAgent(ctx context.Context, name string, c *call.Call) (call.Result, error)
}

// Options are what actions are done with.
type Options struct {
	// Name is what the agent runs under; empty stands for the slug of its name.
	Name string
	// Credentials finds secrets; without it, no action has one.
	Credentials Credentials
	// Egress sends requests; without it, no http action is done.
	Egress *egress.Client
	// Agents reaches other agents; without it, none is there.
	Agents Caller
	// MaxResponse bounds the bytes of an answer; 0 stands for 1 MiB.
	MaxResponse int64
}

const maxResponse = 1 << 20

// New makes the binding of an agent's actions.
func New(a *agent.Agent, o Options) call.Binding {
	if o.Name == "" {
		o.Name = agent.Slug(a.Name)
	}
	if o.MaxResponse <= 0 {
		o.MaxResponse = maxResponse
	}
	return &binding{a, o}
}

type binding struct {
	agent *agent.Agent
	Options
}

// Act does the work of a call.
func (b *binding) Act(ctx context.Context, t *agent.Tool, c *call.Call) (call.Result, error) {
	start := time.Now()
	var result call.Result
	var err error
	switch action := t.Binding.(type) {
	case agent.HTTP:
		result, err = b.http(ctx, t, action, c)
	case agent.Prompt:
		result, err = prompt(t, action, c)
		err = call.Unsent(err) // it goes nowhere
	case agent.Compose:
		result, err = b.compose(ctx, t, action, c)
	default:
		err = call.Unsent(call.Refuse(stage, call.UnknownTool, "%s has no action", t.Name))
	}
	result.Duration = time.Since(start)
	return result, err
}

// prompt fills a template and returns it.
func prompt(t *agent.Tool, p agent.Prompt, c *call.Call) (call.Result, error) {
	args, err := readArguments(t, c)
	if err != nil {
		return call.Result{}, err
	}
	text, err := args.fill(p.Template, plain)
	if err != nil {
		return call.Result{}, err
	}
	return answer{Content: []content{textContent(text)}}.result()
}
