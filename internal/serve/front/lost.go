package front

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// Unanswered is a client's request that was passed to another process, which has not answered yet.
type Unanswered struct {
	id           jsontext.Value
	call, modern bool
}

// NewUnanswered returns an Unanswered for the request in a message. The message must have a method and an id.
func NewUnanswered(m mcpwire.Message) Unanswered {
	r := newRequest(m)
	return Unanswered{bytes.Clone(m.ID), m.Method == "tools/call", r.modern}
}

// Answer returns a line that answers the request with a refusal. The answer to a call is a result that the model reads.
func (u Unanswered) Answer(refusal *call.Refusal) []byte {
	var m message
	if u.call {
		result := map[string]any{
			"isError": true,
			"content": []any{map[string]any{"type": "text", "text": explain(refusal)}},
			"_meta":   map[string]any{"ambit/error": refusalObject(refusal)}, // the tool's outputSchema is unknown
		}
		if u.modern {
			result["resultType"] = "complete"
		}
		m = answer(u.id, marshal(result), nil)
	} else {
		m = answer(u.id, nil, &rpcError{Code: internalError, Message: explain(refusal), Data: refusalData(refusal)})
	}
	return append(bytes.Join(m, nil), '\n')
}
