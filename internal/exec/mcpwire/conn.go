package mcpwire

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Options configures a connection. The zero value is usable.
type Options struct {
	// Name and Version identify the client to the server. The default name is "ambit", and the default version is "0".
	Name, Version string

	// Capabilities is a JSON object with the client's capabilities. The default is {}.
	Capabilities jsontext.Value

	// Legacy makes Negotiate send initialize at once, without probing for revision 2026-07-28.
	Legacy bool

	// Modern makes Negotiate fail instead of falling back to initialize.
	Modern bool

	// ProbeTimeout is the time limit for the answer to server/discover. The default is 2 seconds for stdio and 15
	// seconds for HTTP.
	ProbeTimeout time.Duration

	// MaxMessage is the maximum size of a message in bytes, in both directions. The default is 65 MiB.
	MaxMessage int

	// MaxPending is the maximum number of calls that can wait for an answer at the same time. The default is 1024.
	MaxPending int

	// MaxNoise is the maximum number of consecutive lines that are not messages. If the server sends more, the connection
	// is closed. The default is 1000. A negative value allows no such lines.
	MaxNoise int

	// OnNotification receives every notification that belongs to no call. It runs in the goroutine that reads from
	// the server, so it must not block. In particular, it must not make a call on this connection.
	OnNotification func(Notification)

	// OnLargeNotification is called for every notification that was dropped because it was larger than
	// [MaxNotification]. It must not block.
	OnLargeNotification func(size int)

	// OnRequest answers the server's requests, except ping. It runs in a new goroutine for each request. If it returns an
	// [*RPCError], this error is sent unchanged. If OnRequest is nil, requests are answered with "method not found".
	OnRequest func(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error)

	// OnNoise receives the beginning of every output line that is not a message. OnNoise must not block.
	OnNoise func(line []byte)

	// OnGap is called when a new session or stream has replaced a lost one. Notifications may have been missed in between.
	// The argument reports whether the server may also have lost its state. OnGap must not block.
	OnGap func(forgotten bool)

	// OnPanic receives the description of a panic that occurred while a message from the server was handled. The panic
	// closes only this connection. If OnPanic is nil, panics are not recovered.
	OnPanic func(description string)
}

// MaxNotification is the maximum size of a notification in bytes. A server can send notifications without a call, so
// the limits on calls do not apply to them.
const MaxNotification = 256 << 10

const (
	defaultMessage = 65 << 20 // a result of 64 MiB, and the message around it
	defaultPending = 1024
	defaultNoise   = 1000
	maxNoiseLine   = 4 << 10
	sideJobs       = 32 // the maximum number of background goroutines that reply to the server or clean up
)

// Notification is a message from the server that needs no answer. Params contains the original bytes and can be kept by
// the receiver.
type Notification struct {
	Method string
	Params jsontext.Value
}

// Transport carries messages between one connection and its server. [Stdio] and [HTTP] return a Transport.
type Transport interface {
	// start is called once, before any other method. From then on, the transport passes every incoming message to
	// [Conn.deliver]. It calls [Conn.fail] when the connection is lost.
	start(c *Conn)

	// send sends a message. The stdio transport takes ownership of the message's body. The HTTP transport returns
	// from send when the answer was delivered or can no longer arrive.
	send(ctx context.Context, m outgoing) error

	// close closes the transport without waiting for the server.
	close()
}

// outgoing is a message to the server, with the values for its HTTP headers.
type outgoing struct {
	body      []byte
	id        int64  // the id of a request; 0 for other messages
	method    string // the method of a request
	version   string // the protocol revision; empty for initialize
	name      string // the name of the requested tool or prompt, or the URI of the resource
	headers   []header
	quiet     bool // if the caller stops waiting, the server is not informed
	droppable bool // the message is dropped if the queue is full
}

type header struct{ name, value string }

// Conn is a connection to one server. All methods can be called concurrently.
type Conn struct {
	transport Transport
	http      *httpTransport // the transport if it is an HTTP transport, or nil
	opts      Options
	ownMeta   []byte // the _meta members of every modern request

	ctx    context.Context // a context that ends with the connection
	cancel context.CancelFunc

	ids      atomic.Int64
	server   atomic.Pointer[Server]
	headers  atomic.Pointer[map[string][]paramHeader]
	listener listener

	negotiation negotiation

	mu      sync.Mutex
	closed  error // an ErrClosed with the cause; nil while the connection is open
	pending map[int64]*pendingCall
	spare   sync.Pool                     // of *pendingCall
	serving map[string]context.CancelFunc // the cancel function of each running OnRequest callback, by request id

	side chan struct{} // contains one value for each running background job

	stray   atomic.Int64 // counts messages about unknown or finished calls and requests
	noise   atomic.Int64 // counts lines that were not usable messages
	dropped atomic.Int64 // counts notifications that were dropped for a slow caller, and replies that were not sent
}

// New creates a connection over a transport and takes ownership of the transport. Call Negotiate before making any
// calls, and Close at the end.
func New(t Transport, o Options) *Conn {
	c := &Conn{
		transport: t,
		opts:      o.withDefaults(),
		pending:   make(map[int64]*pendingCall),
		serving:   make(map[string]context.CancelFunc),
		side:      make(chan struct{}, sideJobs),
	}
	c.http, _ = t.(*httpTransport)
	probe := 2 * time.Second
	if c.http != nil {
		// A legacy HTTP server usually refuses the probe at once. A long time limit therefore costs little, and slow
		// modern servers need it.
		probe = 15 * time.Second
	}
	c.opts.ProbeTimeout = cmp.Or(c.opts.ProbeTimeout, probe)
	c.negotiation.turn = make(chan struct{}, 1)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.ownMeta = c.appendOwnMeta(nil, c.opts.Capabilities)
	t.start(c)
	return c
}

func (o Options) withDefaults() Options {
	o.Name, o.Version = cmp.Or(o.Name, "ambit"), cmp.Or(o.Version, "0")
	o.MaxMessage = cmp.Or(o.MaxMessage, defaultMessage)
	o.MaxPending = cmp.Or(o.MaxPending, defaultPending)
	o.MaxNoise = cmp.Or(o.MaxNoise, defaultNoise)
	if len(o.Capabilities) == 0 {
		o.Capabilities = jsontext.Value("{}")
	}
	return o
}

// Close closes the connection and fails all pending calls. It does not wait for the server, except that closing an HTTP
// session takes up to a second.
func (c *Conn) Close() error {
	c.fail(nil)
	return nil
}

// Server returns the server's description of itself, or nil if Negotiate has not succeeded yet.
func (c *Conn) Server() *Server { return c.server.Load() }

// Done returns a channel that is closed when the connection is closed.
func (c *Conn) Done() <-chan struct{} { return c.ctx.Done() }

// Err returns nil while the connection is open. After that, it returns an [ErrClosed] with the cause.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// fail closes the connection and fails every pending call. Only the first invocation has an effect.
func (c *Conn) fail(cause error) {
	c.mu.Lock()
	if c.closed != nil {
		c.mu.Unlock()
		return
	}
	closed := &closedError{cause}
	waiting := c.pending
	c.closed, c.pending = closed, nil
	c.mu.Unlock()

	c.cancel()
	for _, p := range waiting {
		p.settle(nil, closed)
	}
	c.transport.close()
}

// contain recovers a panic that a message from the server caused, and closes the connection. Code that handles messages
// must defer contain. If err is not nil, contain sets *err.
func (c *Conn) contain(err *error) {
	if c.opts.OnPanic == nil {
		return
	}
	if value := recover(); value != nil {
		c.opts.OnPanic(diag.Panic(value))
		c.fail(errPanic)
		if err != nil {
			*err = errPanic
		}
	}
}

// pendingCall is a call that waits for its answer. The goroutine that removes it from [Conn.pending] must settle it, so
// that every call is settled exactly once.
type pendingCall struct {
	settled chan struct{} // receives a value when the result and the error are set
	result  jsontext.Value
	err     error
	box     *mailbox
}

func (p *pendingCall) settle(result jsontext.Value, err error) {
	p.result, p.err = result, err
	p.settled <- struct{}{}
}

func (c *Conn) register(id int64, box *mailbox) (*pendingCall, error) {
	p, ok := c.spare.Get().(*pendingCall)
	if !ok {
		p = &pendingCall{settled: make(chan struct{}, 1)}
	}
	p.box = box
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed != nil:
		return nil, notSent(c.closed)
	case len(c.pending) >= c.opts.MaxPending:
		return nil, notSent(ErrTooManyPending)
	}
	c.pending[id] = p
	return p, nil
}

// remove removes a call from the table of pending calls and returns it. It returns nil if the call is not in the table.
func (c *Conn) remove(id int64) *pendingCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pending[id]
	delete(c.pending, id)
	return p
}

// settle completes a call with an error. It reports whether the call was still pending.
func (c *Conn) settle(id int64, err error) bool {
	p := c.remove(id)
	if p != nil {
		p.settle(nil, err)
	}
	return p != nil
}

// exchange sends a request and waits for its answer. If the request has a mailbox, exchange passes each notification in
// the mailbox to the callback.
func (c *Conn) exchange(
	ctx context.Context, m outgoing, box *mailbox, callback func(Notification),
) (jsontext.Value, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", m.method, notSent(err))
	}
	p, err := c.register(m.id, box)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.method, err)
	}
	if c.http != nil && box != nil {
		// Over HTTP, send returns only after the answer has arrived. Call send in another goroutine, because this goroutine
		// must pass notifications to the callback in the meantime.
		go func() { c.afterSend(ctx, m, c.transport.send(ctx, m)) }()
	} else {
		c.afterSend(ctx, m, c.transport.send(ctx, m))
	}
	var mail <-chan struct{}
	if box != nil {
		mail = box.arrived
	}
	abandoned := ctx.Done()
	for waiting := true; waiting; {
		select {
		case <-p.settled:
			waiting = false
		case <-mail:
			box.flush(callback)
		case <-abandoned:
			// If the call is no longer pending, another goroutine is about to settle it.
			abandoned = nil
			c.settle(m.id, ctx.Err())
		}
	}
	if box != nil {
		box.flush(callback)
	}
	result, err := p.result, p.err
	p.result, p.err, p.box = nil, nil, nil
	if c.spare.Put(p); err == nil {
		return result, nil
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) && !errors.Is(err, ErrNotSent) && !m.quiet {
		c.sendCancelled(m)
	}
	return nil, fmt.Errorf("%s: %w", m.method, err)
}

// afterSend handles the outcome of sending a request. If the server no longer knows the session, afterSend sends the
// request again in a new session. If sending failed, the call fails. An HTTP request also fails if send has returned
// without an answer.
func (c *Conn) afterSend(ctx context.Context, m outgoing, err error) {
	if lost, ok := err.(*sessionLost); ok && m.method != methodInitialize {
		err = c.sendAgain(ctx, m, lost.session)
	}
	if err == nil && c.http != nil {
		err = ErrNoAnswer
	}
	if err != nil {
		c.settle(m.id, err)
	}
}

// sendAgain sends a request again in a new session. The error never wraps [ErrNotSent], because the server has
// already received the request once.
func (c *Conn) sendAgain(ctx context.Context, m outgoing, session string) error {
	err := c.renew(ctx, session)
	if err == nil {
		if s := c.server.Load(); s != nil {
			m.version = s.Version
		}
		err = c.transport.send(ctx, m)
		if _, answered := errors.AsType[*HTTPError](err); err == nil || answered || errors.Is(err, ErrSessionLost) {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %v", ErrSessionLost, err)
}

// A stream number identifies the stream on which a message arrived. A positive number is the id of the call to which
// the stream belongs.
const (
	sharedStream = 0  // the single stream that carries all messages
	sideStream   = -1 // a stream that never carries answers to calls
)

// deliver handles a message or a batch of messages from the transport. If owned is true, the connection can keep the
// bytes. The first result reports whether one of the messages was the answer to a call. An error means that a message
// is malformed.
func (c *Conn) deliver(msg []byte, owned bool, stream int64) (answered bool, err error) {
	defer c.contain(&err)
	if !isBatch(msg) {
		return c.deliverOne(msg, owned, stream)
	}
	parts, problem := splitBatch(msg)
	if problem != "" {
		return false, malformed(problem, msg)
	}
	for _, part := range parts {
		done, e := c.deliverOne(part, owned, stream)
		if answered = answered || done; e != nil {
			err = e
		}
	}
	return answered, err
}

func (c *Conn) deliverOne(msg []byte, owned bool, stream int64) (answered bool, err error) {
	e, badText, problem := readEnvelope(msg)
	switch {
	case problem != "":
		return false, malformed(problem, msg)
	case e.kind == kindResponse:
		return c.answer(msg, e, badText, owned, stream), nil
	case e.kind == kindOrphan && stream > 0:
		return c.settle(stream, rpcError(e.failure)), nil
	case e.kind == kindOrphan || badText:
		c.reportNoise(msg) // no call is waiting for this message
	case e.kind == kindNotification:
		c.notify(e, stream)
	case e.kind == kindRequest:
		c.serve(e)
	}
	return false, nil
}

// reportNoise counts and reports a line that is not a usable message.
func (c *Conn) reportNoise(line []byte) {
	c.noise.Add(1)
	if c.opts.OnNoise != nil {
		c.opts.OnNoise(bytes.Clone(line[:min(len(line), maxNoiseLine)]))
	}
}

func (c *Conn) answer(msg []byte, e envelope, badText, owned bool, stream int64) bool {
	// Read the error before the call is removed, because a panic after the removal would leave the call unsettled.
	var failure error
	if badText {
		failure = malformed("a string is not UTF-8", msg)
	} else if e.failure != nil {
		failure = rpcError(e.failure)
	}
	id, ok := parseID(e.id)
	var p *pendingCall
	if ok && stream != sideStream && (stream <= 0 || id == stream) {
		p = c.remove(id)
	}
	if p == nil {
		c.stray.Add(1)
		return false
	}
	switch {
	case failure != nil:
		p.settle(nil, failure)
	case owned:
		p.settle(e.result, nil)
	default:
		p.settle(bytes.Clone(e.result), nil)
	}
	return true
}
