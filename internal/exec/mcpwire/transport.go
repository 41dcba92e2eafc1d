package mcpwire

import "context"

// Transport carries messages to and from one server, for one connection. [Stdio]
// and [HTTP] return one.
type Transport interface {
	// start is called once, first. The transport then passes every incoming
	// message to [Conn.deliver] and the end of the connection to [Conn.fail].
	start(c *Conn)

	// send sends a message. Stdio does not use the message after send has
	// returned. Over HTTP, send returns when the answer to a request has been
	// delivered or can no longer arrive.
	send(ctx context.Context, m outgoing) error

	// shut ends the transport without waiting for the server.
	shut()
}

// outgoing is a message to the server, with the values of its HTTP header fields.
type outgoing struct {
	body      []byte
	id        int64  // 0 if it is not a request
	method    string // of a request
	version   string // the protocol revision; empty for initialize
	name      string // of the tool, prompt or resource
	headers   []header
	quiet     bool // the server is not notified when the call is abandoned
	droppable bool // dropped instead of waiting for space in the queue
}

type header struct{ name, value string }
