package importer

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// numberWords lists the numeric schema keywords that are copied. typeNames lists the valid values of the schema keyword
// "type".
var (
	numberWords = []string{
		"minimum", "maximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "minProperties",
		"maxProperties",
	}
	typeNames = []string{"string", "number", "integer", "boolean", "array", "object", "null"}
)

// converted is the cache key of a converted schema. It contains the reference and everything else that affects the
// result.
type converted struct {
	ref         string
	depth, left int
	deepest     int
}

// cleaned is a converted schema, with its size in bytes and the value of schemasLeft after the conversion.
type cleaned struct {
	schema     map[string]any
	size, left int
}

// clean converts a schema. It caches the result, because many operations can refer to one large schema.
func (a *api) clean(v any, depth int) map[string]any {
	key := converted{text(object(v)["$ref"]), depth, a.schemasLeft, a.deepest}
	if key.ref == "" || len(a.following) > 0 {
		return a.copySchema(v, depth)
	}
	c, ok := a.cleaned[key]
	if !ok {
		c.schema = a.copySchema(v, depth)
		encoded, err := json.Marshal(c.schema)
		if c.size, c.left = len(encoded), a.schemasLeft; err != nil {
			c.size = maxSchema + 1
		}
		a.cleaned[key] = c
	}
	a.schemasLeft = c.left
	if a.bytesLeft -= c.size; a.bytesLeft < 0 {
		return map[string]any{} // the function problem reports that the schema is too large
	}
	return maps.Clone(c.schema)
}

// copySchema copies a schema. It copies a keyword only if JSON Schema and all versions of OpenAPI 3 define the keyword
// in the same way. Examples and defaults are dropped, because they often contain real secrets.
func (a *api) copySchema(v any, depth int) map[string]any {
	out := map[string]any{}
	ref := text(object(v)["$ref"])
	if a.schemasLeft--; a.schemasLeft < 0 || depth > a.deepest || ref != "" && a.following[ref] {
		return out // an empty schema allows any value
	}
	if ref != "" {
		a.following[ref] = true
		defer delete(a.following, ref)
	}
	o := a.resolve(v)
	a.copyType(o, out)
	for _, word := range numberWords {
		n, ok := o[word].(json.Number)
		if !ok || len(n) > 15 { // not every parser represents a number of this size exactly
			continue
		}
		count := !strings.ContainsAny(n.String(), "-.eE")
		if count && (word != "multipleOf" || n != "0") || word == "minimum" || word == "maximum" {
			out[word] = n
		}
	}
	if d := strings.TrimSpace(a.scrub(text(o["description"]))); d != "" {
		out["description"] = cut(d, 300)
	}
	if f := text(o["format"]); lowerWord.MatchString(strings.ReplaceAll(f, "-", "_")) {
		out["format"] = f
	}
	if p := text(o["pattern"]); p != "" && len(p) < 200 && a.scrub(p) == p {
		if _, err := regexp.Compile(p); err == nil {
			out["pattern"] = p
		}
	}
	if items, ok := o["items"]; ok {
		out["items"] = a.clean(items, depth+1)
	}
	a.copyProperties(o, out, depth)
	// oneOf becomes anyOf. Some keywords are not copied, so a value that matches one part of the original can match
	// several parts of the copy.
	for _, from := range []string{"allOf", "anyOf", "oneOf"} {
		word := strings.Replace(from, "oneOf", "anyOf", 1)
		for _, item := range list(o[from]) {
			out[word] = append(list(out[word]), a.clean(item, depth+1))
		}
	}
	return out
}

// copyType copies the type and the enum from one schema to another.
func (a *api) copyType(o, out map[string]any) {
	var kinds []any
	for _, t := range append(texts([]any{o["type"]}), texts(o["type"])...) {
		if slices.Contains(typeNames, t) && !slices.Contains(kinds, any(t)) {
			kinds = append(kinds, t)
		}
	}
	if truth(o["nullable"]) && len(kinds) > 0 && !slices.Contains(kinds, any("null")) {
		kinds = append(kinds, "null")
	}
	switch len(kinds) {
	case 0:
	case 1:
		out["type"] = kinds[0]
	default:
		out["type"] = kinds
	}
	var choice []any
	for _, e := range list(o["enum"]) {
		if s, isText := e.(string); isText && a.scrub(s) != s {
			continue
		}
		if n, isNumber := e.(json.Number); isNumber && len(n) > 15 {
			continue
		}
		if !slices.ContainsFunc(choice, func(c any) bool { return c == e }) && scalar(e) {
			choice = append(choice, e)
		}
	}
	if len(choice) > 0 {
		if truth(o["nullable"]) && !slices.Contains(choice, nil) {
			choice = append(choice, nil)
		}
		out["enum"] = choice
	}
}

func scalar(v any) bool {
	switch v.(type) {
	case nil, string, bool, json.Number:
		return true
	}
	return false
}

// copyProperties copies the properties from one schema to another, except read-only properties.
func (a *api) copyProperties(o, out map[string]any, depth int) {
	props := object(o["properties"])
	if len(props) == 0 {
		return
	}
	kept := map[string]any{}
	var readOnly []string
	for _, name := range sorted(props) {
		p := a.resolve(props[name])
		if truth(p["readOnly"]) {
			readOnly = append(readOnly, name)
			continue
		}
		kept[name] = a.clean(props[name], depth+1)
	}
	out["properties"] = kept
	var required []string
	for _, name := range texts(o["required"]) {
		if kept[name] != nil && !slices.Contains(readOnly, name) && !slices.Contains(required, name) {
			required = append(required, name)
		}
	}
	if len(required) > 0 {
		out["required"] = required
	}
}

// withholdDefaults withholds every example or default in v that looks like a secret.
func (b *builder) withholdDefaults(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, item := range v {
			if s, ok := item.(string); ok && (k == "example" || k == "default" || k == "value") && tokenLike(s) {
				b.withhold(s)
			}
			b.withholdDefaults(item)
		}
	case []any:
		for _, item := range v {
			b.withholdDefaults(item)
		}
	}
}
