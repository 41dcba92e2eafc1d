package toolserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// Clients do not notice when a server restarts. ambit therefore renews their subscriptions when the server is running
// again. It asks the gateway before each renewal, because the rules may have changed.

// watch is a resource that clients watch through the shared connection.
type watch struct {
	// clients contains the subscriptions of each client, by client key. A client can cancel only its own
	// subscriptions. Clients without a key share the key "".
	clients map[string][]*call.Forward
	uri     jsontext.Value
	conn    *mcpwire.Conn      // connection that carries the subscription
	cancel  context.CancelFunc // cancels the subscription; nil in the older protocol generation

	answered chan struct{} // closed when the server has accepted or refused the subscription
	result   jsontext.Value
	err      error
}

// leave removes one subscription of a client and principal. It returns true if no subscription is left.
func (w *watch) leave(key, principal string) bool {
	list := w.clients[key]
	at := max(0, slices.IndexFunc(list, func(f *call.Forward) bool { return f.Principal == principal }))
	if w.clients[key] = slices.Delete(list, at, at+1); len(w.clients[key]) == 0 {
		delete(w.clients, key)
	}
	return len(w.clients) == 0
}

// privateWatches holds the resources that a client watches through its separate connection.
type privateWatches struct {
	client *call.Client
	uris   map[string]*call.Forward
	forgot bool // whether the server may have lost these subscriptions
}

// watch adds a client's subscription to a resource. For the first subscription, it sends a request over the shared
// connection. All clients get the answer to this request, even if the first client cancels.
func (s *server) watch(ctx context.Context, key, uri string, f *call.Forward) (jsontext.Value, error) {
	conn, err := s.ready(ctx)
	if err != nil {
		return nil, err
	}
	quoted, err := json.Marshal(uri)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	w := s.watched[uri]
	if w == nil {
		if len(s.watched) >= maxOwned {
			s.mu.Unlock()
			return nil, call.Refuse(stage, call.ServerUnavailable,
				"the limit of %d watched resources on server %s is reached", maxOwned, s.alias)
		}
		if s.watched == nil {
			s.watched = map[string]*watch{}
		}
		w = &watch{clients: map[string][]*call.Forward{}, uri: quoted, answered: make(chan struct{})}
		s.watched[uri] = w
		go s.askFirst(uri, w, s.begin(uri, w, conn))
	}
	w.clients[key] = append(w.clients[key], f)
	s.mu.Unlock()
	select {
	case <-w.answered:
		return w.result, w.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watched[uri] == w && slices.Contains(w.clients[key], f) && w.leave(key, f.Principal) {
		s.drop(uri, w)
	}
	return nil, ctx.Err()
}

// askFirst sends the first subscribe request for a resource and stores the answer for all clients.
func (s *server) askFirst(uri string, w *watch, ask func(context.Context) (jsontext.Value, error)) {
	ctx, cancel := context.WithTimeout(s.ctx, s.options.startTimeout)
	defer cancel()
	result, err := s.try(ctx, ask)
	s.mu.Lock()
	defer s.mu.Unlock()
	w.result, w.err = result, err
	close(w.answered)
	if err != nil || len(w.clients) == 0 {
		s.drop(uri, w) // the server may have accepted the subscription even after an error
	}
}

// begin assigns a subscription to a connection. The returned function sends the subscribe request. The caller holds
// the mutex.
func (s *server) begin(uri string, w *watch, conn *mcpwire.Conn) (ask func(context.Context) (jsontext.Value, error)) {
	if w.cancel != nil {
		w.cancel()
	}
	w.conn, w.cancel = conn, nil
	if !conn.Server().Modern {
		return func(ctx context.Context) (jsontext.Value, error) { return subscribe(ctx, conn, methodSubscribe, w.uri) }
	}
	watching, cancel := context.WithCancel(s.ctx)
	w.cancel = cancel
	return func(context.Context) (jsontext.Value, error) {
		params := slices.Concat([]byte(`{"notifications":{"resourceSubscriptions":[`), w.uri, []byte(`]}}`))
		go func() {
			defer cancel()
			defer s.contain(nil)
			s.listen(watching, conn, mcpwire.Request{Method: "subscriptions/listen", Params: params},
				func(ctx context.Context) bool { return s.stillWatched(ctx, uri, w) })
		}()
		return jsontext.Value("{}"), nil
	}
}

// listen keeps a subscription of the newer protocol generation open until ctx is cancelled, the connection is closed
// or the server refuses the request. Updates arrive as notifications. The server answers the request only when the
// subscription ends. If the subscription is still wanted, listen then sends the request again after a pause. The
// pauses grow with each attempt. If the server could not be reached, the next call to the server ends the pause
// early.
func (s *server) listen(ctx context.Context, conn *mcpwire.Conn, r mcpwire.Request, wanted func(context.Context) bool) {
	clock := s.options.clock
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		began := clock.Now()
		_, err := conn.Do(ctx, r)
		if ctx.Err() != nil || conn.Err() != nil {
			return
		}
		status, _ := errors.AsType[*mcpwire.HTTPError](err)
		_, refused := errors.AsType[*mcpwire.RPCError](err)
		if refused && (status == nil || status.Status < http.StatusInternalServerError) {
			s.warn(fmt.Sprintf("the server refused to watch a resource: %v", err))
			return
		}
		if clock.Now().Sub(began) > longestPause {
			pause = firstPause
		}
		var called <-chan struct{}
		if errors.Is(err, mcpwire.ErrNotSent) {
			called = s.nextCall()
		}
		select {
		case <-clock.After(jitter(pause, rand.Float64())):
		case <-called:
		case <-ctx.Done():
		}
		if ctx.Err() != nil || !wanted(ctx) {
			return
		}
	}
}

// stillWatched asks the gateway about each subscription to a resource, and ends the subscriptions that the gateway no
// longer allows. It reports whether any subscription remains.
func (s *server) stillWatched(ctx context.Context, uri string, w *watch) bool {
	s.mu.Lock()
	clients := make(map[string][]*call.Forward, len(w.clients))
	for key, list := range w.clients {
		clients[key] = slices.Clone(list)
	}
	s.mu.Unlock()
	refused := map[*call.Forward]bool{}
	for _, list := range clients {
		for _, f := range list {
			refused[f] = s.refuses(ctx, f)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range clients {
		w.clients[key] = slices.DeleteFunc(w.clients[key], func(f *call.Forward) bool { return refused[f] })
		if len(w.clients[key]) == 0 {
			delete(w.clients, key)
		}
	}
	if len(w.clients) == 0 {
		s.forget(uri, w)
	}
	return ctx.Err() == nil && s.watched[uri] == w && len(w.clients) > 0
}

// refuses reports whether the gateway refuses to renew a subscription. It logs the reason. A panic of the gateway
// counts as a refusal.
func (s *server) refuses(ctx context.Context, f *call.Forward) bool {
	_, err := s.try(ctx, func(ctx context.Context) (jsontext.Value, error) { return nil, f.Allowed(ctx) })
	if err == nil || ctx.Err() != nil { // if ctx has ended, do not renew any subscription
		return false
	}
	s.warn(fmt.Sprintf("the subscription to a resource was not renewed: %v", err))
	return true
}

// nextCall returns a channel that is closed at the next call to the server.
func (s *server) nextCall() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.called == nil {
		s.called = make(chan struct{})
	}
	return s.called
}

func subscribe(ctx context.Context, conn *mcpwire.Conn, method string, uri jsontext.Value) (jsontext.Value, error) {
	return conn.Do(ctx, mcpwire.Request{Method: method, Params: slices.Concat([]byte(`{"uri":`), uri, []byte(`}`))})
}

// unwatch removes one subscription of a client from the shared connection. It returns false if the client had no
// subscription. If no subscription to the resource is left, ambit unsubscribes from the resource. The server need not
// be running.
func (s *server) unwatch(key, uri, principal string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.watched[uri]
	if w == nil || len(w.clients[key]) == 0 {
		return false
	}
	if w.leave(key, principal) {
		s.drop(uri, w)
	}
	return true
}

// drop cancels a subscription that failed or has no clients. It does nothing while the subscribe request is
// unanswered, because the unsubscribe request could overtake it. In this case, [server.askFirst] calls drop again
// after the answer. The caller holds the mutex.
func (s *server) drop(uri string, w *watch) {
	if !s.forget(uri, w) || w.cancel != nil {
		return
	}
	conn := w.conn
	go func() {
		defer s.contain(nil)
		_, _ = subscribe(s.ctx, conn, methodUnsubscribe, w.uri)
	}()
}

// forget is like drop, but sends no unsubscribe request. If the subscribe request is still unanswered, forget does
// nothing and returns false.
func (s *server) forget(uri string, w *watch) bool {
	select {
	case <-w.answered:
	default:
		return false
	}
	if s.watched[uri] == w {
		delete(s.watched, uri)
	}
	if w.cancel != nil {
		w.cancel()
	}
	return true
}

// unwatchAll cancels all subscriptions of a client. The caller holds the mutex.
func (s *server) unwatchAll(key string) {
	delete(s.private, key)
	for uri, w := range s.watched {
		if len(w.clients[key]) > 0 {
			if delete(w.clients, key); len(w.clients) == 0 {
				s.drop(uri, w)
			}
		}
	}
}

// notePrivate records that a client has subscribed or unsubscribed over its separate connection.
func (s *server) notePrivate(f *call.Forward, uri string) {
	c := f.Client
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.private[c.Key]
	switch {
	case f.Method == methodUnsubscribe:
		if a != nil {
			delete(a.uris, uri)
		}
		return
	case s.owned[c.Key] == nil:
		return // the client has disconnected
	case s.private == nil:
		s.private = map[string]*privateWatches{}
	}
	if a == nil {
		a = &privateWatches{client: c, uris: map[string]*call.Forward{}}
		s.private[c.Key] = a
	}
	a.uris[uri] = f
}

// handleGap is called if notifications of the shared connection may have been lost. It requests a verification,
// because the tools may have changed. The parameter reports whether the server may also have lost its subscriptions.
func (s *server) handleGap(forgotten bool) {
	s.mu.Lock()
	s.forgot = s.forgot || forgotten
	s.mu.Unlock()
	s.requestRecheck()
}

// handleClientGap is like handleGap, but for a client's separate connection.
func (s *server) handleClientGap(key string, forgotten bool) {
	s.mu.Lock()
	if a := s.private[key]; a != nil {
		a.forgot = a.forgot || forgotten
	}
	s.mu.Unlock()
	s.requestRecheck()
}

// resubscribe renews, in the background, the subscriptions that a verified server may have lost. The caller holds the
// mutex. If the server has subscriptions, the caller must run in a goroutine of s.done, because the counter of s.done
// must not be zero when another goroutine is added.
func (s *server) resubscribe(conn *mcpwire.Conn) {
	all := s.forgot
	s.forgot = false
	var asks []func(context.Context) (jsontext.Value, error)
	for uri, w := range s.watched {
		if !all {
			break
		}
		ask := s.begin(uri, w, conn)
		asks = append(asks, func(ctx context.Context) (jsontext.Value, error) {
			if !s.stillWatched(ctx, uri, w) {
				return nil, nil
			}
			return ask(ctx)
		})
	}
	for _, a := range s.private {
		if !all && !a.forgot {
			continue
		}
		a.forgot = false
		for uri, f := range a.uris {
			asks = append(asks, func(ctx context.Context) (jsontext.Value, error) {
				if s.refuses(ctx, f) {
					s.mu.Lock()
					defer s.mu.Unlock()
					if a.uris[uri] == f {
						delete(a.uris, uri)
					}
					return nil, nil
				}
				own, err := s.ownIfWatching(ctx, a)
				if own == nil || err != nil {
					return nil, err
				}
				return own.Do(ctx, mcpwire.Request{Method: methodSubscribe, Params: f.Params})
			})
		}
	}
	if len(asks) == 0 {
		return
	}
	s.done.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, s.options.startTimeout)
		defer cancel()
		for _, ask := range asks {
			if _, err := s.try(ctx, ask); err != nil {
				s.warn(fmt.Sprintf("the subscription to a resource could not be renewed: %v", err))
			}
		}
	})
}

// ownIfWatching returns the client's separate connection. It returns nil if the client no longer watches any
// resource.
func (s *server) ownIfWatching(ctx context.Context, a *privateWatches) (*mcpwire.Conn, error) {
	here := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.private[a.client.Key] == a
	}
	if !here() {
		return nil, nil
	}
	conn, err := s.ownConn(ctx, a.client)
	if !here() {
		s.release(a.client.Key)
		return nil, nil
	}
	return conn, err
}
