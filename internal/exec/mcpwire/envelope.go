package mcpwire

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/ambit-run/ambit/internal/gateway/rawjson"
	"github.com/go-json-experiment/json/jsontext"
)

type kind uint8

const (
	kindRequest kind = iota + 1
	kindNotification
	kindResponse
	kindOrphan // an error that does not answer a specific request
)

// envelope contains the members of a message that JSON-RPC defines. All slices point into the message. The fields
// params, result and failure are valid JSON, but they are not parsed further.
type envelope struct {
	kind                    kind
	method                  string
	id                      []byte
	params, result, failure []byte
}

// readEnvelope reads the envelope of one message in one pass, without allocating memory. The second result reports
// whether a string in the message contains invalid UTF-8. The third result is the reason why the message is not valid
// JSON-RPC, or is empty.
func readEnvelope(msg []byte) (e envelope, badText bool, problem string) {
	var version, method []byte
	if !bytes.HasPrefix(bytes.TrimLeft(msg, " \t\r\n"), []byte("{")) {
		return e, false, "it is not a JSON object"
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
		return e, false, "the member \"jsonrpc\" is not \"2.0\""
	}
	return e, w.BadUTF8(), e.classify(method)
}

// classify sets the kind of a message. It ignores a null result next to an error, and a null error next to a result.
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
		if e.method, ok = rawjson.Text(method); !ok {
			return "the method is not a string"
		}
		if e.result != nil || e.failure != nil {
			return "it is a request and a response at once"
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
		return "it has a result and an error at once"
	case hasID && (e.result != nil || e.failure != nil && e.failure[0] == '{'):
		e.kind = kindResponse
	case noID && e.failure != nil && e.failure[0] == '{':
		e.kind = kindOrphan
	default:
		return "it is neither a request nor a response"
	}
	return ""
}

// parseID parses an id that this client assigned. These ids are non-negative integers.
func parseID(raw []byte) (int64, bool) {
	n, err := strconv.ParseUint(string(raw), 10, 63)
	return int64(n), err == nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isBatch reports whether a message is a batch. Revision 2025-03-26 allows batches.
func isBatch(msg []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(msg, " \t\r\n"), []byte("["))
}

// splitBatch splits an array of messages. It returns no messages if the array is not valid JSON.
func splitBatch(msg []byte) (elements [][]byte, problem string) {
	w := rawjson.Walk(msg)
	for e, ok := w.Element(); ok; e, ok = w.Element() {
		elements = append(elements, e)
	}
	switch {
	case w.Problem() != "":
		return nil, w.Problem()
	case len(elements) == 0:
		return nil, "it is an empty batch"
	}
	return elements, ""
}

// looksLikeMessage reports whether an invalid line seems to be a damaged message, rather than some other output of the
// server.
func looksLikeMessage(line []byte) bool {
	line = bytes.TrimLeft(line, " \t\r\n")
	return len(line) > 0 && (line[0] == '{' || line[0] == '[') && bytes.Contains(line, []byte(`"jsonrpc"`))
}

// Message is one JSON-RPC message. The raw values point into the original message.
type Message struct {
	Method string
	ID     jsontext.Value // nil in a notification
	Params jsontext.Value
	Result jsontext.Value
	Error  jsontext.Value
}

// ReadMessage reads the envelope of one message and makes the same checks as [Conn]. The second result is the
// reason why the message is invalid, or is empty.
func ReadMessage(raw []byte) (m Message, problem string) {
	e, badText, problem := readEnvelope(raw)
	switch {
	case problem != "":
		return Message{}, problem
	case badText:
		return Message{}, "a string is not UTF-8"
	}
	return Message{Method: e.method, ID: e.id, Params: e.params, Result: e.result, Error: e.failure}, ""
}

// ReadError reads a JSON-RPC error object. It returns nil if the object is invalid.
func ReadError(raw []byte) *RPCError {
	e, _ := rpcError(raw).(*RPCError)
	return e
}

// rpcError converts a JSON-RPC error object to an [*RPCError]. An invalid object becomes a [*MalformedError].
func rpcError(raw []byte) error {
	e := &RPCError{Raw: bytes.Clone(raw)}
	var err error
	if e.Code, err = strconv.ParseInt(string(rawjson.Lookup(e.Raw, "code")), 10, 64); err != nil {
		return malformed("the error object has no code", raw)
	}
	e.Message, _ = rawjson.Text(rawjson.Lookup(e.Raw, "message"))
	e.Data = rawjson.Lookup(e.Raw, "data")
	return e
}

// pick returns the values of an object's members with the given names. values[i] is the value of the member names[i],
// or nil if there is no such member. The second result reports whether one of these members appears more than once.
func pick(object []byte, names ...string) (values [][]byte, twice bool) {
	values = make([][]byte, len(names))
	w := rawjson.Walk(object)
	for k, v, ok := w.Member(); ok; k, v, ok = w.Member() {
		if i := slices.IndexFunc(names, func(name string) bool { return rawjson.Named(k, name) }); i >= 0 {
			twice = twice || values[i] != nil
			values[i] = v
		}
	}
	return values, twice
}
