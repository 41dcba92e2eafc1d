package call

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"
)

// Asker asks the client something on behalf of a server: elicitation/create,
// sampling/createMessage or roots/list. Params and result pass as they are.
type Asker interface {
	Ask(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error)
}

// CapabilityFor is the capability that a client declares if it takes requests of
// this method from a server; empty for a method that servers do not ask for.
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

// Client is the other end of the connection that a call came by. A server's own
// questions reach a client only by an upstream connection that it alone owns.
type Client struct {
	// Key names the client for as long as it is connected. Upstream connections
	// that it owns are held under this name.
	Key string
	// Capabilities is the JSON object of what the client can be asked, as far as
	// the operator lets servers ask it. Nil or {} is nothing.
	Capabilities jsontext.Value
	// Asker reaches the client; nil if it cannot be asked while a call runs.
	Asker Asker
	// Notify hands on what a server says by a connection that the client owns;
	// nil if the client does not listen.
	Notify func(method string, params jsontext.Value)
}

// Forward is a request for something that no manifest declares: resources,
// prompts and completions of a server, which the operator has exposed. It goes
// to the server, and its answer comes back, as it is.
type Forward struct {
	// ID names the request: 32 hex digits, as that of a [Call].
	ID string
	// Server is the alias of the server that it goes to.
	Server string
	// Method is the protocol's: resources/read, prompts/get, …
	Method string
	// Params is a JSON object, or nil.
	Params jsontext.Value
	// Principal is who asks.
	Principal string
	// Client is the connection that it came by; nil if there is none.
	Client *Client
	// OnNotify gets progress and log messages meanwhile.
	OnNotify func(method string, params jsontext.Value)
}

// Forwarder takes a request to a server. The gateway is one, to its front; the
// binding behind it is one, to the gateway. An error is a [*Refusal] of ours or
// an [*Answer] of the server's.
type Forwarder interface {
	Forward(ctx context.Context, f *Forward) (jsontext.Value, error)
}

// Answer is an error with which a server answered, as it wrote it.
type Answer struct {
	// Raw is the whole JSON-RPC error object.
	Raw jsontext.Value
}

func (a *Answer) Error() string { return "the server answered with an error" }
