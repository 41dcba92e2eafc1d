package console

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// field is one input of a tool's form. Kind is "text", "long", "number", "flag", "choice" or "json".
type field struct {
	Name, Label, Help, Kind, Value string
	Required                       bool
	Choices                        []string
	Step                           string
}

// maxFields is the maximum number of inputs in a form. If a tool has more, its form has a single input for JSON.
const maxFields = 40

// formOf returns a form for an input schema. It returns nil if the schema describes no properties or too many of them.
// In this case, the person enters the arguments as JSON.
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
	rawjson.Members(s.Properties, func(name string, value jsontext.Value) {
		f := fieldOf(name, value)
		f.Required = slices.Contains(s.Required, name)
		fields = append(fields, f)
	})
	if len(fields) > maxFields {
		return nil
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

// argumentsOf converts the entered values to the arguments of a call. It omits empty optional fields. The second result
// is the form with the entered values.
func argumentsOf(fields []field, sent url.Values) (json.RawMessage, []field, error) {
	if fields == nil {
		text := cmp.Or(strings.TrimSpace(sent.Get("json")), "{}")
		if jsontext.Value(text).Kind() != '{' || !jsontext.Value(text).IsValid() {
			return nil, nil, errors.New("the arguments must be one JSON object")
		}
		return json.RawMessage(text), nil, nil
	}
	filled := slices.Clone(fields)
	arguments := map[string]json.RawMessage{}
	var wrong []string
	for i := range filled {
		f := &filled[i]
		f.Value = sent.Get("arg." + f.Name)
		raw, problem := f.json()
		if problem != "" {
			wrong = append(wrong, f.Label+" "+problem)
		}
		if raw != nil {
			arguments[f.Name] = raw
		}
	}
	if len(wrong) > 0 {
		return nil, filled, errors.New(strings.Join(wrong, "; "))
	}
	out, err := json.Marshal(arguments)
	return out, filled, err
}

// json returns the field's value as JSON, or nil if the field is omitted from the arguments. If the value is invalid,
// the second result is the reason.
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
			return nil, "is not valid JSON"
		}
		return json.RawMessage(text), ""
	}
	raw, err := json.Marshal(f.Value)
	if err != nil {
		return nil, "cannot be read"
	}
	return raw, ""
}
