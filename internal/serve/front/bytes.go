package front

import (
	"bytes"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// lookup follows names into nested objects of valid JSON.
func lookup(raw []byte, path ...string) jsontext.Value { return rawjson.Lookup(raw, path...) }

// text returns the value of a JSON string.
func text(raw []byte) (string, bool) { return rawjson.Text(raw) }

// find returns the start and end of a member's value; start is -1 if there is no such member.
func find(object []byte, name string) (start, end int) {
	if start, end = rawjson.Find(object, name); start == end {
		return -1, -1
	}
	return start, end
}

// set replaces a member's value, or adds the member as the first one. It changes no other bytes,
// and returns values that are not objects unchanged.
func set(object []byte, name string, value jsontext.Value) jsontext.Value {
	if start, end := find(object, name); start >= 0 {
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

// fill adds a member if the object has none with this name.
func fill(object []byte, name string, value jsontext.Value) jsontext.Value {
	if start, _ := find(object, name); start >= 0 {
		return object
	}
	return set(object, name, value)
}

// oneLine replaces line ends in JSON, where they occur between tokens only.
func oneLine(b []byte) {
	for i, c := range b {
		if c == '\n' || c == '\r' {
			b[i] = ' '
		}
	}
}

func clip(s string) string {
	if len(s) > 100 {
		s = s[:100] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
