package mcpwire

import (
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Message is one JSON-RPC message. Its parts are slices of it, as written.
type Message struct {
	Method string
	ID     jsontext.Value // nil in a notification
	Params jsontext.Value
	Result jsontext.Value
	Error  jsontext.Value
}

// ReadMessage reads the outside of one message. It insists on what [Conn]
// insists on, and says in problem what is wrong.
func ReadMessage(raw []byte) (m Message, problem string) {
	e, badText, problem := open(raw)
	switch {
	case problem != "":
		return Message{}, problem
	case badText:
		return Message{}, "a string is not UTF-8"
	}
	return Message{Method: e.method, ID: e.id, Params: e.params, Result: e.result, Error: e.failure}, ""
}

// ReadError reads an error object, nil if it is none.
func ReadError(raw []byte) *RPCError {
	e, _ := rpcError(raw).(*RPCError)
	return e
}

// Valid reports whether data is one JSON value in UTF-8 with nothing after it.
func Valid(data []byte) bool { return valid(data) }

// Twice reports whether members of an object that was checked have the same name,
// so that its readers may differ in what it says. It does not look inside of the members.
func Twice(object []byte) bool { return twice(object) }

// Lookup follows names into nested objects of JSON that was checked; nil if
// there is no such member.
func Lookup(raw []byte, path ...string) []byte { return lookup(raw, path...) }

// Find tells where the value of a member stands in an object that was checked;
// start and end are the same if there is no such member.
func Find(object []byte, name string) (start, end int) {
	i := len(object) - len(trim(object))
	if i > 0 { // white space at an end: only that in front moves anything
		i = (&scanner{data: object}).space(0)
	}
	start, end = find(object[i:], name)
	return start + i, end + i
}

// Members calls visit for every member of an object that was checked: with its
// name as text, and its value as written.
func Members(raw []byte, visit func(name string, value jsontext.Value)) {
	if len(raw) == 0 || raw[0] != '{' {
		return
	}
	w := walk(raw)
	for k, v, ok := w.member(); ok; k, v, ok = w.member() {
		name, isText := text(k)
		if isText {
			visit(name, v)
		}
	}
}

// Elements calls visit for every element of an array that was checked.
func Elements(raw []byte, visit func(value jsontext.Value)) {
	if len(raw) == 0 || raw[0] != '[' {
		return
	}
	w := walk(raw)
	for e, ok := w.element(); ok; e, ok = w.element() {
		visit(e)
	}
}

// Text is the value of a JSON string; ok is false for anything else.
func Text(raw []byte) (value string, ok bool) { return text(raw) }

// ReadHeader reads a header value of 2026-07-28: as it is, or in base64.
func ReadHeader(value string) (text string, ok bool) {
	value = strings.Trim(value, " \t")
	if !strings.HasPrefix(value, encodedPrefix) || !strings.HasSuffix(value, encodedSuffix) ||
		len(value) < len(encodedPrefix)+len(encodedSuffix) {
		return value, printable(value)
	}
	b, err := base64.StdEncoding.Strict().DecodeString(value[len(encodedPrefix) : len(value)-len(encodedSuffix)])
	return string(b), err == nil
}

// HeaderMismatch says which Mcp-Param header of a request differs from the
// argument that the tool's input schema wants in it; empty if none does.
func HeaderMismatch(h http.Header, schema, arguments []byte) string {
	wanted, err := paramHeaders(schema)
	if err != nil {
		return "" // such a tool is not served
	}
	for _, p := range wanted {
		got, sent := h[http.CanonicalHeaderKey(p.name)]
		want, set := p.fromArguments(arguments)
		switch {
		case !set && !sent:
			continue
		case set && !sent:
			return p.name + " is missing, and its argument is there"
		case !set:
			return p.name + " is there, and its argument is missing"
		}
		text, ok := ReadHeader(got[0])
		expected, _ := ReadHeader(want.value)
		if len(got) != 1 || !ok || text != expected {
			return p.name + " does not match its argument"
		}
	}
	return ""
}
