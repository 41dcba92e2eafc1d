package mcpwire

import "context"

// Transport carries messages to and from one server. [Stdio] and [HTTP] make
// one; it serves one connection.
type Transport interface {
	// start is called once, before anything else. From here on every message
	// that comes in goes to [Conn.deliver], and the end of the line to
	// [Conn.fail].
	start(c *Conn)

	// send takes a message on its way. The message is not used after send has
	// returned, except by HTTP. Over HTTP, send returns when the answer to a
	// request has been delivered, or cannot come any more.
	send(ctx context.Context, m outgoing) error

	// shut ends everything, without waiting for the server.
	shut()
}

// outgoing is a message to the server, with what HTTP puts into headers.
type outgoing struct {
	body      []byte
	id        int64  // 0 if it is no request
	method    string // of a request
	version   string // the protocol revision; empty for initialize
	name      string // of the tool, prompt or resource
	headers   []header
	quiet     bool // its end is not announced to the server
	droppable bool // rather dropped than waited for
}

type header struct{ name, value string }
