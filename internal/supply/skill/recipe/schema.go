package recipe

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// deepest is the maximum depth to which a schema is described.
const deepest = 4

// node is a JSON Schema. The keys are keywords.
type node map[string]json.RawMessage

// parse parses a JSON Schema. It fails if the schema is a boolean.
func parse(raw json.RawMessage) (n node, err error) {
	err = json.Unmarshal(raw, &n)
	return n, err
}

// get returns the value of a keyword. It returns the zero value if the keyword is missing or its value has a different
// type.
func get[T any](n node, keyword string) (v T) {
	if json.Unmarshal(n[keyword], &v) != nil {
		var none T
		return none
	}
	return v
}

// keywords contains a phrase for each keyword that can be described in words. A description has the phrases in this
// order.
var keywords = []struct{ name, words string }{
	{"const", "always %s"},
	{"format", "a %s"},
	{"pattern", "matching `%s`"},
	{"minimum", "at least %s"},
	{"maximum", "at most %s"},
	{"exclusiveMinimum", "more than %s"},
	{"exclusiveMaximum", "less than %s"},
	{"minLength", "at least %s characters"},
	{"maxLength", "at most %s characters"},
	{"minItems", "at least %s items"},
	{"maxItems", "at most %s items"},
	{"default", "%s if not given"},
}

// copiedKeywords lists more keywords that restrict the valid values. They are copied as JSON instead of being
// described in words.
var copiedKeywords = strings.Fields("anyOf oneOf allOf not if $ref patternProperties prefixItems dependentRequired")

// schema writes a description of a tool's input or output. The parameter text is the JSON Schema.
func (w *writer) schema(verb, text string) {
	if text == "" {
		return
	}
	n, err := parse(json.RawMessage(text))
	if err != nil {
		w.line("- " + verb + " a value that matches this schema: `" + oneLine(text) + "`")
		return
	}
	if len(get[node](n, "properties")) == 0 {
		words := n.words()
		if get[string](n, "type") == "object" {
			words = strings.Replace(words, "an object", "an object without defined properties", 1)
		}
		w.line("- " + verb + " " + words)
		return
	}
	w.line("- " + verb + ":")
	w.properties(n, 1)
}

// properties lists the properties of an object, with the required properties first.
func (w *writer) properties(n node, depth int) {
	properties, required := get[node](n, "properties"), get[[]string](n, "required")
	names := slices.Sorted(maps.Keys(properties))
	must := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(required, name) })
	may := slices.DeleteFunc(names, func(name string) bool { return slices.Contains(required, name) })
	for i, name := range slices.Concat(must, may) {
		p, err := parse(properties[name])
		if err != nil {
			p = nil // the schema is a boolean or is invalid
		}
		presence := "optional"
		if i < len(must) {
			presence = "required"
		}
		line := fmt.Sprintf("%s- `%s` (%s, %s)", strings.Repeat("  ", depth), oneLine(name), p.words(), presence)
		if about := get[string](p, "description"); about != "" {
			line += ": " + oneLine(about)
		}
		w.line(line)
		if item, err := parse(p["items"]); err == nil && get[string](p, "type") == "array" {
			p = item
		}
		if len(get[node](p, "properties")) > 0 && depth < deepest {
			w.properties(p, depth+1)
		}
	}
}

// words returns a description of the values that the schema allows.
func (n node) words() string {
	parts := []string{n.kind()}
	if choice := get[[]json.RawMessage](n, "enum"); len(choice) > 0 {
		words := make([]string, len(choice))
		for i, v := range choice {
			words[i] = compact(v)
		}
		parts = append(parts, "one of "+diag.Words(words, "or"))
	}
	for _, k := range keywords {
		value := compact(n[k.name])
		if k.name == "format" || k.name == "pattern" {
			value = get[string](n, k.name)
		}
		if value != "" {
			parts = append(parts, fmt.Sprintf(k.words, value))
		}
	}
	for _, name := range copiedKeywords {
		if value, ok := n[name]; ok {
			parts = append(parts, "and "+name+" "+cut(compact(value), 300))
		}
	}
	for i := range parts {
		parts[i] = oneLine(parts[i])
	}
	return strings.Join(parts, ", ")
}

var kinds = map[string]string{
	"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false",
	"array": "list", "object": "an object", "null": "null",
}

func (n node) kind() string {
	types := get[[]string](n, "type")
	if one := get[string](n, "type"); one != "" {
		types = []string{one}
	}
	if item, err := parse(n["items"]); err == nil && slices.Equal(types, []string{"array"}) {
		return "list of " + strings.TrimPrefix(item.words(), "an ")
	}
	var words []string
	for _, t := range types {
		if word, ok := kinds[t]; ok {
			words = append(words, word)
		}
	}
	return cmp.Or(diag.Words(words, "or"), "anything")
}

func compact(v json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, v) != nil {
		return string(v)
	}
	return b.String()
}
