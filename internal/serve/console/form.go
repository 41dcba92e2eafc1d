package console

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// field is one input of a tool's form.
type field struct {
	Name, Label, Help, Kind, Value string // Kind: text, long, number, flag, choice, json
	Required                       bool
	Choices                        []string
	Step                           string
}

// maxFields bounds the inputs of a form; tools with more take JSON.
const maxFields = 40

// formOf makes a form from an input schema. It returns nil if the schema is not an object with
// properties: then the arguments are entered as JSON.
func formOf(schema json.RawMessage) []field {
	var s struct {
		Type       json.RawMessage `json:"type"`
		Properties jsontext.Value  `json:"properties"`
		Required   []string        `json:"required"`
	}
	if json.Unmarshal(schema, &s) != nil || len(s.Properties) == 0 || s.Properties.Kind() != '{' {
		return nil
	}
	var fields []field
	d := jsontext.NewDecoder(bytes.NewReader(s.Properties), jsontext.AllowDuplicateNames(true))
	if _, err := d.ReadToken(); err != nil {
		return nil
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return nil
		}
		key := name.String()
		value, err := d.ReadValue()
		if err != nil || len(fields) >= maxFields {
			return nil
		}
		f := fieldOf(key, value)
		f.Required = slices.Contains(s.Required, key)
		fields = append(fields, f)
	}
	return fields
}

func fieldOf(name string, schema jsontext.Value) field {
	f := field{Name: name, Label: name, Kind: "json"}
	var p struct {
		Type        any    `json:"type"`
		Title       string `json:"title"`
		Description string `json:"description"`
		Enum        []any  `json:"enum"`
		Default     any    `json:"default"`
		MaxLength   int    `json:"maxLength"`
	}
	if json.Unmarshal(schema, &p) != nil {
		return f
	}
	f.Help, f.Label = p.Description, cmp.Or(p.Title, name)
	switch kind, _ := p.Type.(string); {
	case len(p.Enum) > 0 && allStrings(p.Enum):
		f.Kind = "choice"
		for _, v := range p.Enum {
			f.Choices = append(f.Choices, v.(string))
		}
	case kind == "string":
		f.Kind = "text"
		if p.MaxLength > 200 || slices.Contains([]string{"content", "text", "body", "prompt"}, strings.ToLower(name)) {
			f.Kind = "long"
		}
	case kind == "integer":
		f.Kind, f.Step = "number", "1"
	case kind == "number":
		f.Kind, f.Step = "number", "any"
	case kind == "boolean":
		f.Kind = "flag"
	}
	if p.Default != nil {
		if text, ok := p.Default.(string); ok && f.Kind != "json" {
			f.Value = text
		} else if raw, err := json.Marshal(p.Default); err == nil {
			f.Value = string(raw)
		}
	}
	return f
}

func allStrings(list []any) bool {
	return !slices.ContainsFunc(list, func(v any) bool { _, ok := v.(string); return !ok })
}

// argumentsOf returns the arguments of a filled form and the form with the entered values. It
// leaves out empty optional fields.
func argumentsOf(fields []field, sent url.Values) (json.RawMessage, []field, error) {
	if fields == nil {
		text := cmp.Or(strings.TrimSpace(sent.Get("json")), "{}")
		if jsontext.Value(text).Kind() != '{' || !jsontext.Value(text).IsValid() {
			return nil, nil, fmt.Errorf("the arguments must be one JSON object")
		}
		return json.RawMessage(text), nil, nil
	}
	filled := slices.Clone(fields)
	var out bytes.Buffer
	out.WriteByte('{')
	var wrong []string
	for i := range filled {
		f := &filled[i]
		f.Value = sent.Get("arg." + f.Name)
		raw, problem := f.json()
		if problem != "" {
			wrong = append(wrong, f.Label+" "+problem)
		}
		if raw == nil {
			continue
		}
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		key, err := json.Marshal(f.Name)
		if err != nil {
			return nil, filled, err
		}
		out.Write(append(append(key, ':'), raw...))
	}
	out.WriteByte('}')
	if len(wrong) > 0 {
		return nil, filled, fmt.Errorf("%s", strings.Join(wrong, "; "))
	}
	return out.Bytes(), filled, nil
}

// json returns the value of a field as JSON; nil leaves the field out.
func (f *field) json() (raw json.RawMessage, problem string) {
	switch {
	case f.Kind == "flag":
		if f.Value == "true" {
			return json.RawMessage("true"), ""
		}
		if f.Required {
			return json.RawMessage("false"), ""
		}
		return nil, ""
	case f.Value == "" && !f.Required:
		return nil, ""
	case f.Kind == "number", f.Kind == "json":
		text := strings.TrimSpace(f.Value)
		v := jsontext.Value(text)
		if f.Kind == "number" && (!v.IsValid() || v.Kind() != '0') {
			return nil, "is not a number"
		}
		if text == "" || !v.IsValid() {
			return nil, "is not JSON"
		}
		return json.RawMessage(text), ""
	}
	raw, err := json.Marshal(f.Value)
	if err != nil {
		return nil, "cannot be read"
	}
	return raw, ""
}
