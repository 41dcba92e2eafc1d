package action

import (
	"encoding/json"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
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

// value returns an argument as compact JSON, or the default of the input schema.
func (a arguments) value(name string) (jsontext.Value, error) {
	v, ok := a.values[name]
	if !ok {
		v = rawjson.Lookup([]byte(a.tool.InputSchema), "properties", name, "default")
	}
	if v = v.Clone(); v == nil || v.Compact() != nil {
		return nil, a.missing(name)
	}
	return v, nil
}

func (a arguments) missing(name string) error {
	r := call.Refuse(stage, call.InputInvalid, "%s needs a value for %s", a.tool.Name, diag.Quote(name))
	r.Hint = "pass the argument, or give it a default in the manifest's input_schema"
	return r
}

// text returns a value as text: the content of a string, or the JSON of anything else. Null counts as
// missing.
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

// escape adapts a value to its place or refuses it.
type escape func(text string) (string, error)

func plain(text string) (string, error) { return text, nil }

// fill replaces the placeholders of a template.
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

// percent encodes all but unreserved characters.
func percent(text string) (string, error) {
	return strings.ReplaceAll(url.QueryEscape(text), "+", "%20"), nil
}
