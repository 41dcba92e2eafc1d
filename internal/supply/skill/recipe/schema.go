package recipe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// deepest is how many levels of a schema are described.
const deepest = 4

// node is the part of a JSON Schema that is described in words.
type node struct {
	Type        any                        `json:"type"`
	Description string                     `json:"description"`
	Properties  map[string]json.RawMessage `json:"properties"`
	Required    []string                   `json:"required"`
	Items       json.RawMessage            `json:"items"`
	Enum        []json.RawMessage          `json:"enum"`
	Const       json.RawMessage            `json:"const"`
	Default     json.RawMessage            `json:"default"`
	Format      string                     `json:"format"`
	Pattern     string                     `json:"pattern"`
	Minimum     json.RawMessage            `json:"minimum"`
	Maximum     json.RawMessage            `json:"maximum"`
	Above       json.RawMessage            `json:"exclusiveMinimum"`
	Below       json.RawMessage            `json:"exclusiveMaximum"`
	MinLength   json.RawMessage            `json:"minLength"`
	MaxLength   json.RawMessage            `json:"maxLength"`
	MinItems    json.RawMessage            `json:"minItems"`
	MaxItems    json.RawMessage            `json:"maxItems"`
}

// unsaid are the keywords that change which values are valid and are copied as they
// are.
var unsaid = []string{"anyOf", "oneOf", "allOf", "not", "if", "$ref", "patternProperties", "prefixItems", "dependentRequired"}

// schema describes a tool's input or output.
func (w *writer) schema(verb, text string) {
	if text == "" {
		return
	}
	var n node
	if json.Unmarshal([]byte(text), &n) != nil {
		w.line("- " + verb + " a value of this schema: `" + oneLine(text) + "`")
		return
	}
	if len(n.Properties) == 0 {
		words := n.words(json.RawMessage(text))
		if kind(n.Type) == "object" {
			words = strings.Replace(words, "an object", "nothing in particular", 1)
		}
		w.line("- " + verb + " " + words)
		return
	}
	w.line("- " + verb + ":")
	w.properties(&n, 1)
}

// properties lists the members of an object.
func (w *writer) properties(n *node, depth int) {
	names := make([]string, 0, len(n.Properties))
	for name := range n.Properties {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if ra, rb := slices.Contains(n.Required, a), slices.Contains(n.Required, b); ra != rb {
			if ra {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	indent := strings.Repeat("  ", depth)
	for _, name := range names {
		var p node
		value := n.Properties[name]
		if json.Unmarshal(value, &p) != nil {
			p = node{} // true or false
		}
		must := "optional"
		if slices.Contains(n.Required, name) {
			must = "required"
		}
		line := fmt.Sprintf("%s- `%s` (%s, %s)", indent, oneLine(name), p.words(value), must)
		if p.Description != "" {
			line += ": " + oneLine(p.Description)
		}
		w.line(line)
		inner := &p
		if kind(p.Type) == "array" && p.Items != nil {
			var item node
			if json.Unmarshal(p.Items, &item) == nil {
				inner = &item
			}
		}
		if len(inner.Properties) > 0 && depth < deepest {
			w.properties(inner, depth+1)
		}
	}
}

// words describes the allowed values.
func (n *node) words(raw json.RawMessage) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, oneLine(fmt.Sprintf(format, args...))) }
	add("%s", n.kind())
	if len(n.Enum) > 0 {
		words := make([]string, len(n.Enum))
		for i, v := range n.Enum {
			words[i] = compact(v)
		}
		add("one of %s", diag.Words(words, "or"))
	}
	if n.Const != nil {
		add("always %s", compact(n.Const))
	}
	if n.Format != "" {
		add("a %s", n.Format)
	}
	if n.Pattern != "" {
		add("matching `%s`", n.Pattern)
	}
	for _, b := range []struct {
		words string
		value json.RawMessage
	}{
		{"at least %s", n.Minimum},
		{"at most %s", n.Maximum},
		{"more than %s", n.Above},
		{"less than %s", n.Below},
		{"at least %s characters", n.MinLength},
		{"at most %s characters", n.MaxLength},
		{"at least %s items", n.MinItems},
		{"at most %s items", n.MaxItems},
	} {
		if b.value != nil {
			add(b.words, compact(b.value))
		}
	}
	if n.Default != nil {
		add("%s if not given", compact(n.Default))
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) == nil {
		for _, name := range unsaid {
			if v, ok := members[name]; ok {
				add("and %s %s", name, cut(compact(v), 300))
			}
		}
	}
	return strings.Join(parts, ", ")
}

var kinds = map[string]string{
	"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false",
	"array": "list", "object": "an object", "null": "null",
}

// kind is the only type of a schema, empty if it has none or several.
func kind(t any) string {
	s, _ := t.(string)
	return s
}

func (n *node) kind() string {
	switch t := n.Type.(type) {
	case string:
		if t == "array" && n.Items != nil {
			var item node
			if json.Unmarshal(n.Items, &item) == nil {
				return "list of " + strings.TrimPrefix(item.words(n.Items), "an ")
			}
		}
		if word, ok := kinds[t]; ok {
			return word
		}
	case []any:
		var words []string
		for _, v := range t {
			if word, ok := kinds[kind(v)]; ok {
				words = append(words, word)
			}
		}
		return diag.Words(words, "or")
	}
	return "anything"
}

func compact(v json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, v) != nil {
		return string(v)
	}
	return b.String()
}
