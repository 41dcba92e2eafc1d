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
