package front

import (
	"bytes"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// find tells where the value of a member of an object stands; start is -1 if
// there is no such member.
func find(object []byte, name string) (start, end int) {
	d := jsontext.NewDecoder(bytes.NewBuffer(object), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return -1, -1
	}
	for d.PeekKind() == '"' {
		key, err := d.ReadToken()
		if err != nil {
			break
		}
		found := key.String() == name
		value, err := d.ReadValue()
		if err != nil {
			break
		}
		if found {
			end := int(d.InputOffset())
			return end - len(value), end
		}
	}
	return -1, -1
}

// set gives a member of an object another value, or makes it the first one. All
// other bytes stay as they are. What is no object stays as it is.
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
