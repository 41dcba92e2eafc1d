package front

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// peer is a client that stays: the one on stdio, or a session of the older
// generation over HTTP.
type peer struct {
	agent     *Agent
	key       string // by which it owns connections: no other has it at the same time
	principal string
	// send takes a message to the client; false if there is no way at present.
	send func(message []byte) bool

	mu           sync.Mutex
	modern       bool
	capabilities jsontext.Value
	level        int             // of log messages; those below it are not wanted
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
	// maxQuestions bounds what a client is asked at the same time.
	maxQuestions = 32
	maxWatched   = 1000
	// leaveTime bounds what is done for a client that has gone.
	leaveTime = 5 * time.Second
)

// greet keeps what the client said it can be asked.
func (p *peer) greet(capabilities jsontext.Value) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.capabilities = slices.Clone(capabilities)
}

// client is the peer, for the gateway and servers.
func (p *peer) client() *call.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &call.Client{Key: p.key, Notify: p.tell}
	if !p.modern {
		c.Capabilities, c.Asker = p.capabilities, p
	}
	return c
}

// Ask asks the client something and waits for its answer.
func (p *peer) Ask(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error) {
	answered := make(chan mcpwire.Message, 1)
	p.mu.Lock()
	if len(p.asked) >= maxQuestions {
		p.mu.Unlock()
		return nil, fmt.Errorf("the client is being asked too much at once")
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
		return nil, fmt.Errorf("the client has no stream open to be asked by")
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

// answered takes the client's answer to a question of ours.
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

// tell hands on what a server says by a connection that this client owns.
func (p *peer) tell(method string, params jsontext.Value) {
	p.mu.Lock()
	modern := p.modern
	p.mu.Unlock()
	switch {
	case modern && method != "notifications/message":
		p.agent.Publish(method, params) // its subscribers hear it
	case !modern && p.wants(method, params):
		p.send(notification(method, bare(params)))
	}
}

// hear sends the client the notifications of an ear, until ctx ends.
func (p *peer) hear(ctx context.Context, e *ear) {
	for {
		select {
		case <-ctx.Done():
			return
		case happened := <-e.heard:
			if p.wants(happened.method, happened.params) {
				p.send(notification(happened.method, bare(happened.params)))
			}
		}
	}
}

// wants reports whether this client is to hear a notification.
func (p *peer) wants(method string, params jsontext.Value) bool {
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

// bare takes a server's mark of its own subscription off a notification.
func bare(params jsontext.Value) jsontext.Value {
	if lookup(params, "_meta", metaSubscription) == nil {
		return params
	}
	return set(params, "_meta", without(lookup(params, "_meta"), metaSubscription))
}

// enter makes the context of a request, which can be cancelled from here on.
func (p *peer) enter(ctx context.Context, id jsontext.Value) (context.Context, *rpcError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.running[string(id)] != nil:
		return nil, &rpcError{Code: invalidRequest, Message: "a request of this id is still running"}
	case len(p.running) >= maxCalls:
		return nil, &rpcError{Code: internalError, Message: "too many calls at once"}
	}
	ctx, cancel := context.WithCancel(ctx)
	p.running[string(id)] = cancel
	return ctx, nil
}

// leave ends a request and reports whether its answer is still wanted.
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

// gone ends everything that the client has of the agent.
func (p *peer) gone() {
	p.mu.Lock()
	for _, stop := range p.running {
		stop()
	}
	var watched []string
	for uri := range p.watched {
		watched = append(watched, uri)
	}
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
