// Package action runs the tools that need no tool server. The manifest defines such a tool by an action: an HTTP
// request, a prompt template, or a call of another agent's tool.
//
// Actions never run code from the agent. The manifest contains templates with placeholders, and a call contains the
// values for the placeholders. A value must never change the meaning of its template:
//
//   - A template is filled in one pass. A placeholder inside a value is not replaced.
//   - Values are escaped according to their place. In paths and queries, only unreserved characters stay unencoded.
//     In JSON, a placeholder without quotes becomes a JSON value. A placeholder inside quotes becomes part of the
//     string. Forms and XML have their own escaping. A line break in a header value is refused.
//   - The filled URL is parsed again. Its scheme, host and port must be those of the manifest. A value that turns a
//     path segment into an empty segment, . or .. is refused, because the path was reviewed.
//   - A missing value is an error unless the input schema has a default. A URL without the value would have another
//     meaning. Only the manifest can allow a part of the request to be left out. The part must be a query parameter,
//     header, form field, JSON member or body whose whole value is {name?}.
//   - Only the manifest can say that a query parameter or form field is repeated: {name*}. Its value adds pairs with
//     this name, or with names of the form name[member], and no others.
//
// The credential is attached last, and only to requests to its allowed hosts (see package credential). Connections
// are made only to public addresses (see package egress).
//
// The server's answer is the result of the tool, even if the answer reports an error. A call is refused only if the
// server does not answer.
package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

const stage = "act"

// Credentials returns the secret for a credential slot of an agent. Token exchanges a secret for an access token if the
// slot has scopes.
type Credentials interface {
	Slot(a *agent.Agent, slot *agent.Slot) (credential.Secret, error)
	Token(context.Context, *egress.Client, *agent.Agent, *agent.Slot, credential.Secret) (credential.Secret, error)
}

// Caller calls a tool of another agent through that agent's gateway. It identifies the other agent by the name under
// which that agent runs.
type Caller interface {
	CallAgent(ctx context.Context, name string, c *call.Call) (call.Result, error)
}

// Options contains the resources that actions use.
type Options struct {
	// Name is the name under which this agent runs. The default is the slug of the manifest's name.
	Name string
	// Credentials returns the secrets for credential slots. If Credentials is nil, no credentials are available.
	Credentials Credentials
	// Egress sends HTTP requests. If Egress is nil, HTTP actions are refused.
	Egress *egress.Client
	// Agents calls other agents. If Agents is nil, calls to other agents are refused.
	Agents Caller
	// MaxResponse is the maximum size of an HTTP response in bytes. Zero means 1 MiB.
	MaxResponse int64
}

const maxResponse = 1 << 20

// New returns a binding that runs the actions of an agent.
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
		err = call.Unsent(err) // a prompt sends no request
	case agent.Compose:
		result, err = b.compose(ctx, t, action, c)
	default:
		err = call.Unsent(call.Refuse(stage, call.UnknownTool, "the tool %s has no action", t.Name))
	}
	result.Duration = time.Since(start)
	return result, err
}

// prompt returns the template of a prompt action, with its placeholders filled in.
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

// definition is a tool definition as MCP clients see it.
type definition struct {
	Name         string             `json:"name"`
	Title        string             `json:"title,omitempty"`
	Description  string             `json:"description,omitempty"`
	InputSchema  jsontext.Value     `json:"inputSchema"`
	OutputSchema jsontext.Value     `json:"outputSchema,omitempty"`
	Annotations  *agent.Annotations `json:"annotations,omitempty"`
}

// Definition returns the MCP definition of a tool that has an action. It returns nil if the tool belongs to a server or
// cannot be called.
func Definition(a *agent.Agent, t *agent.Tool) []byte {
	if _, on := t.Binding.(agent.OnServer); on || !a.Callable(t) {
		return nil
	}
	d := definition{Name: t.Name, Title: t.Annotations.Title, Description: t.Description}
	d.InputSchema = withObjectType(t.InputSchema)
	if d.InputSchema == nil {
		d.InputSchema = jsontext.Value(`{"type":"object"}`)
	}
	// MCP requires that an output schema has the type object.
	if _, prompts := t.Binding.(agent.Prompt); !prompts && isObject(t.OutputSchema) {
		d.OutputSchema = jsontext.Value(t.OutputSchema)
	}
	if t.Annotations != (agent.Annotations{}) {
		d.Annotations = &t.Annotations
	}
	raw, err := encode(d)
	if err != nil {
		return nil // every schema in a valid manifest is JSON, so this cannot happen
	}
	return raw
}

// withObjectType returns an input schema whose type is object, as MCP requires. It returns nil if the schema is not a
// JSON object.
func withObjectType(schema string) jsontext.Value {
	if isObject(schema) {
		return jsontext.Value(schema)
	}
	var members map[string]jsontext.Value
	if json.Unmarshal([]byte(schema), &members) != nil || members == nil {
		return nil
	}
	members["type"] = jsontext.Value(`"object"`)
	text, err := json.Marshal(members)
	if err != nil {
		return nil
	}
	return text
}

func isObject(schema string) bool {
	return string(rawjson.Lookup([]byte(schema), "type")) == `"object"`
}

// maxDepth is the maximum number of tools in a chain of calls between agents.
const maxDepth = 8

// chain is the context key for the chain of tools that are being called. Each entry has the form NAME/tool. The
// outermost call comes first.
type chain struct{}

// compose calls a tool of another agent through that agent's gateway. It refuses a cycle of calls, and a chain that is
// longer than maxDepth.
func (b *binding) compose(ctx context.Context, t *agent.Tool, to agent.Compose, c *call.Call) (call.Result, error) {
	if b.Agents == nil {
		return call.Result{}, call.Unsent(call.Refuse(stage, call.ServerUnavailable,
			"the tool %s calls the agent %s, but other agents are not available here", t.Name, diag.Quote(to.Agent)))
	}
	steps, _ := ctx.Value(chain{}).([]string)
	steps = append(slices.Clone(steps), b.Name+"/"+t.Name)
	if slices.Contains(steps, to.Agent+"/"+to.Tool) {
		return call.Result{}, chainRefusal("the agents call each other in a cycle", steps, to)
	}
	if len(steps) > maxDepth {
		return call.Result{}, chainRefusal(fmt.Sprintf("the agents make a chain of more than %d calls", maxDepth), steps, to)
	}
	inner := &call.Call{
		Tool: to.Tool, Arguments: c.Arguments, Principal: c.Principal, Parent: c.ID, Skill: c.Skill, Timeout: c.Timeout,
		OnNotify: c.OnNotify, By: c.By, Gone: c.Gone, Attributes: c.Attributes,
	}
	// If this call is repeated, the inner call must get the same idempotency key again.
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
	r.Hint = "change one of the manifests so that the chain of calls ends earlier"
	return call.Unsent(r)
}
