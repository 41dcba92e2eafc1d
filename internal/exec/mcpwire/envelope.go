package mcpwire

import (
	"bytes"
	"strconv"

	"github.com/ambit-run/ambit/internal/gateway/rawjson"
	"github.com/go-json-experiment/json/jsontext"
)

type kind uint8

const (
	kindRequest kind = iota + 1
	kindNotification
	kindResponse
	kindOrphan // an error that answers no particular request
)

// envelope is the outer object of a message. Its slices are parts of the message.
// Params, result and error were checked to be JSON and are otherwise unread.
type envelope struct {
	kind                    kind
	method                  string
	id                      []byte
	params, result, failure []byte
}

// open reads the envelope of one message, in one pass and without allocating. The
// problem is empty for a JSON-RPC message; badText reports that a string in the
// message is not UTF-8.
func open(msg []byte) (e envelope, badText bool, problem string) {
	var version, method []byte
	if !bytes.HasPrefix(bytes.TrimLeft(msg, " \t\r\n"), []byte("{")) {
		return e, false, "not an object"
	}
	w := rawjson.Walk(msg)
	for name, value, ok := w.Member(); ok; name, value, ok = w.Member() {
		var field *[]byte
		switch {
		case rawjson.Named(name, "jsonrpc"):
			field = &version
		case rawjson.Named(name, "id"):
			field = &e.id
		case rawjson.Named(name, "method"):
			field = &method
		case rawjson.Named(name, "params"):
			field = &e.params
		case rawjson.Named(name, "result"):
			field = &e.result
		case rawjson.Named(name, "error"):
			field = &e.failure
		default:
			continue
		}
		if *field != nil {
			return e, false, "a member appears twice"
		}
		*field = value
	}
	if problem := w.Problem(); problem != "" {
		return e, false, problem
	}
	if string(version) != `"2.0"` {
		return e, false, "not JSON-RPC 2.0"
	}
	return e, w.BadUTF8(), e.classify(method)
}

// classify sets the kind of the message. It accepts an answer with both a result
// and an error if one of them is null.
func (e *envelope) classify(method []byte) (problem string) {
	if string(e.failure) == "null" && e.result != nil {
		e.failure = nil
	}
	if e.failure != nil && string(e.result) == "null" {
		e.result = nil
	}
	hasID := e.id != nil && (e.id[0] == '"' || e.id[0] == '-' || isDigit(e.id[0]))
	noID := e.id == nil || string(e.id) == "null"
	switch {
	case method != nil:
		var ok bool
		if e.method, ok = methodName(method); !ok {
			return "the method is not a name"
		}
		if e.result != nil || e.failure != nil {
			return "a request and an answer at once"
		}
		switch {
		case hasID:
			e.kind = kindRequest
		case e.id == nil:
			e.kind = kindNotification
		default:
			return "the id is neither a string nor a number"
		}
	case e.result != nil && e.failure != nil:
		return "a result and an error at once"
	case hasID && (e.result != nil || e.failure != nil && e.failure[0] == '{'):
		e.kind = kindResponse
	case noID && e.failure != nil && e.failure[0] == '{':
		e.kind = kindOrphan
	default:
		return "neither a request nor an answer"
	}
	return ""
}

// methodName turns the usual names into strings without allocating.
func methodName(raw []byte) (string, bool) {
	switch string(raw) {
	case `"notifications/progress"`:
		return methodProgress, true
	case `"notifications/message"`:
		return methodMessage, true
	case `"notifications/tools/list_changed"`:
		return MethodToolsChanged, true
	case `"ping"`:
		return methodPing, true
	}
	return rawjson.Text(raw)
}

// number reads an id or a progress token as a number that the client may have
// assigned.
func number(raw []byte) (int64, bool) {
	n, err := strconv.ParseUint(string(raw), 10, 63)
	return int64(n), err == nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isBatch reports whether the message is an array: 2025-03-26 sends some.
func isBatch(msg []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(msg, " \t\r\n"), []byte("["))
}

// batch splits an array of messages. Nothing comes out unless all of it is JSON.
func batch(msg []byte) (elements [][]byte, problem string) {
	w := rawjson.Walk(msg)
	for e, ok := w.Element(); ok; e, ok = w.Element() {
		elements = append(elements, e)
	}
	switch {
	case w.Problem() != "":
		return nil, w.Problem()
	case len(elements) == 0:
		return nil, "an empty batch"
	}
	return elements, ""
}

// looksLikeMessage reports whether a line is a broken message rather than noise.
func looksLikeMessage(line []byte) bool {
	line = bytes.TrimLeft(line, " \t\r\n")
	return len(line) > 0 && (line[0] == '{' || line[0] == '[') && bytes.Contains(line, []byte(`"jsonrpc"`))
}

// Message is one JSON-RPC message. Its parts are slices of it, as written.
type Message struct {
	Method string
	ID     jsontext.Value // nil in a notification
	Params jsontext.Value
	Result jsontext.Value
	Error  jsontext.Value
}

// ReadMessage reads the envelope of one message with the checks of [Conn]. Problem describes an invalid
// message.
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

// ReadError reads an error object; nil if it is not one.
func ReadError(raw []byte) *RPCError {
	e, _ := rpcError(raw).(*RPCError)
	return e
}

// rpcError reads an error object.
func rpcError(raw []byte) error {
	e := &RPCError{Raw: bytes.Clone(raw)}
	var code, message, data []byte
	w := rawjson.Walk(e.Raw)
	for name, value, ok := w.Member(); ok; name, value, ok = w.Member() {
		switch {
		case rawjson.Named(name, "code"):
			code = value
		case rawjson.Named(name, "message"):
			message = value
		case rawjson.Named(name, "data"):
			data = value
		}
	}
	var err error
	if e.Code, err = strconv.ParseInt(string(code), 10, 64); err != nil {
		return malformed("an error without a code", raw)
	}
	e.Message, _ = rawjson.Text(message)
	e.Data = data
	return e
}
