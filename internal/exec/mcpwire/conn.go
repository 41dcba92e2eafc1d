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
)

// Options configure a connection. The zero value is usable.
type Options struct {
	// Name and Version identify the client. Default "ambit", "0".
	Name, Version string

	// Capabilities is the JSON object that the client declares. Default {}.
	Capabilities jsontext.Value

	// Legacy skips the probe for 2026-07-28 and sends initialize. Modern never falls back to initialize.
	Legacy, Modern bool

	// ProbeTimeout bounds the wait for the answer to server/discover. Default 2 s, over HTTP 5 s.
	ProbeTimeout time.Duration

	// MaxMessage bounds one message in bytes, in both directions. Default 32 MiB.
	MaxMessage int

	// MaxPending bounds the calls that wait at the same time. Default 1024.
	MaxPending int

	// MaxNoise bounds consecutive lines that are not messages before the connection fails. Default 1000;
	// negative allows none.
	MaxNoise int

	// OnNotification receives every notification that belongs to no call. It runs in the reading goroutine:
	// it must not block or wait for this connection.
	OnNotification func(Notification)

	// OnRequest answers the server's requests, except ping. Each request runs in its own goroutine; an
	// [*RPCError] is sent as it is. Without OnRequest the answer is "method not found".
	OnRequest func(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error)

	// OnNoise receives the beginning of every line of output that is not a message. It must not block.
	OnNoise func(line []byte)

	// OnGap reports that notifications may be lost: their session or stream was lost and opened again. With
	// forgotten, the server may have lost its state, too. It must not block.
	OnGap func(forgotten bool)
}

const (
	defaultMessage = 32 << 20
	defaultPending = 1024
	defaultNoise   = 1000
	maxNoiseLine   = 4 << 10
	sideJobs       = 32 // concurrent goroutines that answer the server or clean up
)

// Notification is a message from the server without an answer. The caller may keep Params, which are the
// server's bytes.
type Notification struct {
	Method string
	Params jsontext.Value
}

// Stats count what was left out, to be looked at when something seems odd.
type Stats struct {
	Stray   int64 // answers and progress for calls that are unknown or finished
	Noise   int64 // lines that were not messages
	Dropped int64 // notifications beyond a slow caller's mailbox, replies beyond the backlog
}

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

// Conn is a connection to one server. Its methods may be used concurrently.
type Conn struct {
	transport Transport
	http      *httpTransport // the same transport, if it is HTTP
	opts      Options
	ownMeta   []byte // the _meta members of every modern request

	ctx    context.Context // ends with the connection
	cancel context.CancelFunc
	done   chan struct{}

	ids      atomic.Int64
	server   atomic.Pointer[Server]
	headers  atomic.Pointer[map[string][]paramHeader]
	listener listener

	negotiation negotiation

	mu      sync.Mutex
	closed  error // the cause; nil while the connection is open
	pending map[int64]*pending
	pool    sync.Pool                     // of *pending
	serving map[string]context.CancelFunc // the server's requests being answered, by id

	side                  chan struct{} // slots for background jobs
	stray, noise, dropped atomic.Int64
}

// New makes a connection over a transport and owns the transport from then on. Call Negotiate next and
// Close last.
func New(t Transport, o Options) *Conn {
	c := &Conn{
		transport: t,
		opts:      o.withDefaults(),
		done:      make(chan struct{}),
		pending:   make(map[int64]*pending),
		serving:   make(map[string]context.CancelFunc),
		side:      make(chan struct{}, sideJobs),
	}
	c.http, _ = t.(*httpTransport)
	probe := 2 * time.Second
	if c.http != nil {
		probe = 5 * time.Second
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

// Close ends the connection and every call on it. It does not wait for the server, except to end an HTTP
// session, for at most a second.
func (c *Conn) Close() error {
	c.fail(nil)
	return nil
}

// Server returns the server's description of itself; nil before Negotiate.
func (c *Conn) Server() *Server { return c.server.Load() }

// Done is closed when the connection ends.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns an [ErrClosed] with its cause after the connection ended, or nil.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Stats returns the counts so far.
func (c *Conn) Stats() Stats {
	return Stats{Stray: c.stray.Load(), Noise: c.noise.Load(), Dropped: c.dropped.Load()}
}

// fail ends the connection, once, and every waiting call.
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
	close(c.done)
	c.transport.shut()
}

// pending is a waiting call. The goroutine that removes it from the table settles it, exactly once; the
// caller then returns it to the pool.
type pending struct {
	settled chan struct{} // holds one token when result and err are set
	result  jsontext.Value
	err     error
	box     *mailbox
}

func (p *pending) settle(result jsontext.Value, err error) {
	p.result, p.err = result, err
	p.settled <- struct{}{}
}

func (c *Conn) register(id int64, box *mailbox) (*pending, error) {
	p, _ := c.pool.Get().(*pending)
	if p == nil {
		p = &pending{settled: make(chan struct{}, 1)}
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

// remove takes a call out of the table; nil if it is not there.
func (c *Conn) remove(id int64) *pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pending[id]
	delete(c.pending, id)
	return p
}

// settle ends a call, unless it has ended already.
func (c *Conn) settle(id int64, err error) bool {
	p := c.remove(id)
	if p != nil {
		p.settle(nil, err)
	}
	return p != nil
}

// exchange sends a request and waits for its answer.
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
		// Another goroutine reads the stream, so that this one runs the callbacks, also for notifications
		// that arrive by another stream.
		go func() { c.sent(ctx, m, c.transport.send(ctx, m)) }()
	} else {
		c.sent(ctx, m, c.transport.send(ctx, m))
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
			// If another goroutine is settling the answer, it arrives in a moment.
			abandoned = nil
			c.settle(m.id, ctx.Err())
		}
	}
	result, err := p.result, p.err
	p.result, p.err, p.box = nil, nil, nil
	c.pool.Put(p)
	if box != nil {
		box.flush(callback)
	}
	if err == nil {
		return result, nil
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) && !errors.Is(err, ErrNotSent) && !m.quiet {
		c.sendCancelled(m)
	}
	return nil, fmt.Errorf("%s: %w", m.method, err)
}

// sent handles the result of sending a request. Over HTTP the answer has been delivered by then. A session
// that the server has lost is replaced, once. A request that can no longer be answered is settled here.
func (c *Conn) sent(ctx context.Context, m outgoing, err error) {
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

// sendAgain sends a request once more, in a new session. The server received it before, so no error here is
// [ErrNotSent].
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

// The origin of a message; a positive value is the id of the call whose stream it was.
const (
	sharedStream = 0  // one stream for all messages
	sideStream   = -1 // a stream without answers to calls
)

// deliver handles one message, or a batch, from the transport. With owned, the connection may keep the
// bytes. It reports whether the call of the stream has ended, and the error of a malformed message.
func (c *Conn) deliver(msg []byte, owned bool, stream int64) (answered bool, err error) {
	if !isBatch(msg) {
		return c.deliverOne(msg, owned, stream)
	}
	parts, problem := batch(msg)
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
	e, badText, problem := open(msg)
	switch {
	case problem != "":
		return false, malformed(problem, msg)
	case e.kind == kindResponse:
		return c.answer(msg, e, badText, owned, stream), nil
	case e.kind == kindOrphan && stream > 0:
		return c.settle(stream, rpcError(e.failure)), nil
	case e.kind == kindOrphan || badText:
		c.reportNoise(msg) // no call waits for it
	case e.kind == kindNotification:
		c.notify(e, stream)
	case e.kind == kindRequest:
		c.serve(e)
	}
	return false, nil
}

// reportNoise reports a line that is not a usable message.
func (c *Conn) reportNoise(line []byte) {
	c.noise.Add(1)
	if c.opts.OnNoise != nil {
		c.opts.OnNoise(bytes.Clone(line[:min(len(line), maxNoiseLine)]))
	}
}

func (c *Conn) answer(msg []byte, e envelope, badText, owned bool, stream int64) bool {
	id, ok := number(e.id)
	var p *pending
	if ok && stream != sideStream && (stream <= 0 || id == stream) {
		p = c.remove(id)
	}
	if p == nil {
		c.stray.Add(1)
		return false
	}
	switch {
	case badText:
		p.settle(nil, malformed("a string is not UTF-8", msg))
	case e.failure != nil:
		p.settle(nil, rpcError(e.failure))
	case owned:
		p.settle(e.result, nil)
	default:
		p.settle(bytes.Clone(e.result), nil)
	}
	return true
}
