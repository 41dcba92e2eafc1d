package validate

import (
	"bytes"
	"encoding/json"
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
	return e.spend(len(n)/4) && decimalOf(n).exponent >= 0
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
		if !e.spend(8 + (len(a)+len(b))/4) {
			return false
		}
		e.keyA, e.keyB = decimalOf(a).append(e.keyA[:0]), decimalOf(b).append(e.keyB[:0])
		return bytes.Equal(e.keyA, e.keyB)
	case string:
		b, ok := b.(string)
		return ok && len(a) == len(b) && e.spend(len(a)/16) && a == b
	}
	return a == b
}

// unique reports whether all items of an array are different.
func (e *evaluation) unique(array []any) bool {
	if len(array) <= 8 { // for few items, a comparison of all pairs takes less memory than a map
		for i, item := range array {
			if slices.ContainsFunc(array[:i], func(other any) bool { return e.equal(item, other) }) {
				return false
			}
		}
		return true
	}
	seen := make(map[string]bool, len(array))
	for _, item := range array {
		e.keyA = e.appendKey(e.keyA[:0], item)
		if !e.spend(seenWork+len(e.keyA)/8) || seen[string(e.keyA)] {
			return false
		}
		seen[string(e.keyA)] = true
	}
	return true
}

// appendKey appends a text that represents a value. Equal values have the same text, and different values have
// different texts.
func (e *evaluation) appendKey(to []byte, v any) []byte {
	if !e.spend(1) {
		return to
	}
	switch v := v.(type) {
	case map[string]any:
		to = append(to, '{')
		start := len(e.names)
		for _, name := range e.sorted(v) {
			to = append(strconv.AppendQuote(to, name), ':')
			to = append(e.appendKey(to, v[name]), ',')
		}
		e.names = e.names[:start]
		return append(to, '}')
	case []any:
		to = append(to, '[')
		for _, item := range v {
			to = append(e.appendKey(to, item), ',')
		}
		return append(to, ']')
	case json.Number:
		return decimalOf(v).append(to)
	case string:
		e.spend(len(v) / 8)
		return strconv.AppendQuote(to, v)
	case bool:
		return strconv.AppendBool(to, v)
	}
	return append(to, "null"...)
}
