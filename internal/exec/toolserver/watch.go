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

// What clients watch outlives the connection that it was begun on: nobody tells
// them that a server was started again, so nobody would ask again.

// watch is a resource that is watched by clients of the shared connection.
type watch struct {
	// by counts how often each client watches it, by its key: nobody ends what
	// another began. Clients without a key count as one.
	by     map[string]int
	uri    jsontext.Value
	conn   *mcpwire.Conn      // that it was begun on
	cancel context.CancelFunc // ends it there; nil in the older generation

	answered chan struct{} // closed when the server has said whether it can be watched
	result   jsontext.Value
	err      error
}

// leave takes one watching of a client away, and reports whether nobody is left.
func (w *watch) leave(key string) bool {
	if w.by[key] > 1 {
		w.by[key]--
		return false
	}
	delete(w.by, key)
	return len(w.by) == 0
}

// apart is what a client watches by the connection that it has to itself.
type apart struct {
	client *call.Client
	uris   map[string]jsontext.Value
	forgot bool // the server may not know them any more
}

// watch begins the watching of a resource on the shared connection, if the client
// is the first to watch it. All who watch it get the one answer, which the first
// does not take along when he goes.
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

// askFirst asks for a resource that nobody has watched so far.
func (s *server) askFirst(uri string, w *watch, ask func(context.Context) (jsontext.Value, error)) {
	ctx, cancel := context.WithTimeout(s.ctx, s.options.StartTimeout)
	defer cancel()
	result, err := ask(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	w.result, w.err = result, err
	close(w.answered)
	if err != nil || len(w.by) == 0 {
		s.drop(uri, w) // a server that gave no answer may have heard it
	}
}

// begin is how the server is asked, by a connection, to tell of a resource. The
// caller holds the lock.
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

// listen keeps a subscription of the newer generation open as long as its
// connection is there. Its answer comes when it is over; updates come by the
// connection. One that ends is asked for again, ever later if it ends as often as
// that. A server that could not be reached is there again when it is called.
func (s *server) listen(ctx context.Context, conn *mcpwire.Conn, r mcpwire.Request) {
	clock := s.options.clock
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		began := clock.Now()
		_, err := conn.Do(ctx, r)
		if ctx.Err() != nil || conn.Err() != nil {
			return
		}
		status, _ := errors.AsType[*mcpwire.HTTPError](err)
		if _, no := errors.AsType[*mcpwire.RPCError](err); no && (status == nil || status.Status < http.StatusInternalServerError) {
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

// nextCall is closed when the server is called the next time.
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

// unwatch takes one watching of a client away, and reports whether there was one
// on the shared connection. The server may be away; the last watcher ends it.
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

// drop ends what nobody watches any more. What is still being asked for is left to
// [server.askFirst], or the end could overtake the beginning. The caller holds the lock.
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

// unwatchAll ends all that a client watches. The caller holds the lock.
func (s *server) unwatchAll(key string) {
	delete(s.apart, key)
	for uri, w := range s.watched {
		if w.by[key] > 0 {
			if delete(w.by, key); len(w.by) == 0 {
				s.drop(uri, w)
			}
		}
	}
}

// noteApart remembers what a client watches by its own connection.
func (s *server) noteApart(c *call.Client, method, uri string) {
	quoted, err := json.Marshal(uri)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.apart[c.Key]
	switch {
	case method == methodUnsubscribe:
		if a != nil {
			delete(a.uris, uri)
		}
		return
	case s.owned[c.Key] == nil:
		return // it has gone meanwhile
	case s.apart == nil:
		s.apart = map[string]*apart{}
	}
	if a == nil {
		a = &apart{client: c, uris: map[string]jsontext.Value{}}
		s.apart[c.Key] = a
	}
	a.uris[uri] = quoted
}

// gap is that of the shared connection: its server may have other tools, and may
// have forgotten what is watched.
func (s *server) gap(forgotten bool) {
	s.mu.Lock()
	s.forgot = s.forgot || forgotten
	s.mu.Unlock()
	s.doubt()
}

// gapOf is that of a client's own connection, which nobody else watches by.
func (s *server) gapOf(key string, forgotten bool) {
	s.mu.Lock()
	if a := s.apart[key]; a != nil {
		a.forgot = a.forgot || forgotten
	}
	s.mu.Unlock()
	s.doubt()
}

// remember asks once more for all that is watched, of a server that came up again.
// It is like remind.
func (s *server) remember(conn *mcpwire.Conn) {
	s.forgot = true
	s.remind(conn)
}

// remind asks once more for what a server that was proven again may have
// forgotten. It does not wait. The caller holds the lock and is waited for by
// close.
func (s *server) remind(conn *mcpwire.Conn) {
	all := s.forgot
	s.forgot = false
	var asks []func(context.Context) (jsontext.Value, error)
	for _, w := range s.watched {
		if all {
			asks = append(asks, s.begin(w, conn))
		}
	}
	for _, a := range s.apart {
		if !all && !a.forgot {
			continue
		}
		a.forgot = false
		for _, uri := range a.uris {
			asks = append(asks, func(ctx context.Context) (jsontext.Value, error) {
				own, err := s.ownStill(ctx, a)
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
		ctx, cancel := context.WithTimeout(s.ctx, s.options.StartTimeout)
		defer cancel()
		for _, ask := range asks {
			if _, err := ask(ctx); err != nil {
				s.log(fmt.Sprintf("a resource cannot be watched again: %v", err))
			}
		}
	})
}

// ownStill is the connection of a client that watches apart; nil if it has gone.
func (s *server) ownStill(ctx context.Context, a *apart) (*mcpwire.Conn, error) {
	here := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.apart[a.client.Key] == a
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
