package mcpwire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Options say how a connection behaves. The zero value is good.
type Options struct {
	// Name and Version are what we call ourselves. Default "ambit", "0".
	Name, Version string

	// Capabilities is the JSON object that we declare. Default {}.
	Capabilities jsontext.Value

	// Legacy skips the question for the 2026-07-28 protocol and goes straight
	// to initialize. Modern never falls back to it.
	Legacy, Modern bool

	// ProbeTimeout is how long a server may think about server/discover before
	// it counts as one that does not know it. Default 2 s, over HTTP 5 s.
	ProbeTimeout time.Duration

	// MaxMessage bounds one message in bytes, either way. Default 32 MiB.
	MaxMessage int

	// MaxPending bounds the calls that wait at the same time. Default 1024.
	MaxPending int

	// MaxNoise bounds the lines in a row that are no messages before the
	// connection fails. Default 1000; negative means none is allowed.
	MaxNoise int

	// OnNotification gets every notification that belongs to no call. It runs
	// where messages are read: it must not block, nor wait for this connection.
	OnNotification func(Notification)

	// OnRequest answers the server's own requests, except ping. Each runs in its
	// own goroutine; an [*RPCError] is sent as it is. Without it they are
	// answered with "method not found".
	OnRequest func(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error)

	// OnNoise gets the beginning of every line of output that is no message.
	// It must not block.
	OnNoise func(line []byte)

	// OnGap is told that notifications may have been missed: the session or the
	// stream that brings them was lost and made again. With forgotten, the server
	// may not know any more what it was asked before. It must not block.
	OnGap func(forgotten bool)
}

const (
	defaultMessage = 32 << 20
	defaultPending = 1024
	defaultNoise   = 1000
	maxNoiseLine   = 4 << 10
	sideJobs       = 32 // goroutines that answer the server or tidy up, at once
)

// Notification is a message from the server that wants no answer. Params are
// the server's own bytes, free to keep.
type Notification struct {
	Method string
	Params jsontext.Value
}

// Stats count what was left out, to be looked at when something seems odd.
type Stats struct {
	Stray   int64 // answers and progress for calls that are unknown or over
	Noise   int64 // lines that were no messages
	Dropped int64 // notifications beyond a slow caller's mailbox, replies beyond the backlog
}

// Conn is a connection to one server. Its methods may be used concurrently.
type Conn struct {
	transport Transport
	http      *httpTransport // the same, if it is one
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
	closed  error // why it is closed; nil while it is open
	pending map[int64]*pending
	pool    sync.Pool                     // of *pending
	serving map[string]context.CancelFunc // the server's requests being answered, by id

	side                  chan struct{} // slots for background jobs
	stray, noise, dropped atomic.Int64
}

// New makes a connection over a transport, which belongs to it from here on.
// Negotiate comes next, Close last.
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
	if c.opts.ProbeTimeout <= 0 {
		c.opts.ProbeTimeout = 2 * time.Second
		if c.http != nil {
			c.opts.ProbeTimeout = 5 * time.Second
		}
	}
	c.negotiation.turn = make(chan struct{}, 1)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.ownMeta = c.appendOwnMeta(nil, c.opts.Capabilities)
	t.start(c)
	return c
}

func (o Options) withDefaults() Options {
	if o.Name == "" {
		o.Name = "ambit"
	}
	if o.Version == "" {
		o.Version = "0"
	}
	if len(o.Capabilities) == 0 {
		o.Capabilities = jsontext.Value("{}")
	}
	if o.MaxMessage <= 0 {
		o.MaxMessage = defaultMessage
	}
	if o.MaxPending <= 0 {
		o.MaxPending = defaultPending
	}
	if o.MaxNoise == 0 {
		o.MaxNoise = defaultNoise
	}
	return o
}

// Close ends the connection and every call on it. It does not wait for the
// server, but over HTTP it takes leave, for at most a second.
func (c *Conn) Close() error {
	c.fail(nil)
	return nil
}

// Server is what the server said about itself; nil before Negotiate.
func (c *Conn) Server() *Server { return c.server.Load() }

// Done is closed when the connection is over.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err is why the connection is over: an [ErrClosed] with its cause, or nil.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Stats returns the counts so far.
func (c *Conn) Stats() Stats {
	return Stats{Stray: c.stray.Load(), Noise: c.noise.Load(), Dropped: c.dropped.Load()}
}

// fail ends the connection, once, and tells everybody who waits.
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

// pending is a call that waits. Whoever takes it out of the table settles it,
// exactly once; the caller gives it back to the pool after that.
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

func (c *Conn) enter(id int64, box *mailbox) (*pending, error) {
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

// take removes a call from the table; nil if it is not there any more.
func (c *Conn) take(id int64) *pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pending[id]
	delete(c.pending, id)
	return p
}

// settle ends a call, unless it is over already.
func (c *Conn) settle(id int64, err error) bool {
	p := c.take(id)
	if p != nil {
		p.settle(nil, err)
	}
	return p != nil
}

// exchange sends a request and waits for its answer.
func (c *Conn) exchange(ctx context.Context, m outgoing, box *mailbox, callback func(Notification)) (jsontext.Value, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", m.method, notSent(err))
	}
	p, err := c.enter(m.id, box)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.method, err)
	}
	if c.http != nil && box != nil {
		// The stream is read over there, so that its notifications, and those
		// that come by another stream, are called back from here.
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
			box.empty(callback)
		case <-abandoned:
			// If the answer is just being settled, it is a moment away.
			abandoned = nil
			c.settle(m.id, ctx.Err())
		}
	}
	result, err := p.result, p.err
	p.result, p.err, p.box = nil, nil, nil
	c.pool.Put(p)
	if box != nil {
		box.empty(callback)
	}
	if err == nil {
		return result, nil
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) && !errors.Is(err, ErrNotSent) && !m.quiet {
		c.sendCancelled(m)
	}
	return nil, fmt.Errorf("%s: %w", m.method, err)
}

// sent handles the result of sending a request. Over HTTP the answer has been
// delivered by then. A session that the server has forgotten is made again, once.
// A request that can no longer be answered is settled here.
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

// sendAgain sends a request once more, in a new session. The server has had it
// before, so that no error of this says that it was not sent.
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

// Where a message came from, besides the id of the call whose stream it was.
const (
	sharedStream = 0  // everything comes by this one
	sideStream   = -1 // answers to calls do not come by this one
)

// deliver takes one message, or a batch, from the transport. With owned the
// bytes are ours to keep. It reports whether the call that the stream belongs
// to is over, and what is wrong with a message that is none.
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
		c.hear(msg) // nobody waits for it
	case e.kind == kindNotification:
		c.notify(e, stream)
	case e.kind == kindRequest:
		c.serve(e)
	}
	return false, nil
}

// hear passes on what is no message, or none that can be used.
func (c *Conn) hear(line []byte) {
	c.noise.Add(1)
	if c.opts.OnNoise != nil {
		c.opts.OnNoise(bytes.Clone(line[:min(len(line), maxNoiseLine)]))
	}
}

func (c *Conn) answer(msg []byte, e envelope, badText, owned bool, stream int64) bool {
	id, ok := number(e.id)
	if !ok || stream == sideStream || stream > 0 && id != stream {
		c.stray.Add(1)
		return false
	}
	p := c.take(id)
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
