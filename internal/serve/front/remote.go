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

// token is what a session id holds, sealed. With it, any replica knows whom it
// is talking to.
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
	// maxEnded bounds how many sessions are remembered as ended. A session that is
	// forgotten early opens again only to its principal, with a good key.
	maxEnded = 10000
)

// remote is a session over HTTP, as far as it holds something here.
type remote struct {
	h     *HTTP
	peer  *peer
	key   string // of its token
	id    string // the session id that opened it
	until int64

	mu      sync.Mutex
	replies []*reply // the answers under way, which can carry what servers say
	stream  *reply   // the stream that the client opened for the rest
	closed  func()   // ends it
	users   int
	idle    *time.Timer
}

// initialize begins a session.
func (h *HTTP) initialize(ctx context.Context, s *reply, a *Agent, req *request) {
	capabilities := a.offered(lookup(req.Params, "capabilities"))
	result, _ := a.initialize(ctx, req)
	version, _ := text(lookup(result, "protocolVersion"))
	plain, err := json.Marshal(token{
		Key: gateway.NewID(), Principal: req.principal, Agent: a.Door.Agent().ID, Version: version,
		Capabilities: capabilities, Until: time.Now().Add(h.o.SessionLife).Unix(),
	})
	if err != nil {
		s.fail(http.StatusInternalServerError, req.ID, &rpcError{Code: internalError, Message: "the session cannot be made"})
		return
	}
	s.w.Header()["Mcp-Session-Id"] = []string{base64.RawURLEncoding.EncodeToString(h.o.Keys.Seal(tokenPurpose, plain))}
	s.finish(http.StatusOK, answer(req.ID, result, nil))
}

// open reads a session id; nil if it is none of ours, or not for this agent and
// principal.
func (h *HTTP) open(id string, a *Agent, principal string) *token {
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
	if json.Unmarshal(plain, &t) != nil || t.Principal != principal || t.Agent != a.Door.Agent().ID || time.Now().Unix() > t.Until {
		return nil
	}
	return &t
}

// session finds the session of a request. It must be left with rest.
func (h *HTTP) session(r *http.Request, a *Agent, principal string) (p *remote, status int, why string) {
	ids := r.Header.Values("Mcp-Session-Id")
	if len(ids) != 1 {
		return nil, http.StatusBadRequest, "the request has no Mcp-Session-Id: begin with initialize"
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if p = h.opened[ids[0]]; p != nil && p.peer.agent == a && p.peer.principal == principal && time.Now().Unix() <= p.until {
		p.use()
		return p, 0, ""
	}
	h.sweep()
	t := h.open(ids[0], a, principal)
	if t == nil || !h.ended[t.Key].IsZero() {
		return nil, http.StatusNotFound, "there is no such session: begin again with initialize"
	}
	p = h.peers[t.Key]
	if p != nil && p.peer.agent != a { // the agent was loaded anew
		h.forget(p)
		go p.leave()
		p = nil
	}
	if p == nil {
		switch {
		case h.held[principal] >= h.most:
			return nil, http.StatusTooManyRequests, fmt.Sprintf("%s has %d sessions open with this agent, and more are not taken: end some with DELETE, or wait until idle ones are let go after %v", principal, h.most, h.o.Idle)
		case len(h.peers) >= maxPeers:
			return nil, http.StatusServiceUnavailable, "too many sessions at once"
		}
		h.held[principal]++
		p = &remote{h: h, key: t.Key, id: ids[0], until: t.Until}
		// The connections of an earlier peer of the session may still be ending: this
		// peer has a key of its own.
		p.peer = newPeer(a, gateway.NewID(), principal, p.send)
		p.peer.greet(t.Capabilities)
		p.idle = time.AfterFunc(h.o.Idle, func() { h.drop(p, false) })
		h.peers[t.Key], h.opened[p.id] = p, p
	}
	p.use()
	return p, 0, ""
}

// use counts a request of the session. It ends with rest.
func (p *remote) use() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users++
	p.idle.Stop()
}

// forget takes a session out of what is held here. The caller has the lock.
func (h *HTTP) forget(p *remote) {
	delete(h.peers, p.key)
	delete(h.opened, p.id)
	if h.held[p.peer.principal]--; h.held[p.peer.principal] == 0 {
		delete(h.held, p.peer.principal)
	}
}

// remember takes note that a session has ended, and forgets another if there are
// too many. The caller holds the lock.
func (h *HTTP) remember(p *remote) {
	h.ended[p.key] = time.Unix(p.until+1, 0) // it is good during its last second
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

// rest ends a request of the session.
func (p *remote) rest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users--; p.users == 0 {
		p.idle.Reset(p.h.o.Idle)
	}
}

// drop ends what a session holds here, unless it is in use. The session itself
// stays good.
func (h *HTTP) drop(p *remote, inUse bool) {
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

// leave ends everything that the session holds here.
func (p *remote) leave() {
	p.mu.Lock()
	p.idle.Stop()
	closed := p.closed
	p.mu.Unlock()
	if closed != nil {
		closed()
	}
	p.peer.gone()
}

// end ends a session for its client.
func (h *HTTP) end(w http.ResponseWriter, r *http.Request, a *Agent, principal string) {
	p, status, why := h.session(r, a, principal)
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

// open makes an answer one that can carry what servers say meanwhile.
func (p *remote) open(s *reply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replies = append(p.replies, s)
}

func (p *remote) close(s *reply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replies = slices.DeleteFunc(p.replies, func(other *reply) bool { return other == s })
}

// send takes a message to the client: by the answer that is under way, else by
// the stream that it opened.
func (p *remote) send(message []byte) bool {
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

// get opens the stream of a session for what belongs to no request. A new one
// takes the place of an old one, which may be dead without anybody knowing.
func (h *HTTP) get(w http.ResponseWriter, r *http.Request, a *Agent, principal string) {
	version := r.Header.Get("Mcp-Protocol-Version")
	if version != "" && !slices.Contains(handshakes, version) || !strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		w.Header().Set("Allow", "POST")
		http.Error(w, "a stream is for a session of 2025-11-25 or before, and for a client that accepts text/event-stream", http.StatusMethodNotAllowed)
		return
	}
	p, status, why := h.session(r, a, principal)
	if status != 0 {
		http.Error(w, why, status)
		return
	}
	defer p.rest()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	s := &reply{w: w, control: http.NewResponseController(w), stream: true, now: true}
	p.mu.Lock()
	if p.closed != nil {
		p.closed()
	}
	p.stream, p.closed = s, cancel
	p.mu.Unlock()
	e := a.listen()
	defer a.deafen(e)
	s.mu.Lock()
	s.write(":", nil)
	s.mu.Unlock()
	stop := s.beat(ctx)
	defer stop()
	p.peer.hear(ctx, e)
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	p.mu.Lock()
	if p.stream == s {
		p.stream, p.closed = nil, nil
	}
	p.mu.Unlock()
}
