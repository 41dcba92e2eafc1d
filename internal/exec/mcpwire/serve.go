package mcpwire

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// The names of MCP methods.
const (
	methodDiscover    = "server/discover"
	methodInitialize  = "initialize"
	methodInitialized = "notifications/initialized"
	methodListTools   = "tools/list"
	methodCallTool    = "tools/call"
	methodListen      = "subscriptions/listen"
	methodListening   = "notifications/subscriptions/acknowledged"
	methodCancelled   = "notifications/cancelled"
	methodProgress    = "notifications/progress"
	methodMessage     = "notifications/message"
	methodPing        = "ping"

	// MethodToolsChanged is the method of the notification that a server sends when its list of tools has changed.
	MethodToolsChanged = "notifications/tools/list_changed"
)

// replyTimeout is the time limit for sending a message to which no answer is expected.
const replyTimeout = 5 * time.Second

// notify passes a notification to its call, or to [Options.OnNotification] if it belongs to no call. The progress token
// identifies the call of a progress notification. The stream identifies the call of a log message.
func (c *Conn) notify(e envelope, stream int64) {
	if size := len(e.method) + len(e.params); size > MaxNotification {
		c.dropped.Add(1)
		if c.opts.OnLargeNotification != nil {
			c.opts.OnLargeNotification(size)
		}
		return
	}
	switch e.method {
	case methodProgress:
		id, ok := tokenID(rawjson.Lookup(e.params, "progressToken"))
		if !ok {
			break
		}
		if !c.toCall(id, e) {
			c.stray.Add(1)
		}
		return
	case methodMessage:
		if stream > 0 && c.toCall(stream, e) {
			return
		}
	case methodListening:
		// The acknowledgement can also be for a subscription that the caller made with [Conn.Do].
		c.listener.handleAck(parseID(rawjson.Lookup(e.params, "_meta", "io.modelcontextprotocol/subscriptionId")))
		return
	case methodCancelled:
		c.cancelledByServer(rawjson.Lookup(e.params, "requestId"))
		return
	}
	if c.opts.OnNotification != nil {
		c.opts.OnNotification(Notification{Method: e.method, Params: bytes.Clone(e.params)})
	}
}

func (c *Conn) toCall(id int64, e envelope) bool {
	c.mu.Lock()
	p := c.pending[id]
	var box *mailbox
	if p != nil {
		box = p.box
	}
	c.mu.Unlock()
	if box == nil {
		return false
	}
	c.dropped.Add(box.put(e))
	return true
}

// cancelledByServer handles a notification that cancels a request. The argument is the id of the request. If the
// request is the listener's subscription, the subscription ends. If the server made the request, the context of the
// OnRequest callback is cancelled.
func (c *Conn) cancelledByServer(raw []byte) {
	if id, ok := parseID(raw); ok && c.listener.is(id) {
		c.settle(id, errUnlistened)
		return
	}
	c.mu.Lock()
	cancel := c.serving[string(raw)]
	c.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// serve answers a request from the server.
func (c *Conn) serve(e envelope) {
	if s := c.server.Load(); s != nil && s.Modern {
		c.stray.Add(1) // in revision 2026-07-28, servers do not send requests
		return
	}
	id := string(e.id)
	switch {
	case e.method == methodPing:
		c.reply(id, jsontext.Value("{}"), nil)
	case c.opts.OnRequest == nil:
		c.reply(id, nil, &RPCError{Code: -32601, Message: "method not found"})
	default:
		method, params := e.method, jsontext.Value(bytes.Clone(e.params))
		ctx, cancel := context.WithCancel(c.ctx)
		c.mu.Lock()
		if c.serving[id] != nil {
			c.mu.Unlock()
			cancel()
			c.stray.Add(1)
			return
		}
		c.serving[id] = cancel
		c.mu.Unlock()
		finish := func() {
			c.mu.Lock()
			delete(c.serving, id)
			c.mu.Unlock()
			cancel()
		}
		if !c.background(func() {
			defer finish()
			result, err := c.opts.OnRequest(ctx, method, params)
			if ctx.Err() == nil {
				c.replyNow(id, result, err)
			}
		}) {
			finish()
			c.reply(id, nil, &RPCError{Code: -32603, Message: "too many requests at once"})
		}
	}
}

// background runs a job in a new goroutine. It returns false if too many jobs are already running.
func (c *Conn) background(job func()) bool {
	select {
	case c.side <- struct{}{}:
	default:
		return false
	}
	go func() {
		defer func() { <-c.side }()
		defer c.contain(nil)
		job()
	}()
	return true
}

// sendJob runs a job that sends a message. Over stdio, the job runs immediately, because sending does not block. Over
// HTTP, it runs in the background.
func (c *Conn) sendJob(job func()) {
	if c.http == nil {
		job()
	} else if !c.background(job) {
		c.dropped.Add(1)
	}
}

func (c *Conn) reply(id string, result jsontext.Value, err error) {
	c.sendJob(func() { c.replyNow(id, result, err) })
}

func (c *Conn) replyNow(id string, result jsontext.Value, err error) {
	b := append(make([]byte, 0, 64+len(id)+len(result)), `{"jsonrpc":"2.0","id":`...)
	b = append(b, id...)
	if err == nil && rawjson.Valid(result) {
		b = append(append(b, `,"result":`...), result...)
	} else {
		b = appendError(append(b, `,"error":`...), err)
	}
	c.post(append(b, '}'))
}

func appendError(b []byte, err error) []byte {
	e, ok := errors.AsType[*RPCError](err)
	if !ok {
		e = &RPCError{Code: -32603, Message: "internal error"} // the cause of the error is not sent to the server
	}
	b = strconv.AppendInt(append(b, `{"code":`...), e.Code, 10)
	b = appendString(append(b, `,"message":`...), e.Message)
	if rawjson.Valid(e.Data) {
		b = append(append(b, `,"data":`...), e.Data...)
	}
	return append(b, '}')
}

// post sends a message to which no answer is expected. A message that cannot be sent is dropped.
func (c *Conn) post(body []byte) {
	m := outgoing{body: body, droppable: true}
	if s := c.server.Load(); s != nil {
		m.version = s.Version
	}
	ctx, cancel := context.WithTimeout(c.ctx, replyTimeout)
	defer cancel()
	if err := c.transport.send(ctx, m); err != nil {
		c.dropped.Add(1)
	}
}

// sendCancelled informs the server that the caller no longer waits. A modern server over HTTP needs no message, because
// it notices that the stream was closed.
func (c *Conn) sendCancelled(m outgoing) {
	b := append([]byte(nil), `{"jsonrpc":"2.0","method":"`+methodCancelled+`","params":{"requestId":`...)
	b = strconv.AppendInt(b, m.id, 10)
	b = append(b, `,"reason":"the caller is no longer waiting"}}`...)
	if c.http == nil || m.version != modernVersion {
		c.sendJob(func() { c.post(b) })
	}
}

// mailbox contains the notifications for a caller. When it is full, it drops the oldest notifications, because later
// progress is more useful.
type mailbox struct {
	arrived chan struct{}  // contains a value if notifications have arrived
	token   jsontext.Value // the caller's progress token, or nil

	mu    sync.Mutex
	notes []Notification
	size  int
}

const (
	maxNotes = 4096    // the maximum number of notifications
	maxMail  = 4 << 20 // the maximum total size of the params in bytes
)

// put adds a notification and returns how many older notifications were dropped.
func (b *mailbox) put(e envelope) (dropped int64) {
	n := Notification{Method: e.method, Params: bytes.Clone(e.params)}
	if b.token != nil && e.method == methodProgress {
		n.Params = withToken(e.params, b.token)
	}
	b.mu.Lock()
	b.notes = append(b.notes, n)
	b.size += len(n.Params)
	if len(b.notes) > maxNotes || b.size > maxMail {
		leaving := len(b.notes)/4 + 1 // drop a quarter at once, because each deletion shifts the rest
		for _, old := range b.notes[:leaving] {
			b.size -= len(old.Params)
		}
		b.notes = slices.Delete(b.notes, 0, leaving)
		dropped = int64(leaving)
	}
	b.mu.Unlock()
	signal(b.arrived)
	return dropped
}

// flush empties the mailbox and passes the notifications to the callback.
func (b *mailbox) flush(callback func(Notification)) {
	b.mu.Lock()
	notes := b.notes
	b.notes, b.size = nil, 0
	b.mu.Unlock()
	for _, n := range notes {
		callback(n)
	}
}

// withToken replaces the progress token in the params with the caller's token. All other bytes stay the same.
func withToken(params, token []byte) jsontext.Value {
	start, end := rawjson.Find(params, "progressToken")
	return slices.Concat(params[:start], token, params[end:])
}
