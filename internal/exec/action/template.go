package action

import (
	"encoding/json"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// arguments are the values of one call.
type arguments struct {
	tool   *agent.Tool
	values map[string]jsontext.Value
}

func readArguments(t *agent.Tool, c *call.Call) (arguments, error) {
	a := arguments{tool: t}
	if len(c.Arguments) > 0 && json.Unmarshal(c.Arguments, &a.values) != nil {
		return a, call.Refuse(stage, call.InputInvalid, "the arguments are not a JSON object")
	}
	return a, nil
}

// value is a JSON value without its layout: as given, or the default of the
// input schema.
func (a arguments) value(name string) (jsontext.Value, error) {
	v, ok := a.values[name]
	if !ok {
		v, ok = a.fallback(name)
	}
	if v = v.Clone(); !ok || v.Compact() != nil {
		return nil, a.missing(name)
	}
	return v, nil
}

func (a arguments) missing(name string) error {
	r := call.Refuse(stage, call.InputInvalid, "%s needs a value for %s", a.tool.Name, diag.Quote(name))
	r.Hint = "give it, or have the manifest's input_schema name a default"
	return r
}

func (a arguments) fallback(name string) (jsontext.Value, bool) {
	var schema struct {
		Properties map[string]jsontext.Value `json:"properties"`
	}
	if json.Unmarshal([]byte(a.tool.InputSchema), &schema) != nil || schema.Properties[name].Kind() != '{' {
		return nil, false
	}
	var property map[string]jsontext.Value
	if json.Unmarshal(schema.Properties[name], &property) != nil {
		return nil, false
	}
	v, ok := property["default"]
	return v, ok
}

// text is a value as text: of a string what it says, of anything else its JSON.
// Nothing can be said with null.
func (a arguments) text(name string) (string, error) {
	v, err := a.value(name)
	if err != nil {
		return "", err
	}
	return textOf(v, a.missing(name))
}

func textOf(v jsontext.Value, missing error) (string, error) {
	switch v.Kind() {
	case 'n':
		return "", missing
	case '"':
		var text string
		if json.Unmarshal(v, &text) != nil {
			return "", missing
		}
		return text, nil
	}
	return string(v), nil
}

// escape makes a value fit where it is put; it may refuse it.
type escape func(text string) (string, error)

func plain(text string) (string, error) { return text, nil }

// fill puts values in the place of the placeholders of a template.
func (a arguments) fill(template string, esc escape) (string, error) {
	found, _ := agent.Placeholders(template)
	var b strings.Builder
	at := 0
	for _, p := range found {
		text, err := a.text(p.Name)
		if err == nil {
			text, err = esc(text)
		}
		if err != nil {
			return "", err
		}
		b.WriteString(template[at:p.Start] + text)
		at = p.End
	}
	return b.String() + template[at:], nil
}

// percent encodes all but the characters that mean the same everywhere.
func percent(text string) (string, error) {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_', c == '~':
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String(), nil
}
