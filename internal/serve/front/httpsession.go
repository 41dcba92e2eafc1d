package front

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// token is the content of a sealed session id. It allows any replica to serve the session.
type token struct {
	Key          string         `json:"k"`
	Principal    string         `json:"p"`
	Agent        string         `json:"a"`
	Version      string         `json:"v"`
	Capabilities jsontext.Value `json:"c"`
	Until        int64          `json:"u"`
}

const (
	tokenPurpose = "mcp/session"
	maxToken     = 4 << 10
	// maxEnded is the maximum number of ended sessions that are remembered. If ambit forgets that a session has ended, the
	// principal can use the session again until it expires.
	maxEnded = 10000
)

// httpSession is the state of an HTTP session on this replica.
type httpSession struct {
	h     *HTTP
	peer  *peer
	key   string // the Key of the session's token
	id    string // the session id: the sealed token
	until int64  // when the session expires, in Unix seconds

	mu      sync.Mutex
	replies []*reply    // the replies that are still open; messages from servers can be sent on them
	stream  *reply      // the stream that the client opened with GET, or nil
	closed  func()      // closes the stream
	users   int         // the number of requests in progress
	idle    *time.Timer // a function that releases the session's state
}

// initialize answers an initialize request and starts a session.
func (h *HTTP) initialize(ctx context.Context, s *reply, req *request) {
	a := h.agent
	capabilities := a.Offered(lookup(req.Params, "capabilities"))
	result, _ := a.initialize(ctx, req)
	version, _ := text(lookup(result, "protocolVersion"))
	id, err := h.o.Keys.SealText(tokenPurpose, token{
		Key: gateway.NewID(), Principal: req.principal, Agent: a.Gateway.Agent().ID, Version: version,
		Capabilities: capabilities, Until: time.Now().Add(h.o.SessionLife).Unix(),
	})
	if err != nil {
		problem := &rpcError{Code: internalError, Message: "the session cannot be created"}
		s.fail(http.StatusInternalServerError, req.ID, problem)
		return
	}
	s.w.Header()["Mcp-Session-Id"] = []string{id}
	s.finish(http.StatusOK, answer(req.ID, result, nil))
}

// open decodes a session id. It returns nil if the id is invalid or expired, or belongs to a different agent or
// principal.
func (h *HTTP) open(id, principal string) *token {
	var t token
	if len(id) > maxToken || h.o.Keys.OpenText(tokenPurpose, id, &t) != nil || t.Principal != principal ||
		t.Agent != h.agent.Gateway.Agent().ID || time.Now().Unix() > t.Until {
		return nil
	}
	return &t
}

// session returns the session of a request. The caller must call release when the request has been answered. If there
// is no usable session, it returns nil, an HTTP status and a message for the client.
func (h *HTTP) session(r *http.Request, principal string) (p *httpSession, status int, why string) {
	ids := r.Header.Values("Mcp-Session-Id")
	if len(ids) != 1 {
		return nil, http.StatusBadRequest, "the request needs one Mcp-Session-Id header; send \"initialize\" first"
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if p = h.peers[ids[0]]; p != nil && p.peer.principal == principal && time.Now().Unix() <= p.until {
		p.acquire()
		return p, 0, ""
	}
	h.sweep()
	t := h.open(ids[0], principal)
	switch {
	case t == nil || !h.endedSessions[t.Key].IsZero():
		return nil, http.StatusNotFound, "the session is unknown or has ended; for a new one, send \"initialize\""
	case h.held[principal] >= h.most:
		return nil, http.StatusTooManyRequests, fmt.Sprintf("%s has reached its limit of %d open sessions with this agent; "+
			"end sessions with DELETE, or wait until idle sessions are released after %v", principal, h.most, h.o.Idle)
	case len(h.peers) >= maxPeers:
		return nil, http.StatusServiceUnavailable, "this server has reached its limit of open sessions; try again later"
	}
	h.held[principal]++
	p = &httpSession{h: h, key: t.Key, id: ids[0], until: t.Until}
	// The new peer needs a new key, because connections of the earlier peer may still be closing.
	p.peer = newPeer(h.agent, gateway.NewID(), principal, p.send)
	p.peer.greet(t.Capabilities)
	p.idle = time.AfterFunc(h.o.Idle, func() { h.drop(p, false) })
	h.peers[p.id] = p
	p.acquire()
	return p, 0, ""
}

// acquire increments the number of requests that use the session. The caller must call release when the request has
// been answered.
func (p *httpSession) acquire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users++
	p.idle.Stop()
}

// remember adds a session to endedSessions. If the map is full, remember deletes arbitrary other entries. The caller
// must hold the mutex.
func (h *HTTP) remember(p *httpSession) {
	h.endedSessions[p.key] = time.Unix(p.until+1, 0) // the session is valid until this second has ended
	for key := range h.endedSessions {
		if len(h.endedSessions) <= maxEnded {
			return
		}
		if key != p.key {
			delete(h.endedSessions, key)
		}
	}
}

// sweep deletes expired entries from endedSessions. The caller must hold the mutex.
func (h *HTTP) sweep() {
	now := time.Now()
	if now.Sub(h.swept) < time.Minute {
		return
	}
	h.swept = now
	for key, until := range h.endedSessions {
		if now.After(until) {
			delete(h.endedSessions, key)
		}
	}
}

// release decrements the number of requests that use the session. If the session stays idle, its state is released
// later.
func (p *httpSession) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users--; p.users == 0 {
		p.idle.Reset(p.h.o.Idle)
	}
}

// drop releases a session's state on this replica. The session itself stays valid. While requests use the session, drop
// does nothing unless inUse is true.
func (h *HTTP) drop(p *httpSession, inUse bool) {
	h.mu.Lock()
	p.mu.Lock()
	keep := h.peers[p.id] != p || p.users > 0 && !inUse
	p.mu.Unlock()
	if !keep {
		delete(h.peers, p.id)
		if h.held[p.peer.principal]--; h.held[p.peer.principal] == 0 {
			delete(h.held, p.peer.principal)
		}
	}
	h.mu.Unlock()
	if keep {
		return
	}
	p.mu.Lock()
	p.idle.Stop()
	closed := p.closed
	p.mu.Unlock()
	if closed != nil {
		closed()
	}
	p.peer.cleanUp()
}

// end answers a DELETE request, which a client sends to end its session.
func (h *HTTP) end(w http.ResponseWriter, r *http.Request, principal string) {
	p, status, why := h.session(r, principal)
	if status != 0 {
		http.Error(w, why, status)
		return
	}
	h.mu.Lock()
	h.remember(p)
	h.mu.Unlock()
	h.drop(p, true)
	w.WriteHeader(http.StatusNoContent)
}

// open adds s to the session's open replies. Messages from servers can be sent on an open reply. close removes s again.
func (p *httpSession) open(s *reply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replies = append(p.replies, s)
}

func (p *httpSession) close(s *reply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replies = slices.DeleteFunc(p.replies, func(other *reply) bool { return other == s })
}

// send sends a server's message to the client and reports whether that succeeded. It tries the open replies first,
// starting with the newest. Then it tries the stream that the client opened with GET.
func (p *httpSession) send(m message) bool {
	p.mu.Lock()
	ways := slices.Clone(p.replies)
	if p.stream != nil {
		ways = append([]*reply{p.stream}, ways...)
	}
	p.mu.Unlock()
	for _, s := range slices.Backward(ways) {
		if s.event(m) {
			return true
		}
	}
	return false
}

// get answers a GET request with a stream for messages that do not belong to a request. A new stream replaces the
// session's earlier stream, because the earlier connection may be broken.
func (h *HTTP) get(w http.ResponseWriter, r *http.Request, principal string, attributes *identity.Attributes) {
	version := r.Header.Get("Mcp-Protocol-Version")
	accepts := strings.Contains(r.Header.Get("Accept"), "text/event-stream")
	if version != "" && !slices.Contains(handshakes, version) || !accepts {
		w.Header().Set("Allow", "POST")
		http.Error(w, "GET requires the header Accept: text/event-stream "+
			"and a session of revision 2025-11-25 or earlier", http.StatusMethodNotAllowed)
		return
	}
	p, status, why := h.session(r, principal)
	if status != 0 {
		http.Error(w, why, status)
		return
	}
	defer p.release()
	p.peer.attributes.Store(attributes)
	stream, end := BeginStream(r.Context())
	defer end()
	ctx, cancel := context.WithCancel(stream)
	defer cancel()
	s := &reply{w: w, control: http.NewResponseController(w), stream: true, now: true}
	p.mu.Lock()
	if p.closed != nil {
		p.closed()
	}
	p.stream, p.closed = s, cancel
	p.mu.Unlock()
	events := h.agent.addSubscriber(p.peer.caller)
	defer h.agent.removeSubscriber(events)
	s.mu.Lock()
	s.write(":", nil)
	s.mu.Unlock()
	stop := s.beat(ctx)
	defer stop()
	p.peer.forward(ctx, events)
	s.mu.Lock()
	s.done = true
	s.mu.Unlock()
	p.mu.Lock()
	if p.stream == s {
		p.stream, p.closed = nil, nil
	}
	p.mu.Unlock()
}
