package front

import (
	"cmp"
	"context"
	"errors"
	"io"
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
	"github.com/ambit-run/ambit/internal/store/identity"
)

// HTTPOptions configure an agent's streamable HTTP.
type HTTPOptions struct {
	// Keys seal sessions. Replicas that share them accept each other's sessions.
	Keys *identity.Keys
	// Hosts are the host names, without a port, that are accepted in the Host and Origin headers
	// besides the loopback ones.
	Hosts []string
	// MaxBody bounds one request; 0 means 32 MiB.
	MaxBody int64
	// SessionLife is how long a session is valid, Idle how long its state is kept without a
	// request. 0 means a day and ten minutes.
	SessionLife, Idle time.Duration
}

// HTTP serves an agent to any number of clients. Its caller has authenticated the principal.
type HTTP struct {
	agent *Agent
	o     HTTPOptions

	mu    sync.Mutex
	peers map[string]*httpSession // by session key
	// opened has the same sessions by session id, which then need not be decrypted again.
	opened map[string]*httpSession
	ended  map[string]time.Time // sessions that clients have ended, until they expire
	swept  time.Time
	held   map[string]int // the number of peers of each principal
	most   int            // its limit
}

const (
	// ioTimeout is how long a client may take to send a body, or to read a piece of an answer.
	ioTimeout = 30 * time.Second
	// trusted is the largest announced body that is allocated in one step.
	trusted = 64 << 10
	// heartbeat is how often a silent stream sends a comment.
	heartbeat = 25 * time.Second
	// maxPeers bounds the sessions with state on this replica, maxPeersEach those of one
	// principal.
	maxPeers     = 10000
	maxPeersEach = 1000
)

func NewHTTP(a *Agent, o HTTPOptions) *HTTP {
	o.MaxBody = cmp.Or(o.MaxBody, maxMessage)
	o.SessionLife = cmp.Or(o.SessionLife, 24*time.Hour)
	o.Idle = cmp.Or(o.Idle, 10*time.Minute)
	return &HTTP{
		agent: a, o: o, peers: map[string]*httpSession{}, opened: map[string]*httpSession{},
		ended: map[string]time.Time{}, held: map[string]int{}, most: maxPeersEach,
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

// Serve answers one HTTP request of a principal.
func (h *HTTP) Serve(w http.ResponseWriter, r *http.Request, principal string) {
	if why := h.foreign(r); why != "" {
		http.Error(w, why, http.StatusForbidden)
		return
	}
	switch r.Method {
	case http.MethodPost:
	case http.MethodGet:
		h.get(w, r, principal)
		return
	case http.MethodDelete:
		h.end(w, r, principal)
		return
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		http.Error(w, "this address accepts GET, POST and DELETE only", http.StatusMethodNotAllowed)
		return
	}
	s, req := h.read(w, r)
	if req == nil {
		return
	}
	req.principal = principal
	defer s.release()
	ctx := h.begin(r, s, req)
	if ctx == nil {
		return
	}
	result, problem := req.method()(h.agent, ctx, req)
	s.answer(ctx, req, result, problem)
}

// foreign returns why a request may come from a web page of another site, or nothing. Such a page
// has its own origin in Origin, or, after DNS rebinding, its own name in Host.
func (h *HTTP) foreign(r *http.Request) string {
	host := hostname(r.Host)
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && isLoopbackAddr(local) && !h.known(host) {
		return "the Host header names another machine"
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" ||
			!strings.EqualFold(u.Host, r.Host) && !(h.known(u.Hostname()) && h.known(host)) {
			return "requests from web pages of another origin are not accepted"
		}
	}
	return ""
}

// known reports whether a host name is one of ours.
func (h *HTTP) known(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return true
	}
	return slices.ContainsFunc(h.o.Hosts, func(s string) bool { return strings.EqualFold(s, host) })
}

func hostname(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}

func isLoopbackAddr(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// accepts returns which formats a client accepts, and whether it prefers a stream, which is then
// listed first.
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
	if contentType == "application/json" {
		return true
	}
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && kind == "application/json"
}

// read reads the message of a request. If that fails, it answers with the error and returns nil.
func (h *HTTP) read(w http.ResponseWriter, r *http.Request) (*reply, *request) {
	if !isJSON(r.Header.Get("Content-Type")) {
		http.Error(w, "the body must be application/json", http.StatusUnsupportedMediaType)
		return nil, nil
	}
	json, stream, streamFirst := accepts(r)
	if !json && !stream {
		http.Error(w, "the client accepts neither application/json nor text/event-stream", http.StatusNotAcceptable)
		return nil, nil
	}
	s := &reply{w: w, control: http.NewResponseController(w), stream: stream, now: streamFirst || !json}
	body, status := h.body(w, r, s.control)
	if status != 0 {
		s.fail(status, nil, &rpcError{Code: invalidRequest, Message: "the body cannot be read, or is too large"})
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

// body reads the body of a request, with a deadline.
func (h *HTTP) body(w http.ResponseWriter, r *http.Request, control *http.ResponseController) (body []byte, status int) {
	// Some servers cannot; their own timeouts apply.
	_ = control.SetReadDeadline(time.Now().Add(ioTimeout))
	defer func() {
		if status == 0 { // otherwise the rest of the body is not waited for
			_ = control.SetReadDeadline(time.Time{})
		}
	}()
	limited := http.MaxBytesReader(w, r.Body, h.o.MaxBody)
	var err error
	if n := r.ContentLength; n >= 0 && n <= h.o.MaxBody {
		body, err = readSized(limited, n)
	} else {
		body, err = io.ReadAll(limited)
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, http.StatusRequestEntityTooLarge
	}
	if err != nil {
		w.Header().Set("Connection", "close")
		return nil, http.StatusBadRequest
	}
	return body, 0
}

// readSized reads n bytes. It allocates up to trusted bytes in one step, and beyond that at most
// twice the bytes that have arrived, so that a client cannot occupy memory by announcing a body
// that it does not send.
func readSized(r io.Reader, n int64) ([]byte, error) {
	body := make([]byte, min(n, trusted))
	read := 0
	for {
		if _, err := io.ReadFull(r, body[read:]); err != nil || int64(len(body)) == n {
			return body, err
		}
		read = len(body)
		more := make([]byte, min(n, int64(2*read)))
		copy(more, body)
		body = more
	}
}

// begin returns the context in which a request is answered: in its session or, in the newer
// generation, until the connection ends. It returns nil for messages that need no further answer.
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
				Code: invalidRequest, Message: "subscriptions/listen requires Accept: text/event-stream",
			})
			return nil
		}
		s.now = true
		s.stopBeat = s.beat(r.Context())
	}
	return r.Context()
}

// headersMatch compares the headers of a request of the newer generation with its body, so that a
// proxy that routes by headers cannot be deceived.
func headersMatch(r *http.Request, req *request, a *Agent) *rpcError {
	version := r.Header.Get("Mcp-Protocol-Version")
	mismatch := func(what string) *rpcError { return &rpcError{Code: headerMismatch, Message: what} }
	switch {
	case req.meta.version == "":
		return req.check()
	case version != req.meta.version:
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
		if what := mcpwire.HeaderMismatch(r.Header, lookup(definition, "inputSchema"), lookup(req.Params, "arguments")); what != "" {
			return mismatch(what)
		}
	}
	return nil
}

// header returns the single value of a header, decoded.
func header(r *http.Request, name string) (string, bool) {
	values := r.Header.Values(name)
	if len(values) != 1 {
		return "", false
	}
	return mcpwire.ReadHeader(values[0])
}

// statusOf returns the HTTP status of an error in the newer generation.
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

// beginInSession is begin for the older generation. A request continues when its connection breaks:
// only the client's cancellation ends it.
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
