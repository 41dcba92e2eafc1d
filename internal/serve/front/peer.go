package front

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// peer is a client for which this replica has state: the client on stdio, or an HTTP session of the older protocol.
type peer struct {
	agent     *Agent
	key       string // unique among current peers; also the key of the client's own server connections
	principal string
	// questionPrefix begins the id of every question to the client.
	questionPrefix string
	// send sends a message to the client. It returns false if this is not possible, for example because no stream is open.
	send func(message) bool

	// attributes contains the attributes from the credential of the latest request. A client can renew its token within
	// a session.
	attributes atomic.Pointer[identity.Attributes]

	mu           sync.Mutex
	modern       bool
	capabilities jsontext.Value
	level        int                             // the minimum level of log messages
	watched      map[string]bool                 // the URIs of subscribed resources
	running      map[string]context.CancelFunc   // the cancel function of each open request, by request id
	asked        map[string]chan mcpwire.Message // the unanswered questions to the client, by id
	questions    int                             // the number of questions that were asked so far
	signIns      map[string]pendingSignIn        // the sign-ins that the client was asked for, by server
}

func newPeer(a *Agent, key, principal string, send func(message) bool) *peer {
	return &peer{
		agent: a, key: key, principal: principal, questionPrefix: "ambit-", send: send,
		watched: map[string]bool{}, running: map[string]context.CancelFunc{}, asked: map[string]chan mcpwire.Message{},
	}
}

const (
	// maxQuestions is the maximum number of unanswered questions to one client.
	maxQuestions = 32
	// maxWatched is the maximum number of resource subscriptions of one client.
	maxWatched = 1000
	// maxURI is the maximum size of a subscribed URI in bytes, because ambit keeps the URI until the client leaves.
	maxURI = 4 << 10
	// leaveTime is the time limit for the cleanup after a client has disconnected.
	leaveTime = 5 * time.Second
)

// caller returns the client as the caller of a tool.
func (p *peer) caller() *call.Call {
	return &call.Call{Principal: p.principal, Attributes: p.attributes.Load()}
}

func (p *peer) greet(capabilities jsontext.Value) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.capabilities = slices.Clone(capabilities)
}

// client returns a description of the client for the gateway and the servers.
func (p *peer) client() *call.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &call.Client{Key: p.key, Principal: p.principal, Notify: p.notify}
	if !p.modern {
		c.Capabilities, c.Asker = p.capabilities, p
	}
	return c
}

// Ask sends a request of the server that ctx names to the client, and waits for the answer.
func (p *peer) Ask(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error) {
	answered := make(chan mcpwire.Message, 1)
	p.mu.Lock()
	if len(p.asked) >= maxQuestions {
		p.mu.Unlock()
		return nil, fmt.Errorf("%d requests to the client are still unanswered, which is the limit", maxQuestions)
	}
	p.questions++
	id := strconv.Quote(p.questionPrefix + strconv.Itoa(p.questions))
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
	if alias := call.Asking(ctx); alias != "" {
		params = p.agent.named(alias, method, params)
	}
	question := encode([]byte(`{"jsonrpc":"2.0","id":`+id+`,"method":`), marshal(method), []byte(`,"params":`), params)
	if !p.send(question) {
		return nil, fmt.Errorf("the client has no open stream to receive the request")
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

// answered delivers the client's answer to the Ask call that waits for it. It drops answers to unknown questions.
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

// notify forwards a notification from a server connection that belongs to this client alone.
func (p *peer) notify(method string, params jsontext.Value) {
	p.mu.Lock()
	modern := p.modern
	p.mu.Unlock()
	switch {
	case modern && method != "notifications/message":
		// A client of the newer protocol gets this notification through its subscription.
		p.agent.Publish(method, params)
	case !modern && p.accepts(method, params):
		p.send(notification(method, withoutSubscription(params)))
	}
}

// forward sends events to the client until ctx is done.
func (p *peer) forward(ctx context.Context, s *subscriber) {
	s.signedIn = p.signedIn
	for {
		e, ok := p.agent.next(ctx, s)
		if !ok {
			return
		}
		if p.accepts(e.method, e.params) {
			p.send(notification(e.method, withoutSubscription(e.params)))
		}
	}
}

// accepts reports whether the client should get a notification.
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

// withoutSubscription removes the server's subscription id from the params of a notification.
func withoutSubscription(params jsontext.Value) jsontext.Value {
	if lookup(params, "_meta", metaSubscription) == nil {
		return params
	}
	return set(params, "_meta", without(lookup(params, "_meta"), metaSubscription))
}

// enter registers a request and returns a context for it. The context is canceled when the client cancels the request.
func (p *peer) enter(ctx context.Context, id jsontext.Value) (context.Context, *rpcError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.running[string(id)] != nil:
		return nil, &rpcError{Code: invalidRequest, Message: "a request with this id is still running"}
	case len(p.running) >= maxCalls:
		return nil, &rpcError{Code: internalError, Message: "the client has too many open requests"}
	}
	ctx, cancel := context.WithCancel(ctx)
	p.running[string(id)] = cancel
	return ctx, nil
}

// leave removes a request and reports whether the client still waits for the answer.
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

// cleanUp cancels the client's requests, ends its subscriptions and releases its connections.
func (p *peer) cleanUp() {
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
			r := &request{peer: p, principal: p.principal, notify: func(string, jsontext.Value) {}}
			a.watch(ctx, r, "resources/unsubscribe", uri, nil)
		}
	}
	p.agent.Release(p.key)
}
