package validate

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func types(name string) (t jsonschema.Types) {
	t.Add(name)
	return t
}

var null, boolean, number, integer, text, array, object = types("null"), types("boolean"), types("number"),
	types("integer"), types("string"), types("array"), types("object")

func typeOf(v any) jsonschema.Types {
	switch v.(type) {
	case nil:
		return null
	case bool:
		return boolean
	case json.Number:
		return number
	case string:
		return text
	case []any:
		return array
	}
	return object
}

func (e *evaluation) hasType(wanted jsonschema.Types, v any) bool {
	if wanted&typeOf(v) != 0 {
		return true
	}
	n, ok := v.(json.Number)
	return ok && wanted&integer != 0 && e.isInteger(n)
}

func (e *evaluation) isInteger(n json.Number) bool {
	if !strings.ContainsAny(string(n), ".eE") {
		return true
	}
	r, ok := e.rat(n)
	return ok && r.IsInt()
}

// equal reports whether two values are equal as JSON Schema defines it: numbers by value, objects in any order.
func (e *evaluation) equal(a, b any) bool {
	if !e.spend(1) {
		return false
	}
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, value := range a {
			other, has := b[name]
			if !has || !e.equal(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, e.equal)
	case json.Number:
		b, ok := b.(json.Number)
		if !ok || a == b {
			return ok
		}
		x, okX := e.rat(a)
		y, okY := e.rat(b)
		return okX && okY && x.Cmp(y) == 0
	case string:
		b, ok := b.(string)
		return ok && len(a) == len(b) && e.spend(len(a)/16) && a == b
	}
	return a == b
}

// unique reports whether no two items of an array are equal.
func (e *evaluation) unique(array []any) bool {
	seen := make(map[string]bool, len(array))
	for _, item := range array {
		key := string(e.appendKey(nil, item))
		if e.err != nil || seen[key] {
			return false
		}
		seen[key] = true
	}
	return true
}

// appendKey appends a text that is the same for equal values and different for others.
func (e *evaluation) appendKey(to []byte, v any) []byte {
	if !e.spend(1) {
		return to
	}
	switch v := v.(type) {
	case map[string]any:
		to = append(to, '{')
		for _, name := range slices.Sorted(maps.Keys(v)) {
			to = append(strconv.AppendQuote(to, name), ':')
			to = append(e.appendKey(to, v[name]), ',')
		}
		return append(to, '}')
	case []any:
		to = append(to, '[')
		for _, item := range v {
			to = append(e.appendKey(to, item), ',')
		}
		return append(to, ']')
	case json.Number:
		if r, ok := e.rat(v); ok {
			return append(to, r.RatString()...)
		}
		return to
	case string:
		e.spend(len(v) / 8)
		return strconv.AppendQuote(to, v)
	case bool:
		return strconv.AppendBool(to, v)
	}
	return append(to, "null"...)
}
