package findagent

import (
	"encoding/json"
	"slices"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/jsonschema"
	"github.com/ambit-run/ambit/internal/manifest/read"
	"github.com/ambit-run/ambit/tooluri"
)

func (p *parser) readTools(o *read.Object) []Tool {
	list := o.List("tools", read.Optional)
	if !list.Ok() {
		return nil
	}
	if list.Len() > toolsMost {
		p.Report(ruleManyTools, list.Head(), "", "the agent has %d tools; it can have at most %d", list.Len(), toolsMost)
	}
	// Far past the limit, what is wrong with each tool is of no use.
	most := min(list.Len(), 5*toolsMost)
	p.tools.grow(most)
	tools, parts := make([]Tool, 0, most), make([]toolParts, most)
	for v := range list.Each() {
		if len(tools) == most {
			break
		}
		tools = append(tools, p.readTool(v, &parts[len(tools)]))
	}
	return tools
}

// toolParts is what a tool may point to; those of all tools are made at once.
type toolParts struct {
	action      Action
	annotations Annotations
	in          inputs
}

func (p *parser) readTool(v doc.Value, parts *toolParts) Tool {
	var t Tool
	o := p.Object(v)
	in := &parts.in
	if name, ok := o.String("name", read.Required); ok {
		t.Name = name
		switch {
		case !tooluri.IsName(name):
			p.Report(ruleToolName, v.Get("name").Place(), "", "%s is not a tool name", diag.Quote(name))
		case p.tools.get(name) != nil:
			p.Report(ruleDuplicateTool, v.Get("name").Place(), "", "another tool is already called %s", diag.Quote(name))
		default:
			p.tools.add(name, in)
		}
	}
	t.Description, _ = o.Text("description", read.Required)
	in.schema = o.Get("input_schema", read.Optional)
	t.InputSchema = p.inputSchema(in.schema)
	t.OutputSchema = p.schema(o.Get("output_schema", read.Optional))
	t.Annotations = p.annotations(o, &parts.annotations)
	if a := o.Get("action", read.Optional); a.Ok() {
		t.Action = &parts.action
		p.action(a, t.Action, in)
		if t.Annotations.readOnly() && t.Action.writes() {
			at := o.Value().Get("annotations").Get("readOnlyHint").KeyPlace()
			p.Report(ruleReadOnlyMethod, at, "", "the tool is marked read-only, but it sends a %s request", t.Action.Method)
		}
	}
	o.Done()
	return t
}

func (a *Annotations) readOnly() bool { return a != nil && a.ReadOnlyHint != nil && *a.ReadOnlyHint }

// writes reports whether the action sends a request that changes something.
func (a *Action) writes() bool {
	return a.Type == "http" && a.Method != "" && a.Method != "GET" && a.Method != "HEAD"
}

// schema checks a JSON Schema and keeps it as text.
func (p *parser) schema(v doc.Value) json.RawMessage {
	if !v.Ok() {
		return nil
	}
	jsonschema.Check(v, ruleSchema, p.Reporter)
	return json.RawMessage(v.Raw())
}

// Types that a tool's input cannot have.
var otherTypes = []string{"string", "number", "integer", "boolean", "array", "null"}

func (p *parser) inputSchema(v doc.Value) json.RawMessage {
	if !v.Ok() || !p.Is(v, doc.Object) {
		return nil
	}
	switch t := v.Get("type"); {
	case !t.Ok():
		p.Report(ruleInputUntyped, v.Head(), "", `input_schema has no "type"`)
	case t.Is(doc.Array) && t.Len() > 0:
		p.Report(ruleInputType, t.Place(), "", `the type of input_schema is "object" alone, not one of several`)
	case slices.Contains(otherTypes, t.Text()):
		p.Report(ruleInputType, t.Place(), "", `the type of input_schema is "object", not %s`, diag.Quote(t.Text()))
	}
	return p.schema(v)
}

// annotations reads hints, if there are any, into a and returns it.
func (p *parser) annotations(o *read.Object, a *Annotations) *Annotations {
	v := o.Get("annotations", read.Optional)
	if !p.Is(v, doc.Object) {
		return nil
	}
	n := p.Object(v)
	hint := func(key string) *bool {
		if value, ok := n.Bool(key, read.Optional); ok {
			return &value
		}
		return nil
	}
	a.ReadOnlyHint, a.DestructiveHint = hint("readOnlyHint"), hint("destructiveHint")
	a.IdempotentHint, a.OpenWorldHint = hint("idempotentHint"), hint("openWorldHint")
	a.Title, _ = n.String("title", read.Optional)
	n.Done()
	if a.readOnly() && a.DestructiveHint != nil && *a.DestructiveHint {
		p.Report(ruleContradiction, v.Get("destructiveHint").KeyPlace(), "", "a tool that only reads cannot be destructive")
	}
	return a
}
