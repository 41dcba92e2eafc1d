package front

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway"
)

// token is the sealed content of a session id. It gives any replica the whole session.
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
	// maxEnded bounds how many ended sessions are remembered. A session that is forgotten early
	// can be used again only by its principal, with a valid key.
	maxEnded = 10000
)

// httpSession is the state of an HTTP session on this replica.
type httpSession struct {
	h     *HTTP
	peer  *peer
	key   string // key of its token
	id    string // the session id that opened it
	until int64

	mu      sync.Mutex
	replies []*reply // open answers, which can carry messages of servers
	stream  *reply   // the stream that the client opened for other messages
	closed  func()   // closes the stream
	users   int
	idle    *time.Timer
}

// initialize begins a session.
func (h *HTTP) initialize(ctx context.Context, s *reply, req *request) {
	a := h.agent
	capabilities := a.offered(lookup(req.Params, "capabilities"))
	result, _ := a.initialize(ctx, req)
	version, _ := text(lookup(result, "protocolVersion"))
	plain, err := json.Marshal(token{
		Key: gateway.NewID(), Principal: req.principal, Agent: a.Gateway.Agent().ID, Version: version,
		Capabilities: capabilities, Until: time.Now().Add(h.o.SessionLife).Unix(),
	})
	if err != nil {
		s.fail(http.StatusInternalServerError, req.ID, &rpcError{Code: internalError, Message: "the session cannot be created"})
		return
	}
	s.w.Header()["Mcp-Session-Id"] = []string{base64.RawURLEncoding.EncodeToString(h.o.Keys.Seal(tokenPurpose, plain))}
	s.finish(http.StatusOK, answer(req.ID, result, nil))
}

// open decodes a session id; nil if it is invalid, or belongs to another agent or principal.
func (h *HTTP) open(id, principal string) *token {
	if len(id) > maxToken {
		return nil
	}
	sealed, err := base64.RawURLEncoding.DecodeString(id)
	if err != nil {
		return nil
	}
	plain, err := h.o.Keys.Open(tokenPurpose, sealed)
	if err != nil {
		return nil
	}
	var t token
	if json.Unmarshal(plain, &t) != nil || t.Principal != principal || t.Agent != h.agent.Gateway.Agent().ID || time.Now().Unix() > t.Until {
		return nil
	}
	return &t
}

// session finds the session of a request. The caller must release it.
func (h *HTTP) session(r *http.Request, principal string) (p *httpSession, status int, why string) {
	ids := r.Header.Values("Mcp-Session-Id")
	if len(ids) != 1 {
		return nil, http.StatusBadRequest, "the request needs one Mcp-Session-Id: begin with initialize"
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if p = h.opened[ids[0]]; p != nil && p.peer.principal == principal && time.Now().Unix() <= p.until {
		p.use()
		return p, 0, ""
	}
	h.sweep()
	t := h.open(ids[0], principal)
	if t == nil || !h.ended[t.Key].IsZero() {
		return nil, http.StatusNotFound, "the session is unknown or has ended: begin again with initialize"
	}
	p = h.peers[t.Key]
	if p == nil {
		switch {
		case h.held[principal] >= h.most:
			return nil, http.StatusTooManyRequests, fmt.Sprintf("%s has reached its limit of %d open sessions with this agent: "+
				"end sessions with DELETE, or wait until idle ones are released after %v", principal, h.most, h.o.Idle)
		case len(h.peers) >= maxPeers:
			return nil, http.StatusServiceUnavailable, "too many open sessions"
		}
		h.held[principal]++
		p = &httpSession{h: h, key: t.Key, id: ids[0], until: t.Until}
		// Connections of an earlier peer of the session may still be closing, so this peer gets
		// its own key.
		p.peer = newPeer(h.agent, gateway.NewID(), principal, p.send)
		p.peer.greet(t.Capabilities)
		p.idle = time.AfterFunc(h.o.Idle, func() { h.drop(p, false) })
		h.peers[t.Key], h.opened[p.id] = p, p
	}
	p.use()
	return p, 0, ""
}

// use counts a request of the session; release ends it.
func (p *httpSession) use() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users++
	p.idle.Stop()
}

// forget removes a session from this replica. The caller holds the lock.
func (h *HTTP) forget(p *httpSession) {
	delete(h.peers, p.key)
	delete(h.opened, p.id)
	if h.held[p.peer.principal]--; h.held[p.peer.principal] == 0 {
		delete(h.held, p.peer.principal)
	}
}

// remember records that a session has ended, and forgets another if there are too many. The caller
// holds the lock.
func (h *HTTP) remember(p *httpSession) {
	h.ended[p.key] = time.Unix(p.until+1, 0) // the last second is included
	for key := range h.ended {
		if len(h.ended) <= maxEnded {
			return
		}
		if key != p.key {
			delete(h.ended, key)
		}
	}
}

// sweep forgets ended sessions that have expired. The caller holds the lock.
func (h *HTTP) sweep() {
	now := time.Now()
	if now.Sub(h.swept) < time.Minute {
		return
	}
	h.swept = now
	for key, until := range h.ended {
		if now.After(until) {
			delete(h.ended, key)
		}
	}
}

// release ends a request of the session.
func (p *httpSession) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users--; p.users == 0 {
		p.idle.Reset(p.h.o.Idle)
	}
}

// drop releases a session's state, unless the session is in use. The session stays valid.
func (h *HTTP) drop(p *httpSession, inUse bool) {
	h.mu.Lock()
	p.mu.Lock()
	keep := h.peers[p.key] != p || p.users > 0 && !inUse
	p.mu.Unlock()
	if !keep {
		h.forget(p)
	}
	h.mu.Unlock()
	if !keep {
		p.leave()
	}
}

// leave releases everything that the session holds here.
func (p *httpSession) leave() {
	p.mu.Lock()
	p.idle.Stop()
	closed := p.closed
	p.mu.Unlock()
	if closed != nil {
		closed()
	}
	p.peer.gone()
}

// end ends a session at the client's request.
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

// open lets an answer carry messages of servers.
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

// send sends a message to the client: on an open answer, or else on the stream that it opened.
func (p *httpSession) send(message []byte) bool {
	p.mu.Lock()
	ways := slices.Clone(p.replies)
	if p.stream != nil {
		ways = append([]*reply{p.stream}, ways...)
	}
	p.mu.Unlock()
	for _, s := range slices.Backward(ways) {
		if s.event(message) {
			return true
		}
	}
	return false
}

// get opens the session's stream for messages that belong to no request. A new stream replaces the
// old one, which may be dead.
func (h *HTTP) get(w http.ResponseWriter, r *http.Request, principal string) {
	version := r.Header.Get("Mcp-Protocol-Version")
	if version != "" && !slices.Contains(handshakes, version) || !strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		w.Header().Set("Allow", "POST")
		http.Error(w, "GET requires a session of revision 2025-11-25 or earlier and Accept: text/event-stream", http.StatusMethodNotAllowed)
		return
	}
	p, status, why := h.session(r, principal)
	if status != 0 {
		http.Error(w, why, status)
		return
	}
	defer p.release()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	s := &reply{w: w, control: http.NewResponseController(w), stream: true, now: true}
	p.mu.Lock()
	if p.closed != nil {
		p.closed()
	}
	p.stream, p.closed = s, cancel
	p.mu.Unlock()
	events := h.agent.addSubscriber()
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
