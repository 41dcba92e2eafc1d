package front

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// peer is a client with state: the one on stdio, or a session of the older generation over HTTP.
type peer struct {
	agent     *Agent
	key       string // unique among the current peers; owns connections to servers
	principal string
	// send sends a message to the client; false if no stream is open.
	send func(message []byte) bool

	mu           sync.Mutex
	modern       bool
	capabilities jsontext.Value
	level        int             // minimum level of log messages
	watched      map[string]bool // resources
	running      map[string]context.CancelFunc
	asked        map[string]chan mcpwire.Message
	questions    int
}

func newPeer(a *Agent, key, principal string, send func([]byte) bool) *peer {
	return &peer{
		agent: a, key: key, principal: principal, send: send,
		watched: map[string]bool{}, running: map[string]context.CancelFunc{}, asked: map[string]chan mcpwire.Message{},
	}
}

const (
	// maxQuestions bounds the open questions to a client.
	maxQuestions = 32
	maxWatched   = 1000
	// leaveTime bounds the cleanup after a client that has gone.
	leaveTime = 5 * time.Second
)

// greet stores the client's capabilities.
func (p *peer) greet(capabilities jsontext.Value) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.capabilities = slices.Clone(capabilities)
}

// client describes the peer to the gateway and to servers.
func (p *peer) client() *call.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &call.Client{Key: p.key, Notify: p.notify}
	if !p.modern {
		c.Capabilities, c.Asker = p.capabilities, p
	}
	return c
}

// Ask asks the client and waits for its answer.
func (p *peer) Ask(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error) {
	answered := make(chan mcpwire.Message, 1)
	p.mu.Lock()
	if len(p.asked) >= maxQuestions {
		p.mu.Unlock()
		return nil, fmt.Errorf("the client has %d unanswered questions", maxQuestions)
	}
	p.questions++
	id := strconv.Quote("ambit-" + strconv.Itoa(p.questions))
	p.asked[id] = answered
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.asked, id)
		p.mu.Unlock()
	}()
	if len(params) == 0 {
		params = jsontext.Value("{}")
	}
	if !p.send(encode([]byte(`{"jsonrpc":"2.0","id":`), []byte(id), []byte(`,"method":`), marshal(method), []byte(`,"params":`), params)) {
		return nil, fmt.Errorf("the client has no open stream for questions")
	}
	select {
	case m := <-answered:
		if m.Error != nil {
			return nil, &call.Answer{Raw: m.Error}
		}
		return m.Result, nil
	case <-ctx.Done():
		p.send(notification("notifications/cancelled", jsontext.Value(`{"requestId":`+id+`}`)))
		return nil, ctx.Err()
	}
}

// answered handles the client's answer to a question.
func (p *peer) answered(m mcpwire.Message) {
	m.Result, m.Error = slices.Clone(m.Result), slices.Clone(m.Error)
	p.mu.Lock()
	waiting := p.asked[string(m.ID)]
	delete(p.asked, string(m.ID))
	p.mu.Unlock()
	if waiting != nil {
		waiting <- m
	}
}

func (p *peer) setLevel(level string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.level = slices.Index(levels, level)
}

func (p *peer) watch(uri string, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !on {
		delete(p.watched, uri)
	} else if len(p.watched) < maxWatched {
		p.watched[uri] = true
	}
}

// notify passes on a notification from a connection that this client owns.
func (p *peer) notify(method string, params jsontext.Value) {
	p.mu.Lock()
	modern := p.modern
	p.mu.Unlock()
	switch {
	case modern && method != "notifications/message":
		p.agent.Publish(method, params) // for its subscriptions
	case !modern && p.accepts(method, params):
		p.send(notification(method, bare(params)))
	}
}

// forward sends the client the notifications of a subscriber until ctx ends.
func (p *peer) forward(ctx context.Context, s *subscriber) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-s.events:
			if p.accepts(e.method, e.params) {
				p.send(notification(e.method, bare(e.params)))
			}
		}
	}
}

// accepts reports whether this client gets a notification.
func (p *peer) accepts(method string, params jsontext.Value) bool {
	switch method {
	case "notifications/tools/list_changed", "notifications/elicitation/complete":
		return true
	case "notifications/prompts/list_changed":
		return p.agent.exposes(gateway.Prompts)
	case "notifications/resources/list_changed":
		return p.agent.exposes(gateway.Resources)
	case "notifications/resources/updated":
		uri, _ := text(lookup(params, "uri"))
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.watched[uri]
	case "notifications/message":
		level, _ := text(lookup(params, "level"))
		p.mu.Lock()
		defer p.mu.Unlock()
		return slices.Index(levels, level) >= p.level
	}
	return false
}

// bare removes a server's own subscription id from a notification.
func bare(params jsontext.Value) jsontext.Value {
	if lookup(params, "_meta", metaSubscription) == nil {
		return params
	}
	return set(params, "_meta", without(lookup(params, "_meta"), metaSubscription))
}

// enter returns the context of a request, which the client can cancel.
func (p *peer) enter(ctx context.Context, id jsontext.Value) (context.Context, *rpcError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.running[string(id)] != nil:
		return nil, &rpcError{Code: invalidRequest, Message: "a request with this id is still running"}
	case len(p.running) >= maxCalls:
		return nil, &rpcError{Code: internalError, Message: "too many open calls"}
	}
	ctx, cancel := context.WithCancel(ctx)
	p.running[string(id)] = cancel
	return ctx, nil
}

// leave ends a request and reports whether the client still waits for its answer.
func (p *peer) leave(ctx context.Context, id jsontext.Value) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := ctx.Err() == nil
	p.running[string(id)]()
	delete(p.running, string(id))
	return wanted
}

func (p *peer) cancel(params jsontext.Value) {
	id := lookup(params, "requestId")
	p.mu.Lock()
	defer p.mu.Unlock()
	if stop := p.running[string(id)]; stop != nil {
		stop()
	}
}

func (p *peer) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.running) > 0
}

// gone releases everything that the client holds.
func (p *peer) gone() {
	p.mu.Lock()
	for _, stop := range p.running {
		stop()
	}
	watched := slices.Collect(maps.Keys(p.watched))
	p.mu.Unlock()
	if a := p.agent; len(watched) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
		defer cancel()
		for _, uri := range watched {
			a.watch(ctx, &request{peer: p, principal: p.principal, notify: func(string, jsontext.Value) {}}, "resources/unsubscribe", uri)
		}
	}
	if p.agent.Release != nil {
		p.agent.Release(p.key)
	}
}
