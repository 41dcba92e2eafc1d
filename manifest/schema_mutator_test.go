package manifest_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/manifest"
)

// mutator changes valid manifests. Each changed manifest is called a mutant and breaks one constraint of a schema.
type mutator struct {
	t       *testing.T
	dialect agent.Dialect
	root    map[string]any
	schema  *jsonschema.Schema
	all     map[string]bool
	broken  map[string]bool
	file    string
	// place is the path of the current value; all items of a list have the same place.
	place string
	// tried counts the attempts to break each constraint at each place.
	tried map[string]int
	// If the field last is set, the file is used only for constraints that no other file breaks.
	last    bool
	mutants int
}

// enough is the maximum number of attempts to break one constraint at one place. Without this limit, a list of forty
// tools would need too many attempts.
const enough = 20

// try checks one mutant, which is the document that the function rebuild returns for the invalid value bad. The
// parameter where is the path of the constraint.
func (m *mutator) try(where string, bad any, rebuild func(any) any) {
	key := where + " " + m.place
	if m.tried[key] >= enough || m.last && m.broken[where] {
		return
	}
	m.tried[key]++
	doc := rebuild(bad)
	if m.schema.Validate(doc) == nil {
		return // the mutant is valid, because another branch of the schema allows the value
	}
	name, src, ok := encode(m.dialect, doc)
	if !ok {
		return
	}
	m.mutants++
	m.broken[where] = true
	if got, _ := manifest.Parse(name, src, manifest.Options{Dialect: m.dialect}); got.Valid() {
		m.t.Errorf("%s: a mutant that breaks %s is rejected by the schema but accepted by the rules\n%s\n%s", m.file, where, clip(src), listing(got))
	}
}

// bound checks a value at the limit of a constraint. If the schema accepts the value, the rules must accept it too.
func (m *mutator) bound(where string, value any, rebuild func(any) any) {
	doc := rebuild(value)
	name, src, ok := encode(m.dialect, doc)
	if !ok || m.last || m.schema.Validate(doc) != nil {
		return
	}
	got, _ := manifest.Parse(name, src, manifest.Options{Dialect: m.dialect})
	for _, d := range got.Diagnostics {
		if d.Severity == diag.Error && beyondSchema[d.Code] == "" {
			m.t.Errorf("%s: a value at the limit of %s is accepted by the schema but rejected by the rules: %s %s", m.file, where, d.Code, d.Message)
		}
	}
}

func clip(b []byte) string {
	if len(b) > 1500 {
		return string(b[:1500]) + "…"
	}
	return string(b)
}

// The map constraints lists the keywords that a value can break. The map annotations lists the keywords that do not
// restrict a value. The test fails if a schema uses any other keyword, because that keyword would not be tested.
var (
	constraints = map[string]bool{
		"type": true, "const": true, "enum": true, "minLength": true, "maxLength": true, "pattern": true, "minItems": true,
		"maxItems": true, "minimum": true, "maximum": true, "exclusiveMinimum": true, "uniqueItems": true, "minProperties": true,
		"propertyNames": true, "not": true,
	}
	annotations = map[string]bool{
		"$schema": true, "$id": true, "$ref": true, "$comment": true, "title": true, "description": true, "default": true, "examples": true,
		"deprecated": true, "if": true,
	}
)

// collect adds every constraint of a schema to m.all. The test uses m.all to report constraints that no mutant
// broke.
func (m *mutator) collect(where string, s any) {
	switch s := s.(type) {
	case map[string]any:
		for k, v := range s {
			at := where + "/" + k
			switch {
			case annotations[k]:
			case k == "properties" || k == "$defs":
				for name, sub := range v.(map[string]any) {
					m.collect(at+"/"+name, sub)
				}
			case k == "required":
				for _, name := range v.([]any) {
					m.all[at+"/"+name.(string)] = true
				}
			case constraints[k], k == "additionalProperties" && v == false:
				m.all[at] = true
			case k == "items" || k == "then" || k == "else" || k == "additionalProperties":
				m.collect(at, v)
			case k == "allOf" || k == "anyOf" || k == "oneOf":
				for i, sub := range v.([]any) {
					m.collect(fmt.Sprintf("%s/%d", at, i), sub)
				}
			default:
				m.t.Errorf("%s: the test does not support this keyword", at)
			}
		}
	}
}

func (m *mutator) resolve(where string, s map[string]any) (string, map[string]any) {
	for {
		ref, ok := s["$ref"].(string)
		if !ok {
			return where, s
		}
		where = ref
		var cur any = m.root
		for _, part := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
			cur = cur.(map[string]any)[part]
		}
		s = cur.(map[string]any)
	}
}

// walk breaks each constraint of the schema at the value v.
func (m *mutator) walk(where string, schema any, v any, rebuild func(any) any) {
	s, ok := schema.(map[string]any)
	if !ok {
		return
	}
	where, s = m.resolve(where, s)
	for k, arg := range s {
		at := where + "/" + k
		switch k {
		case "type":
			for _, bad := range otherTypes(arg) {
				m.try(at, bad, rebuild)
			}
		case "const", "enum":
			for _, bad := range []any{"no-such-word", json.Number("987654")} {
				m.try(at, bad, rebuild)
			}
		case "required":
			if obj, isObject := v.(map[string]any); isObject {
				for _, name := range arg.([]any) {
					if _, has := obj[name.(string)]; has {
						m.try(at+"/"+name.(string), without(obj, name.(string)), rebuild)
					}
				}
			}
		case "minLength", "maxLength", "pattern":
			for _, bad := range badTexts(k, arg, v) {
				m.try(at, bad, rebuild)
			}
			if k != "pattern" {
				m.bound(at, strings.Repeat("x", int(number(arg))), rebuild)
			}
		case "minProperties":
			m.try(at, map[string]any{}, rebuild)
		case "minItems":
			m.try(at, []any{}, rebuild)
		case "maxItems":
			if list, isList := v.([]any); isList && len(list) > 0 {
				m.try(at, manyItems(list, number(arg)+1), rebuild)
			}
		case "uniqueItems":
			if list, isList := v.([]any); isList && len(list) > 0 {
				m.try(at, append(slices.Clone(list), list[0]), rebuild)
			}
		case "minimum":
			m.try(at, json.Number(fmt.Sprint(number(arg)-1)), rebuild)
			m.bound(at, arg, rebuild)
		case "exclusiveMinimum":
			m.try(at, json.Number(fmt.Sprint(number(arg))), rebuild)
		case "maximum":
			m.try(at, json.Number(fmt.Sprint(number(arg)+1)), rebuild)
			m.bound(at, arg, rebuild)
		case "propertyNames":
			m.try(at, with(v, "not a name !", "x"), rebuild)
		case "additionalProperties":
			if arg == false {
				m.try(at, with(v, "no_such_field", "x"), rebuild)
			} else if obj, isObject := v.(map[string]any); isObject {
				for name, child := range obj {
					if props, _ := s["properties"].(map[string]any); props[name] == nil {
						m.below("*", at, arg, child, func(bad any) any { return rebuild(with(obj, name, bad)) })
					}
				}
			}
		case "not":
			m.breakNot(at, arg, v, rebuild)
		case "properties":
			m.properties(at, arg.(map[string]any), v, rebuild)
		case "items":
			m.items(at, arg, v, rebuild)
		case "allOf", "anyOf", "oneOf":
			for i, sub := range arg.([]any) {
				m.walk(fmt.Sprintf("%s/%d", at, i), sub, v, rebuild)
			}
		case "then", "else":
			m.walk(at, arg, v, rebuild)
		}
	}
}

// below calls walk for a child value. The path of the child is the path of its parent with the given step added.
func (m *mutator) below(step, where string, schema any, v any, rebuild func(any) any) {
	place := m.place
	m.place += "/" + step
	m.walk(where, schema, v, rebuild)
	m.place = place
}

func (m *mutator) properties(at string, props map[string]any, v any, rebuild func(any) any) {
	obj, ok := v.(map[string]any)
	if !ok {
		return
	}
	for name, sub := range props {
		if child, has := obj[name]; has {
			m.below(name, at+"/"+name, sub, child, func(bad any) any { return rebuild(with(obj, name, bad)) })
		}
	}
}

func (m *mutator) items(at string, sub any, v any, rebuild func(any) any) {
	list, ok := v.([]any)
	if !ok {
		return
	}
	for i, child := range list {
		m.below("*", at, sub, child, func(bad any) any {
			changed := slices.Clone(list)
			changed[i] = bad
			return rebuild(changed)
		})
	}
}

// breakNot tries values that a "not" keyword forbids: a constant, a field, or a text that matches a pattern.
func (m *mutator) breakNot(at string, arg, v any, rebuild func(any) any) {
	s, ok := arg.(map[string]any)
	if !ok {
		return
	}
	if c, has := s["const"]; has {
		m.try(at, c, rebuild)
	}
	if names, has := s["required"].([]any); has {
		for _, name := range names {
			m.try(at, with(v, name.(string), "x"), rebuild)
		}
	}
	if _, has := s["pattern"]; has {
		text, _ := v.(string)
		for _, bad := range append([]any{text + "$env:NAME", text + "$env:"}, badTexts("pattern", s["pattern"], v)...) {
			m.try(at, bad, rebuild)
		}
	}
}

func with(v any, key string, value any) any {
	out := map[string]any{}
	if obj, ok := v.(map[string]any); ok {
		for k, x := range obj {
			out[k] = x
		}
	}
	out[key] = value
	return out
}

func without(obj map[string]any, key string) any {
	out := map[string]any{}
	for k, v := range obj {
		if k != key {
			out[k] = v
		}
	}
	return out
}

func number(v any) int64 {
	n, err := v.(json.Number).Int64()
	if err != nil {
		panic(err)
	}
	return n
}

func otherTypes(arg any) []any {
	samples := map[string]any{
		"string": "text", "integer": json.Number("7"), "boolean": true, "array": []any{}, "object": map[string]any{}, "null": nil, "number": json.Number("1.5"),
	}
	allowed := map[string]bool{}
	switch arg := arg.(type) {
	case string:
		allowed[arg] = true
	case []any:
		for _, a := range arg {
			allowed[a.(string)] = true
		}
	}
	var out []any
	for name, sample := range samples {
		if !allowed[name] && !(name == "integer" && allowed["number"]) {
			out = append(out, sample)
		}
	}
	return out
}

// manyItems returns n copies of the items in list. The copies have unique names, so only the number of items is
// wrong.
func manyItems(list []any, n int64) []any {
	var out []any
	for i := int64(0); i < n; i++ {
		item := list[int(i)%len(list)]
		if s, ok := item.(string); ok {
			item = fmt.Sprintf("%s %d", s, i)
		}
		if obj, ok := item.(map[string]any); ok {
			if name, ok := obj["name"].(string); ok {
				item = with(obj, "name", fmt.Sprintf("%s_%d", name, i))
			}
		}
		out = append(out, item)
	}
	return out
}

func badTexts(keyword string, arg, v any) []any {
	switch keyword {
	case "minLength":
		return []any{strings.Repeat("x", int(number(arg))-1)}
	case "maxLength":
		s, _ := v.(string)
		return []any{s + strings.Repeat("x", int(number(arg))+1-len([]rune(s)))}
	}
	s, _ := v.(string)
	return []any{"", "no such form !", "UPPER lower", s + "\n", s + " ", " " + s, s + "/../x", "http://" + s, "*." + s, "127.0.0.1", s + "{x}", "-", "/abs", `a\b`, s + ":80", "a..b"}
}
