// Package action runs the tools that a manifest defines itself: an HTTP request, a prompt template, or a
// tool of another agent.
//
// No code of an agent runs here. The manifest has templates, a call has values, and a value must never
// change the meaning of its template:
//
//   - A template is filled in one pass, so a value that looks like a placeholder
//     stays text.
//   - Each place has its own escaping. Paths and queries percent-encode everything
//     but unreserved characters. In JSON, a placeholder without quotes becomes a
//     JSON value and a placeholder inside quotes becomes text. Forms and XML have
//     their own rules, and a line break in a header is refused.
//   - The filled URL is parsed again and must have the scheme, host and port of
//     the manifest. A path segment that becomes empty, . or .. is refused, because
//     it would change the reviewed path.
//   - A missing value is an error unless the input schema has a default: a URL
//     with a hole has another meaning.
//
// The credential is attached last and only for its audience (package credential). The connection goes only
// to public addresses (package egress).
//
// The server's answer is the tool's result, also if it is an error. Only a request without an answer is
// refused.
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

// Caller calls a tool through the gateway of another agent, by that agent's NAME.
type Caller interface {
	CallAgent(ctx context.Context, name string, c *call.Call) (call.Result, error)
}

// Options are the resources that actions use.
type Options struct {
	// Name is the agent's name in this process; empty means the slug of its name.
	Name string
	// Credentials finds secrets; nil means that there are none.
	Credentials Credentials
	// Egress sends requests; nil refuses http actions.
	Egress *egress.Client
	// Agents reaches other agents; nil means that there are none.
	Agents Caller
	// MaxResponse bounds the bytes of an answer; 0 means 1 MiB.
	MaxResponse int64
}

const maxResponse = 1 << 20

// New returns the binding of an agent's actions.
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

// Act runs the action of a tool.
func (b *binding) Act(ctx context.Context, t *agent.Tool, c *call.Call) (call.Result, error) {
	start := time.Now()
	var result call.Result
	var err error
	switch action := t.Binding.(type) {
	case agent.HTTP:
		result, err = b.http(ctx, t, action, c)
	case agent.Prompt:
		result, err = prompt(t, action, c)
		err = call.Unsent(err) // a prompt sends nothing
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
