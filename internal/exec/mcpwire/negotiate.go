package mcpwire

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

const (
	modernVersion  = "2026-07-28"
	offeredVersion = "2025-11-25"
)

// legacyVersions lists the supported revisions that begin with a handshake.
var legacyVersions = []string{"2024-11-05", "2025-03-26", "2025-06-18", offeredVersion}

// These error codes exist only in revision 2026-07-28.
const (
	codeHeaderMismatch     = -32020
	codeMissingCapability  = -32021
	codeUnsupportedVersion = -32022
)

// Server is the server's description of itself, from the answer to server/discover or initialize.
type Server struct {
	Version string         // the protocol revision in use
	Modern  bool           // set if the revision is 2026-07-28, which has no handshake
	Result  jsontext.Value // the whole answer, as the server sent it
}

// Capabilities returns the server's capabilities as the server sent them, or nil.
func (s *Server) Capabilities() jsontext.Value { return rawjson.Lookup(s.Result, "capabilities") }

// negotiation holds the result of the first call to Negotiate. The channel is used as a mutex: a send locks it, and a
// receive unlocks it.
type negotiation struct {
	turn   chan struct{}
	done   bool
	server *Server
	err    error
}

// Negotiate agrees on a protocol revision with the server. It first probes for revision 2026-07-28. If the server
// refuses the probe or does not answer within [Options.ProbeTimeout], Negotiate falls back to the handshake of the
// earlier revisions. Further calls return the result of the first call.
func (c *Conn) Negotiate(ctx context.Context) (*Server, error) {
	n := &c.negotiation
	select {
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !n.done {
		n.done = true
		if n.server, n.err = c.negotiate(ctx); n.err == nil {
			c.listen(ctx, n.server)
		}
	}
	return n.server, n.err
}

func (c *Conn) negotiate(ctx context.Context) (*Server, error) {
	if !isObject(c.opts.Capabilities) {
		return nil, notSent(errors.New("the client's capabilities are not a JSON object"))
	}
	if !c.opts.Legacy {
		if s, err := c.discover(ctx); s != nil || err != nil {
			return s, err
		}
	}
	s, err := c.initialize(ctx)
	switch {
	case err == nil:
		return s, nil
	case c.http != nil:
		status, ok := errors.AsType[*HTTPError](err)
		if ok && status.RPC == nil && slices.Contains(noPost, status.Status) && c.http.speaksOnlySSE(ctx, status.Status) {
			return nil, ErrSSEOnly
		}
	case !c.opts.Legacy && (errors.Is(err, ErrClosed) || ctx.Err() != nil):
		// The server may have exited because of the probe.
		return nil, fmt.Errorf("%w: %w", ErrRespawnLegacy, err)
	}
	return nil, err
}

// noPost lists the statuses with which a server refuses a POST to a URL of the HTTP+SSE transport.
var noPost = []int{http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed}

// discover probes for revision 2026-07-28. If both results are nil, the caller must try initialize.
func (c *Conn) discover(ctx context.Context) (*Server, error) {
	asking := ctx
	if !c.opts.Modern {
		var cancel context.CancelFunc
		asking, cancel = context.WithTimeout(ctx, c.opts.ProbeTimeout)
		defer cancel()
	}
	result, err := c.probe(asking)
	if slices.Contains(supportedVersions(err), modernVersion) {
		result, err = c.probe(asking) // the server refused this revision but lists it as supported, so probe once more
	}
	if err == nil {
		versions := texts(rawjson.Lookup(result, "supportedVersions"))
		if slices.Contains(versions, modernVersion) {
			s := &Server{Version: modernVersion, Modern: true, Result: result}
			c.server.Store(s)
			return s, nil
		}
		return nil, c.fallBack(versions, nil)
	}
	rpc, isRPC := errors.AsType[*RPCError](err)
	status, isStatus := errors.AsType[*HTTPError](err)
	_, redirected := errors.AsType[*RedirectError](err)
	switch {
	case ctx.Err() != nil || redirected:
		return nil, err
	case errors.Is(err, ErrClosed) && c.http == nil && !c.opts.Modern:
		return nil, fmt.Errorf("%w: %w", ErrRespawnLegacy, err)
	case errors.Is(err, ErrClosed) || errors.Is(err, ErrNotSent):
		return nil, err
	case isRPC && rpc.Code == codeUnsupportedVersion:
		return nil, c.fallBack(supportedVersions(err), err)
	case isRPC && (rpc.Code == codeHeaderMismatch || rpc.Code == codeMissingCapability):
		return nil, err // the server is modern, but refused the client's request
	case isStatus && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden):
		return nil, err // the server would refuse initialize too
	default:
		return nil, c.fallBack(nil, err)
	}
}

func (c *Conn) probe(ctx context.Context) (jsontext.Value, error) {
	return c.greet(ctx, methodDiscover, modernVersion, func(b []byte) []byte {
		return append(c.appendMeta(append(b, `{"_meta":`...), nil, c.ownMeta, nil), '}')
	})
}

// supportedVersions returns the revisions that a server lists when it refuses a revision. The argument is the error of
// the server. The result is nil if the error contains no such list.
func supportedVersions(err error) []string {
	if rpc, ok := errors.AsType[*RPCError](err); ok && rpc.Code == codeUnsupportedVersion {
		return texts(rawjson.Lookup(rpc.Data, "supported"))
	}
	return nil
}

// fallBack is called after a failed probe. It returns nil if Negotiate should try initialize. Any other result is the
// error of Negotiate. The first argument lists the revisions that the server supports, if the server listed any. The
// second argument is the error of the probe, if any.
func (c *Conn) fallBack(versions []string, err error) error {
	common := slices.ContainsFunc(versions, func(v string) bool { return slices.Contains(legacyVersions, v) })
	switch {
	case len(versions) > 0 && (c.opts.Modern || !common):
		return &VersionError{Server: versions}
	case c.opts.Modern && err == nil:
		return &VersionError{}
	case c.opts.Modern:
		return err
	}
	return nil
}

// initialize performs the handshake that revision 2025-11-25 and earlier revisions use.
func (c *Conn) initialize(ctx context.Context) (*Server, error) {
	result, err := c.greet(ctx, methodInitialize, "", func(b []byte) []byte {
		b = append(b, `{"protocolVersion":"`+offeredVersion+`","capabilities":`...)
		b = append(b, c.opts.Capabilities...)
		b = c.appendClientInfo(append(b, `,"clientInfo":`...))
		return append(b, '}')
	})
	if err != nil {
		return nil, err
	}
	version, _ := rawjson.Text(rawjson.Lookup(result, "protocolVersion"))
	if !slices.Contains(legacyVersions, version) {
		return nil, &VersionError{Server: []string{version}}
	}
	s := &Server{Version: version, Result: result}
	err = c.transport.send(ctx, outgoing{
		method: methodInitialized, version: version,
		body: []byte(`{"jsonrpc":"2.0","method":"` + methodInitialized + `"}`),
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", methodInitialized, err)
	}
	c.server.Store(s)
	return s, nil
}

// greet sends server/discover or initialize and returns the result. The callback appends the params of the request.
func (c *Conn) greet(ctx context.Context, method, version string, params func([]byte) []byte) (jsontext.Value, error) {
	id := c.ids.Add(1)
	body := append(params(appendHead(nil, id, method)), '}')
	return c.exchange(ctx, outgoing{body: body, id: id, method: method, version: version, quiet: true}, nil, nil)
}

// renew creates a new session after the server has forgotten the session with the given id. It does nothing if that
// session has already been replaced.
func (c *Conn) renew(ctx context.Context, oldID string) error {
	select {
	case c.negotiation.turn <- struct{}{}:
		defer func() { <-c.negotiation.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if current := c.http.session.Load(); current == nil || (*current)[0] != oldID {
		return nil
	}
	s, err := c.initialize(ctx)
	if err != nil {
		return fmt.Errorf("a new session cannot be created: %w", err)
	}
	if c.opts.OnGap != nil {
		c.opts.OnGap(true)
	}
	c.listen(ctx, s)
	return nil
}

// texts returns the first 100 strings of a JSON array.
func texts(raw []byte) (list []string) {
	if len(raw) == 0 || raw[0] != '[' {
		return nil
	}
	w := rawjson.Walk(raw)
	for e, ok := w.Element(); ok && len(list) < 100; e, ok = w.Element() {
		if s, ok := rawjson.Text(e); ok {
			list = append(list, s)
		}
	}
	return list
}

// listenWait is how long a new connection waits for the notification stream to open.
const listenWait = time.Second

// listener is the state of the notification stream, which carries notifications that belong to no call. For a legacy
// server over HTTP, the stream is the response to a GET request. For a modern server, it is a subscription. A legacy
// server on stdio needs no such stream.
type listener struct {
	mu     sync.Mutex
	id     int64              // the id of the subscription request
	asked  bool               // the subscription request was sent but is not yet acknowledged
	cancel context.CancelFunc // ends the stream
	opened func()             // called each time the stream opens
}

func (l *listener) is(id int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id != 0 && l.id == id
}

// handleAck handles the acknowledgement of a subscription. An acknowledgement without an id is assumed to be for the
// listener. Acknowledgements of the caller's own subscriptions are ignored.
func (l *listener) handleAck(id int64, known bool) {
	l.mu.Lock()
	ours := l.asked && (!known || l.id == id)
	if ours {
		l.asked = false
	}
	opened := l.opened
	l.mu.Unlock()
	if ours {
		opened()
	}
}

// listen opens the notification stream, if a callback needs it and the server offers it. The method waits up to
// listenWait for the stream to open, so that no notification is missed.
func (c *Conn) listen(ctx context.Context, s *Server) {
	var run func(ctx context.Context, opened func())
	switch filter := subscription(s.Capabilities()); {
	case c.opts.OnNotification == nil && (s.Modern || c.opts.OnRequest == nil):
		return
	case s.Modern && filter == "", !s.Modern && c.http == nil:
		return
	case s.Modern:
		run = func(ctx context.Context, _ func()) { c.subscribe(ctx, filter) }
	default:
		run = func(ctx context.Context, opened func()) { c.http.listen(ctx, s.Version, opened) }
	}

	lctx, cancel := context.WithCancel(c.ctx)
	ready, over := make(chan struct{}), make(chan struct{})
	var once sync.Once
	opened := func() {
		again := true
		once.Do(func() { again = false; close(ready) })
		if again && c.opts.OnGap != nil {
			// Without a session, the client cannot tell whether a legacy server has restarted.
			c.opts.OnGap(!s.Modern && c.http.session.Load() == nil)
		}
	}
	c.listener.mu.Lock()
	if c.listener.cancel != nil {
		c.listener.cancel()
	}
	c.listener.cancel, c.listener.opened = cancel, opened
	c.listener.mu.Unlock()
	go func() {
		defer close(over)
		defer cancel()
		run(lctx, opened)
	}()

	timer := time.NewTimer(listenWait)
	defer timer.Stop()
	select {
	case <-ready:
	case <-over:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// subscribe keeps a subscription open. It returns when the server refuses the subscription or closes it too often.
func (c *Conn) subscribe(ctx context.Context, filter string) {
	for tries := 0; ctx.Err() == nil; tries++ {
		if tries > 0 && pause(ctx, 0, tries-1) != nil {
			return
		}
		id := c.ids.Add(1)
		c.listener.mu.Lock()
		c.listener.id, c.listener.asked = id, true
		c.listener.mu.Unlock()

		b := append(appendHead(nil, id, methodListen), `{"notifications":`...)
		b = append(append(b, filter...), `,"_meta":`...)
		b = append(c.appendMeta(b, nil, c.ownMeta, nil), '}', '}')
		began := time.Now()
		_, err := c.exchange(ctx, outgoing{body: b, id: id, method: methodListen, version: modernVersion}, nil, nil)
		switch {
		case isRefusal(err) || errors.Is(err, ErrClosed):
			return
		case time.Since(began) > maxPause:
			tries = 0
		case tries >= maxResumes && !errors.Is(err, ErrNotSent):
			return // the server is reachable but keeps closing the subscription
		}
	}
}

// subscription returns a filter that selects all lists whose changes the server can report. It returns "" if the server
// reports no changes.
func subscription(capabilities []byte) string {
	filter := ""
	for _, list := range []string{"tools", "prompts", "resources"} {
		if string(rawjson.Lookup(capabilities, list, "listChanged")) == "true" {
			filter += `,"` + list + `ListChanged":true`
		}
	}
	if filter == "" {
		return ""
	}
	return "{" + filter[1:] + "}"
}
