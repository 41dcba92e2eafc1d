package action

import (
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// definition is a tool as MCP clients see it.
type definition struct {
	Name         string             `json:"name"`
	Title        string             `json:"title,omitempty"`
	Description  string             `json:"description,omitempty"`
	InputSchema  jsontext.Value     `json:"inputSchema"`
	OutputSchema jsontext.Value     `json:"outputSchema,omitempty"`
	Annotations  *agent.Annotations `json:"annotations,omitempty"`
}

// Definition returns the MCP definition of a tool without a server; nil if the tool is not served.
func Definition(a *agent.Agent, t *agent.Tool) []byte {
	if _, on := t.Binding.(agent.OnServer); on || !a.Callable(t) {
		return nil
	}
	d := definition{Name: t.Name, Title: t.Annotations.Title, Description: t.Description, InputSchema: ofObject(t.InputSchema)}
	if d.InputSchema == nil {
		d.InputSchema = jsontext.Value(`{"type":"object"}`)
	}
	// MCP allows only object schemas; any other schema describes the text.
	if _, prompts := t.Binding.(agent.Prompt); !prompts && isObject(t.OutputSchema) {
		d.OutputSchema = jsontext.Value(t.OutputSchema)
	}
	if t.Annotations != (agent.Annotations{}) {
		d.Annotations = &t.Annotations
	}
	raw, err := encode(d)
	if err != nil {
		return nil // impossible: in a valid manifest every schema is JSON
	}
	return raw
}

// ofObject returns an input schema with the type object, which MCP requires; nil without a schema.
func ofObject(schema string) jsontext.Value {
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
