package call

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"
)

// Asker sends a server's request to the client: elicitation/create,
// sampling/createMessage or roots/list. Params and result are not changed.
type Asker interface {
	Ask(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error)
}

// CapabilityFor returns the capability of a client that accepts requests of this method
// from a server; empty for other methods.
func CapabilityFor(method string) string {
	switch method {
	case "elicitation/create":
		return "elicitation"
	case "sampling/createMessage":
		return "sampling"
	case "roots/list":
		return "roots"
	}
	return ""
}

// Client is the client of the connection that a call came from. A server's requests reach
// a client only over an upstream connection that the client alone owns.
type Client struct {
	// Key identifies the client while it is connected. Its upstream connections are
	// registered under this key.
	Key string
	// Capabilities is the JSON object of the client's capabilities that the operator
	// lets servers use. Nil or {} means none.
	Capabilities jsontext.Value
	// Asker sends requests to the client; nil if it accepts none during a call.
	Asker Asker
	// Notify forwards notifications of a server whose connection the client owns; nil if
	// the client does not listen.
	Notify func(method string, params jsontext.Value)
}

// Forward is a request that no manifest declares and that the operator exposed:
// resources, prompts and completions of a server. It and its answer are forwarded
// unchanged.
type Forward struct {
	// ID identifies the request: 32 hex digits, like that of a [Call].
	ID string
	// Server is the alias of the server.
	Server string
	// Method is the method of the protocol: resources/read, prompts/get, …
	Method string
	// Params is a JSON object, or nil.
	Params jsontext.Value
	// Principal is the caller.
	Principal string
	// Client is the client that sent it; nil if there is none.
	Client *Client
	// OnNotify receives progress and log messages until the answer.
	OnNotify func(method string, params jsontext.Value)
}

// Forwarder forwards a request to a server. The gateway is a Forwarder for the front, and
// its binding is one for the gateway. An error is a [*Refusal] of ambit or an [*Answer]
// of the server.
type Forwarder interface {
	Forward(ctx context.Context, f *Forward) (jsontext.Value, error)
}

// Answer is an error that a server answered with, unchanged.
type Answer struct {
	// Raw is the whole JSON-RPC error object.
	Raw jsontext.Value
}

func (a *Answer) Error() string { return "the server answered with an error" }
