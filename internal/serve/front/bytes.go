package front

import (
	"bytes"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// lookup follows names into nested objects of JSON that was checked.
func lookup(raw []byte, path ...string) jsontext.Value { return rawjson.Lookup(raw, path...) }

// text is the value of a JSON string.
func text(raw []byte) (string, bool) { return rawjson.Text(raw) }

// find returns where the value of a member of an object begins and ends; start is
// -1 if there is no such member.
func find(object []byte, name string) (start, end int) {
	if start, end = rawjson.Find(object, name); start == end {
		return -1, -1
	}
	return start, end
}

// set gives a member of an object another value, or makes it the first one. All
// other bytes stay as they are, and so does a value that is no object.
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

// fill makes a member of an object that has none of that name.
func fill(object []byte, name string, value jsontext.Value) jsontext.Value {
	if start, _ := find(object, name); start >= 0 {
		return object
	}
	return set(object, name, value)
}

// oneLine takes the line ends out of JSON, which has them only between its
// tokens.
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
