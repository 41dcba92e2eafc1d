package action

import (
	"bytes"
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
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

// Definition is the MCP definition of a tool that is on no server; nil for one
// that is not served.
func Definition(a *agent.Agent, t *agent.Tool) []byte {
	if _, on := t.Binding.(agent.OnServer); on || !a.Callable(t) {
		return nil
	}
	d := definition{Name: t.Name, Title: t.Annotations.Title, Description: t.Description, InputSchema: ofObject(t.InputSchema)}
	if d.InputSchema == nil {
		d.InputSchema = jsontext.Value(`{"type":"object"}`)
	}
	// Structured results are objects; a schema of anything else holds for the
	// text, and clients would not take it.
	if _, prompts := t.Binding.(agent.Prompt); !prompts && typeOf(t.OutputSchema) == `"object"` {
		d.OutputSchema = jsontext.Value(t.OutputSchema)
	}
	if t.Annotations != (agent.Annotations{}) {
		d.Annotations = &t.Annotations
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(d) != nil {
		return nil // a schema that is no JSON is in no valid manifest
	}
	return bytes.TrimSpace(b.Bytes())
}

// ofObject is an input schema that says that the input is an object, which all
// inputs are; nil if there is none.
func ofObject(schema string) jsontext.Value {
	if typeOf(schema) == `"object"` {
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

func typeOf(schema string) string {
	var s struct {
		Type jsontext.Value `json:"type"`
	}
	if json.Unmarshal([]byte(schema), &s) != nil {
		return ""
	}
	return string(s.Type)
}
