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

// Subscriptions outlive their connection. Clients do not learn that a server was restarted, so ambit renews
// the subscriptions.

// watch is a resource that is watched by clients of the shared connection.
type watch struct {
	// by counts the subscriptions of each client, by key, so that no client ends the subscription of
	// another. Clients without a key count as one.
	by     map[string]int
	uri    jsontext.Value
	conn   *mcpwire.Conn      // the connection of the subscription
	cancel context.CancelFunc // ends it there; nil in the older generation

	answered chan struct{} // closed when the server accepted or refused
	result   jsontext.Value
	err      error
}

// leave removes one subscription of a client and reports whether none is left.
func (w *watch) leave(key string) bool {
	if w.by[key] > 1 {
		w.by[key]--
		return false
	}
	delete(w.by, key)
	return len(w.by) == 0
}

// privateWatches are the resources that a client watches over its own connection.
type privateWatches struct {
	client *call.Client
	uris   map[string]jsontext.Value
	forgot bool // the server may have lost them
}

// watch subscribes to a resource over the shared connection, if the client is the first. All clients share
// the answer, and the first client's cancellation does not affect the others.
func (s *server) watch(ctx context.Context, key, uri string) (jsontext.Value, error) {
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
			return nil, call.Refuse(stage, call.ServerUnavailable, "too many resources of server %s are watched", s.alias)
		}
		if s.watched == nil {
			s.watched = map[string]*watch{}
		}
		w = &watch{by: map[string]int{}, uri: quoted, answered: make(chan struct{})}
		s.watched[uri] = w
		go s.askFirst(uri, w, s.begin(w, conn))
	}
	w.by[key]++
	s.mu.Unlock()
	select {
	case <-w.answered:
		return w.result, w.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watched[uri] == w && w.by[key] > 0 && w.leave(key) {
		s.drop(uri, w)
	}
	return nil, ctx.Err()
}

// askFirst subscribes to a resource that no other client watches.
func (s *server) askFirst(uri string, w *watch, ask func(context.Context) (jsontext.Value, error)) {
	ctx, cancel := context.WithTimeout(s.ctx, s.options.startTimeout)
	defer cancel()
	result, err := ask(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	w.result, w.err = result, err
	close(w.answered)
	if err != nil || len(w.by) == 0 {
		s.drop(uri, w) // after an error the server may still have subscribed
	}
}

// begin returns the function that asks the server for updates of a resource. The caller holds the lock.
func (s *server) begin(w *watch, conn *mcpwire.Conn) (ask func(context.Context) (jsontext.Value, error)) {
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
			s.listen(watching, conn, mcpwire.Request{Method: "subscriptions/listen", Params: params})
		}()
		return jsontext.Value("{}"), nil
	}
}

// listen keeps a subscription of the newer generation open while its connection is. The answer comes at the
// end; updates arrive over the connection. A subscription that ends is repeated with growing pauses, or at
// the next call if the server could not be reached.
func (s *server) listen(ctx context.Context, conn *mcpwire.Conn, r mcpwire.Request) {
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
			s.log(fmt.Sprintf("a resource cannot be watched: %v", err))
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
		case <-clock.After(spread(pause, rand.Float64())):
		case <-called:
		case <-ctx.Done():
		}
	}
}

// nextCall returns a channel that the next call of the server closes.
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

// unwatch removes one subscription of a client and reports whether there was one on the shared connection.
// The last one ends the subscription at the server, which may be down.
func (s *server) unwatch(key, uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.watched[uri]
	if w == nil || w.by[key] == 0 {
		return false
	}
	if w.leave(key) {
		s.drop(uri, w)
	}
	return true
}

// drop ends a subscription without clients. A pending subscription is left to [server.askFirst], because
// the end could overtake the beginning. The caller holds the lock.
func (s *server) drop(uri string, w *watch) {
	select {
	case <-w.answered:
	default:
		return
	}
	delete(s.watched, uri)
	if w.cancel != nil {
		w.cancel()
		return
	}
	conn := w.conn
	go func() { _, _ = subscribe(s.ctx, conn, methodUnsubscribe, w.uri) }()
}

// unwatchAll ends all subscriptions of a client. The caller holds the lock.
func (s *server) unwatchAll(key string) {
	delete(s.private, key)
	for uri, w := range s.watched {
		if w.by[key] > 0 {
			if delete(w.by, key); len(w.by) == 0 {
				s.drop(uri, w)
			}
		}
	}
}

// notePrivate records a subscription on a client's own connection.
func (s *server) notePrivate(c *call.Client, method, uri string) {
	quoted, err := json.Marshal(uri)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.private[c.Key]
	switch {
	case method == methodUnsubscribe:
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
		a = &privateWatches{client: c, uris: map[string]jsontext.Value{}}
		s.private[c.Key] = a
	}
	a.uris[uri] = quoted
}

// gap handles a gap in the notifications of the shared connection: the tools may have changed, and
// subscriptions may be lost.
func (s *server) gap(forgotten bool) {
	s.mu.Lock()
	s.forgot = s.forgot || forgotten
	s.mu.Unlock()
	s.doubt()
}

// gapOf is gap for a client's own connection.
func (s *server) gapOf(key string, forgotten bool) {
	s.mu.Lock()
	if a := s.private[key]; a != nil {
		a.forgot = a.forgot || forgotten
	}
	s.mu.Unlock()
	s.doubt()
}

// resubscribe renews the subscriptions that a proven server may have lost. It does not wait. The caller
// holds the lock, and close waits for the caller.
func (s *server) resubscribe(conn *mcpwire.Conn) {
	all := s.forgot
	s.forgot = false
	var asks []func(context.Context) (jsontext.Value, error)
	for _, w := range s.watched {
		if all {
			asks = append(asks, s.begin(w, conn))
		}
	}
	for _, a := range s.private {
		if !all && !a.forgot {
			continue
		}
		a.forgot = false
		for _, uri := range a.uris {
			asks = append(asks, func(ctx context.Context) (jsontext.Value, error) {
				own, err := s.ownIfWatching(ctx, a)
				if own == nil || err != nil {
					return nil, err
				}
				return subscribe(ctx, own, methodSubscribe, uri)
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
			if _, err := ask(ctx); err != nil {
				s.log(fmt.Sprintf("a resource cannot be watched again: %v", err))
			}
		}
	})
}

// ownIfWatching returns the client's own connection; nil if the client no longer watches.
func (s *server) ownIfWatching(ctx context.Context, a *privateWatches) (*mcpwire.Conn, error) {
	here := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.private[a.client.Key] == a
	}
	if !here() {
		return nil, nil
	}
	conn, err := s.own(ctx, a.client)
	if !here() {
		s.release(a.client.Key)
		return nil, nil
	}
	return conn, err
}
