package front

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// Keys of _meta that the front reads.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
	metaLogLevel     = "io.modelcontextprotocol/logLevel"
	metaSkill        = "ambit/skill"
)

// meta is the part of a request's _meta that the front reads. Servers get all of it.
type meta struct {
	raw          jsontext.Value // all of _meta, or nil
	version      string
	capabilities jsontext.Value // an object, or nil
	token        jsontext.Value // the client's progress token
	logs         bool           // the client asks for log messages
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

// parse reads one message.
func parse(raw []byte) (mcpwire.Message, *rpcError) {
	m, problem := mcpwire.ReadMessage(raw)
	switch {
	case problem == "":
		return m, nil
	case !rawjson.Valid(raw):
		return m, &rpcError{Code: parseError, Message: "the message is not JSON"}
	}
	return m, &rpcError{Code: invalidRequest, Message: "not a JSON-RPC 2.0 message: " + problem}
}

func newRequest(m mcpwire.Message) *request {
	r := &request{Message: m, meta: readMeta(m.Params)}
	r.modern = r.meta.version != ""
	return r
}

// encode joins the parts of one message.
func encode(parts ...[]byte) []byte {
	n := 1
	for _, p := range parts {
		n += len(p)
	}
	b := make([]byte, 0, n+1) // a line end may follow
	for _, p := range parts {
		b = append(b, p...)
	}
	oneLine(b)
	return append(b, '}')
}

// notification encodes a notification.
func notification(method string, params jsontext.Value) []byte {
	if len(params) == 0 {
		params = jsontext.Value("{}")
	}
	return encode([]byte(`{"jsonrpc":"2.0","method":`), marshal(method), []byte(`,"params":`), params)
}

// answer encodes the answer to a request; without an id, to an invalid message.
func answer(id, result jsontext.Value, err *rpcError) []byte {
	if id == nil {
		id = jsontext.Value("null")
	}
	if err != nil {
		return encode([]byte(`{"jsonrpc":"2.0","id":`), id, []byte(`,"error":`), err.json())
	}
	return encode([]byte(`{"jsonrpc":"2.0","id":`), id, []byte(`,"result":`), result)
}
