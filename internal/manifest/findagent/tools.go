package findagent

import (
	"encoding/json"
	"slices"

	"github.com/ambit-run/ambit/agent"
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
		p.Report(ruleManyTools, list.Head(), "", "the agent has %d tools, but at most %d are allowed", list.Len(), toolsMost)
	}
	// If the list is far too long, read only a part of it. The problems of individual tools do not matter then.
	most := min(list.Len(), 5*toolsMost)
	p.tools = make(map[string]*inputs, most)
	tools, parts := make([]Tool, 0, most), make([]toolParts, most)
	for v := range list.Each() {
		if len(tools) == most {
			break
		}
		tools = append(tools, p.readTool(v, &parts[len(tools)]))
	}
	return tools
}

// toolParts contains the parts that a Tool can point to. The parts of all tools share one allocation.
type toolParts struct {
	action      Action
	annotations agent.Annotations
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
		case p.tools[name] != nil:
			p.Report(ruleDuplicateTool, v.Get("name").Place(), "", "another tool already has the name %s", diag.Quote(name))
		default:
			p.tools[name] = in
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
		if readOnly(t.Annotations) && t.Action.canChangeData() {
			at := o.Value().Get("annotations").Get("readOnlyHint").KeyPlace()
			p.Report(ruleReadOnlyMethod, at, "", "the tool is marked read-only, but it sends a %s request", t.Action.Method)
		}
	}
	o.Done()
	return t
}

func readOnly(a *agent.Annotations) bool { return a != nil && a.ReadOnly != nil && *a.ReadOnly }

// canChangeData reports whether the action sends a request that can change data.
func (a *Action) canChangeData() bool {
	return a.Type == "http" && a.Method != "" && a.Method != "GET" && a.Method != "HEAD"
}

func (p *parser) schema(v doc.Value) json.RawMessage {
	if !v.Ok() {
		return nil
	}
	jsonschema.Check(v, ruleSchema, p.Reporter)
	return json.RawMessage(v.Raw())
}

// otherTypes lists the JSON Schema types that a tool's input cannot have.
var otherTypes = []string{"string", "number", "integer", "boolean", "array", "null"}

func (p *parser) inputSchema(v doc.Value) json.RawMessage {
	if !v.Ok() || !p.Is(v, doc.Object) {
		return nil
	}
	switch t := v.Get("type"); {
	case !t.Ok():
		p.Report(ruleInputUntyped, v.Head(), "", `input_schema has no "type"`)
	case t.Is(doc.Array) && t.Len() > 0:
		p.Report(ruleInputType, t.Place(), "", `the type of input_schema must be "object", not a list of types`)
	case slices.Contains(otherTypes, t.Text()):
		p.Report(ruleInputType, t.Place(), "", `the type of input_schema must be "object", not %s`, diag.Quote(t.Text()))
	}
	return p.schema(v)
}

// annotations parses the hints of a tool into the given struct. It returns nil if the tool has no annotations.
func (p *parser) annotations(o *read.Object, a *agent.Annotations) *agent.Annotations {
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
	a.ReadOnly, a.Destructive = hint("readOnlyHint"), hint("destructiveHint")
	a.Idempotent, a.OpenWorld = hint("idempotentHint"), hint("openWorldHint")
	a.Title, _ = n.String("title", read.Optional)
	n.Done()
	if readOnly(a) && a.Destructive != nil && *a.Destructive {
		p.Report(ruleContradiction, v.Get("destructiveHint").KeyPlace(), "",
			"a tool cannot be both read-only and destructive")
	}
	return a
}
