package front

import (
	"bytes"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// These are the _meta keys that the front uses.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
	metaLogLevel     = "io.modelcontextprotocol/logLevel"
	metaSkill        = "ambit/skill"
)

// meta contains the parts of a request's _meta that the front uses.
type meta struct {
	raw          jsontext.Value // the whole _meta object, or nil
	version      string
	capabilities jsontext.Value // the client's capabilities, a JSON object; nil if absent
	token        jsontext.Value // the client's progress token
	logs         bool           // whether the client asks for log messages
	skill        jsontext.Value
}

func readMeta(params jsontext.Value) (m meta) {
	m.raw = lookup(params, "_meta")
	rawjson.Members(m.raw, func(name string, value jsontext.Value) {
		switch name {
		case metaVersion:
			m.version, _ = text(value)
		case metaCapabilities:
			if value[0] == '{' {
				m.capabilities = value
			}
		case "progressToken":
			m.token = value
		case metaLogLevel:
			m.logs = true
		case metaSkill:
			m.skill = value
		}
	})
	return m
}

func parse(raw []byte) (mcpwire.Message, *rpcError) {
	m, problem := mcpwire.ReadMessage(raw)
	switch {
	case problem == "":
		return m, nil
	case !rawjson.Valid(raw):
		return m, &rpcError{Code: parseError, Message: "the message is not JSON"}
	}
	return m, &rpcError{Code: invalidRequest, Message: "the message is not valid JSON-RPC 2.0: " + problem}
}

func newRequest(m mcpwire.Message) *request {
	r := &request{Message: m, meta: readMeta(m.Params)}
	r.modern = r.meta.version != ""
	return r
}

// message is an encoded JSON-RPC message in one line. A large result is a part of its own, because it is not copied.
type message [][]byte

func (m message) size() (n int) {
	for _, part := range m {
		n += len(part)
	}
	return n
}

// write writes the message to w.
func (m message) write(w io.Writer) error {
	for _, part := range m {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// maxCopied is the maximum size of a part that encode copies.
const maxCopied = 256 << 10

// encode joins the parts of a JSON object and adds the closing brace.
func encode(parts ...[]byte) message {
	parts = append(parts, []byte("}"))
	large := slices.IndexFunc(parts, func(part []byte) bool {
		return len(part) > maxCopied && bytes.IndexByte(part, '\n') < 0 && bytes.IndexByte(part, '\r') < 0
	})
	if large < 0 {
		return message{join(parts)}
	}
	return message{join(parts[:large]), parts[large], join(parts[large+1:])}
}

func join(parts [][]byte) []byte {
	b := slices.Concat(parts...)
	mcpwire.OneLine(b)
	return b
}

func notification(method string, params jsontext.Value) message {
	if len(params) == 0 {
		params = jsontext.Value("{}")
	}
	return encode([]byte(`{"jsonrpc":"2.0","method":`), marshal(method), []byte(`,"params":`), params)
}

// answer encodes the answer to the request with this id. The id is nil if the request was not a valid message.
func answer(id, result jsontext.Value, err *rpcError) message {
	if id == nil {
		id = jsontext.Value("null")
	}
	if err != nil {
		return encode([]byte(`{"jsonrpc":"2.0","id":`), id, []byte(`,"error":`), err.json())
	}
	return encode([]byte(`{"jsonrpc":"2.0","id":`), id, []byte(`,"result":`), result)
}
