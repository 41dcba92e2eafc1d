package front

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// HTTPOptions configures an [HTTP].
type HTTPOptions struct {
	// Keys seals the session ids. Replicas with the same keys accept each other's sessions.
	Keys *identity.Keys
	// Hosts lists the host names that are accepted in Host and Origin headers, without ports. Loopback names and
	// addresses are always accepted.
	Hosts []string
	// MaxBody is the maximum size of a request body in bytes. The default is 32 MiB.
	MaxBody int64
	// SessionLife is how long a session is valid. The default is a day.
	SessionLife time.Duration
	// Idle is how long a session's state is kept after the last request. The default is ten minutes.
	Idle time.Duration
}

// HTTP serves an agent over streamable HTTP to any number of clients. It does not authenticate clients, so the caller
// of [HTTP.Serve] must authenticate them.
type HTTP struct {
	agent *Agent
	o     HTTPOptions

	mu            sync.Mutex
	peers         map[string]*httpSession // sessions by id; an id in this map need not be decrypted again
	endedSessions map[string]time.Time    // maps the key of each ended session to the time when the session expires
	swept         time.Time               // when expired entries of endedSessions were last removed
	held          map[string]int          // the number of sessions of each principal
	most          int                     // the maximum number of sessions of one principal
}

const (
	// ioTimeout is how long a client can take to send a body or to read a piece of an answer.
	ioTimeout = 30 * time.Second
	// maxPrealloc is the maximum number of bytes that are allocated before a body arrives. A larger Content-Length is not
	// trusted.
	maxPrealloc = 64 << 10
	// heartbeat is the interval between the comments that keep an open stream alive.
	heartbeat = 25 * time.Second
	// maxPeers is the maximum number of sessions with state on this replica.
	maxPeers = 10000
	// maxPeersEach is like maxPeers, but limits the sessions of one principal.
	maxPeersEach = 1000
)

// NewHTTP returns an [HTTP] that serves the agent a. The caller must close it to release the state of all sessions.
func NewHTTP(a *Agent, o HTTPOptions) *HTTP {
	o.MaxBody = cmp.Or(o.MaxBody, maxMessage)
	o.SessionLife = cmp.Or(o.SessionLife, 24*time.Hour)
	o.Idle = cmp.Or(o.Idle, 10*time.Minute)
	return &HTTP{
		agent: a, o: o, most: maxPeersEach,
		peers: map[string]*httpSession{}, endedSessions: map[string]time.Time{}, held: map[string]int{},
	}
}

// Close releases the state of every session.
func (h *HTTP) Close() {
	h.mu.Lock()
	all := slices.Collect(maps.Values(h.peers))
	h.mu.Unlock()
	for _, p := range all {
		h.drop(p, true)
	}
}

// Serve answers one HTTP request. The caller has already authenticated the principal. The attributes come from the
// principal's credential.
func (h *HTTP) Serve(w http.ResponseWriter, r *http.Request, principal string, attributes *identity.Attributes) {
	if why := h.foreignReason(r); why != "" {
		http.Error(w, why, http.StatusForbidden)
		return
	}
	switch r.Method {
	case http.MethodPost:
	case http.MethodGet:
		h.get(w, r, principal, attributes)
		return
	case http.MethodDelete:
		h.end(w, r, principal)
		return
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		http.Error(w, "this address accepts only GET, POST and DELETE", http.StatusMethodNotAllowed)
		return
	}
	s, req := h.read(w, r)
	if req == nil {
		return
	}
	req.principal, req.attributes = principal, attributes
	defer s.release()
	ctx := h.begin(r, s, req)
	if ctx == nil {
		return
	}
	if req.Method == "subscriptions/listen" {
		var end func()
		ctx, end = BeginStream(ctx)
		defer end()
	}
	result, problem := req.method()(h.agent, ctx, req)
	s.answer(ctx, req, result, problem)
}

type streamKey struct{}

// WithStreams returns a context for [HTTP.Serve]. Serve calls the function begin for a request that only listens for
// notifications. The stream ends when the context from begin is done. A callback is necessary, because Serve must parse
// the message to find out whether the request listens.
func WithStreams(ctx context.Context, begin func(context.Context) (context.Context, func())) context.Context {
	return context.WithValue(ctx, streamKey{}, begin)
}

// BeginStream calls the function that was passed to [WithStreams].
func BeginStream(ctx context.Context) (stream context.Context, end func()) {
	if begin, ok := ctx.Value(streamKey{}).(func(context.Context) (context.Context, func())); ok {
		return begin(ctx)
	}
	return ctx, func() {}
}

// foreignReason returns the reason to reject a request that a web page of another site could have sent. It returns ""
// for any other request. A browser puts the page's origin into the Origin header. In a DNS rebinding attack, the Host
// header contains the attacker's host name.
func (h *HTTP) foreignReason(r *http.Request) string {
	host := (&url.URL{Host: r.Host}).Hostname()
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if ok && local.IP.IsLoopback() && !h.isKnownHost(host) {
		return "the Host header contains neither a loopback address nor a configured host name"
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" ||
			!strings.EqualFold(u.Host, r.Host) && !(h.isKnownHost(u.Hostname()) && h.isKnownHost(host)) {
			return "the Origin header names another site, and requests from that site are not accepted"
		}
	}
	return ""
}

// isKnownHost reports whether the host is a loopback name or address, or is listed in [HTTPOptions.Hosts].
func (h *HTTP) isKnownHost(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return true
	}
	return slices.ContainsFunc(h.o.Hosts, func(s string) bool { return strings.EqualFold(s, host) })
}

// accepts reports which formats the Accept header allows. The last result reports whether event streams are listed
// before JSON, which means that the client prefers a stream.
func accepts(r *http.Request) (json, stream, streamFirst bool) {
	values := r.Header.Values("Accept")
	if len(values) == 0 {
		return true, false, false
	}
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			kind, _, _ := strings.Cut(part, ";")
			switch strings.ToLower(strings.TrimSpace(kind)) {
			case "application/json", "application/*":
				json = true
			case "text/event-stream", "text/*":
				streamFirst = streamFirst || !json
				stream = true
			case "*/*":
				json, stream = true, true
			}
		}
	}
	return json, stream, stream && streamFirst
}

func isJSON(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && kind == "application/json"
}

// read reads the message in a request. If this fails, it sends an error to the client and returns nil.
func (h *HTTP) read(w http.ResponseWriter, r *http.Request) (*reply, *request) {
	if !isJSON(r.Header.Get("Content-Type")) {
		http.Error(w, "the Content-Type of the request must be application/json", http.StatusUnsupportedMediaType)
		return nil, nil
	}
	json, stream, streamFirst := accepts(r)
	if !json && !stream {
		http.Error(w, "the header Accept allows neither application/json nor text/event-stream",
			http.StatusNotAcceptable)
		return nil, nil
	}
	s := &reply{w: w, control: http.NewResponseController(w), stream: stream, now: streamFirst || !json}
	body, err := h.body(w, r, s.control)
	if err != nil {
		status, why := http.StatusBadRequest, "the body could not be read"
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			status, why = http.StatusRequestEntityTooLarge, "the body is too large"
		} else if busy, ok := errors.AsType[*limit.BusyError](err); ok {
			status, why = http.StatusTooManyRequests, busy.Error()+"; "+limit.RetryHint
		}
		s.fail(status, nil, &rpcError{Code: invalidRequest, Message: why})
		return nil, nil
	}
	m, problem := parse(body)
	if problem != nil {
		s.fail(http.StatusBadRequest, nil, problem)
		return nil, nil
	}
	req := newRequest(m)
	req.notify = s.notify
	version := r.Header.Get("Mcp-Protocol-Version")
	req.modern = req.modern || version != "" && !slices.Contains(handshakes, version)
	return s, req
}

// body reads the body of a request within ioTimeout. Memory is allocated as the body arrives, so a client cannot occupy
// memory by announcing a large body.
func (h *HTTP) body(w http.ResponseWriter, r *http.Request, control *http.ResponseController) ([]byte, error) {
	// Ignore the error, because some HTTP servers do not support deadlines and have their own timeouts.
	_ = control.SetReadDeadline(time.Now().Add(ioTimeout))
	var body bytes.Buffer
	body.Grow(int(min(max(r.ContentLength, 0), maxPrealloc)) + bytes.MinRead)
	if _, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, h.o.MaxBody)); err != nil {
		w.Header().Set("Connection", "close")
		return nil, err
	}
	// After an error, the deadline is not removed, so that the server does not wait for the rest of the body.
	_ = control.SetReadDeadline(time.Time{})
	return body.Bytes(), nil
}

// begin returns the context in which the request is handled. It returns nil if the message is already answered. In the
// newer protocol, the context is canceled when the connection is closed.
func (h *HTTP) begin(r *http.Request, s *reply, req *request) context.Context {
	if !req.modern {
		return h.beginInSession(r, s, req)
	}
	if req.ID == nil {
		s.accepted()
		return nil
	}
	if problem := headersMatch(r, req, h.agent); problem != nil {
		s.fail(statusOf(problem), req.ID, problem)
		return nil
	}
	if req.Method == "subscriptions/listen" {
		if !s.stream {
			s.fail(http.StatusNotAcceptable, req.ID, &rpcError{
				Code: invalidRequest, Message: "subscriptions/listen requires the header Accept: text/event-stream",
			})
			return nil
		}
		s.now = true
		s.stopBeat = s.beat(r.Context())
	}
	return r.Context()
}

// headersMatch returns an error if the headers of a request differ from its body. It is used for the newer protocol.
// Without this check, a client could deceive a proxy that routes requests by their headers.
func headersMatch(r *http.Request, req *request, a *Agent) *rpcError {
	versions := r.Header.Values("Mcp-Protocol-Version")
	mismatch := func(what string) *rpcError { return &rpcError{Code: headerMismatch, Message: what} }
	switch {
	case req.meta.version == "":
		return req.check()
	case len(versions) != 1 || versions[0] != req.meta.version:
		return mismatch("the header Mcp-Protocol-Version differs from the version in _meta")
	}
	if problem := req.check(); problem != nil {
		return problem
	}
	if method, ok := header(r, "Mcp-Method"); !ok || method != req.Method {
		return mismatch("the header Mcp-Method is missing or differs from the method in the body")
	}
	member := ""
	switch req.Method {
	case "tools/call", "prompts/get":
		member = "name"
	case "resources/read":
		member = "uri"
	default:
		return nil
	}
	want, _ := text(lookup(req.Params, member))
	if name, ok := header(r, "Mcp-Name"); !ok || name != want {
		return mismatch("the header Mcp-Name is missing or differs from the " + member + " in the body")
	}
	if definition := a.definition(want); req.Method == "tools/call" && definition != nil {
		schema, arguments := lookup(definition, "inputSchema"), lookup(req.Params, "arguments")
		if what := mcpwire.HeaderMismatch(r.Header, schema, arguments); what != "" {
			return mismatch(what)
		}
	}
	return nil
}

// header returns the decoded value of a header. The second result is true if there is exactly one value and this value
// is valid.
func header(r *http.Request, name string) (string, bool) {
	values := r.Header.Values(name)
	if len(values) != 1 {
		return "", false
	}
	return mcpwire.ReadHeader(values[0])
}

// statusOf returns the HTTP status for an error in the newer protocol.
func statusOf(e *rpcError) int {
	switch e.Code {
	case methodNotFound:
		return http.StatusNotFound
	case headerMismatch, missingCapability, unsupportedVersion, invalidRequest, parseError:
		return http.StatusBadRequest
	case invalidParams:
		if e.raw == nil {
			return http.StatusBadRequest
		}
	}
	return http.StatusOK
}

// beginInSession is like begin, but for the older protocol. The context survives a broken connection. It is canceled
// when the client cancels the request, or when this replica releases the session's state.
func (h *HTTP) beginInSession(r *http.Request, s *reply, req *request) context.Context {
	if req.Method == "initialize" && req.ID != nil {
		h.initialize(r.Context(), s, req)
		return nil
	}
	p, status, why := h.session(r, req.principal)
	if status != 0 {
		s.fail(status, req.ID, &rpcError{Code: invalidRequest, Message: why})
		return nil
	}
	s.session = p
	p.peer.attributes.Store(req.attributes)
	switch {
	case req.Method == "":
		p.peer.answered(req.Message)
	case req.Method == "notifications/cancelled":
		p.peer.cancel(req.Params)
	case req.ID != nil:
		req.gone, req.peer = r.Context().Done(), p.peer
		ctx, problem := p.peer.enter(context.WithoutCancel(r.Context()), req.ID)
		if problem != nil {
			s.finish(http.StatusOK, answer(req.ID, nil, problem))
			return nil
		}
		p.open(s)
		return ctx
	}
	s.accepted()
	return nil
}
