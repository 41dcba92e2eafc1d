package front

import (
	"bytes"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// lookup returns the member at a path in nested JSON objects, or nil. The JSON must be valid.
func lookup(raw []byte, path ...string) jsontext.Value { return rawjson.Lookup(raw, path...) }

// text decodes a JSON string. The second result is false for any other value.
func text(raw []byte) (string, bool) { return rawjson.Text(raw) }

// set returns the object with a new value for the named member. If the member is missing, it is inserted at the start.
// All other bytes stay the same. If the argument is not a JSON object, it is returned unchanged.
func set(object []byte, name string, value jsontext.Value) jsontext.Value {
	if start, end := rawjson.Find(object, name); start < end {
		return slices.Concat(object[:start], value, object[end:])
	}
	open := bytes.IndexByte(object, '{')
	if open < 0 || len(bytes.TrimLeft(object[:open], " \t\r\n")) > 0 {
		return object
	}
	member := slices.Concat(marshal(name), []byte(":"), value)
	rest := object[open+1:]
	if next := bytes.TrimLeft(rest, " \t\r\n"); len(next) > 0 && next[0] != '}' {
		member = append(member, ',')
	}
	return slices.Concat(object[:open+1], member, rest)
}

// replace is like set, but also removes every member whose name differs only in case. Some parsers ignore case, and
// they could read such a member instead.
func replace(object []byte, name string, value jsontext.Value) jsontext.Value {
	var members [][]byte
	rawjson.Members(object, func(n string, value jsontext.Value) {
		if !strings.EqualFold(n, name) {
			members = append(members, slices.Concat(marshal(n), []byte(":"), value))
		}
	})
	return set(slices.Concat([]byte("{"), bytes.Join(members, []byte(",")), []byte("}")), name, value)
}

// fill adds a member to the object, unless the object already has a member with this name.
func fill(object []byte, name string, value jsontext.Value) jsontext.Value {
	if lookup(object, name) != nil {
		return object
	}
	return set(object, name, value)
}

func clip(s string) string {
	if len(s) > 100 {
		s = s[:100] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
