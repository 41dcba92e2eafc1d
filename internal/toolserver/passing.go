package toolserver

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/mcpwire"
)

// Methods that change what a connection does from then on.
const (
	methodSubscribe   = "resources/subscribe"
	methodUnsubscribe = "resources/unsubscribe"
)

// Forward takes a request that is no call to a server, as it is. Only the
// gateway asks for it, and whether that may be is decided there.
func (m *Manager) Forward(ctx context.Context, f *call.Forward) (jsontext.Value, error) {
	s := m.servers[f.Server]
	if s == nil {
		return nil, call.Refuse(stage, call.ServerUnavailable, "the agent has no server %s", f.Server)
	}
	raw, err := s.forward(ctx, f)
	if err == nil {
		return raw, nil
	}
	if rpc, ok := errors.AsType[*mcpwire.RPCError](err); ok {
		return nil, &call.Answer{Raw: s.hushed(rpc).Raw}
	}
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		return nil, r
	}
	if ctx.Err() != nil {
		return nil, call.Refuse(stage, call.TimedOut, "%s on server %s was not answered in time", f.Method, s.spec.Alias)
	}
	return nil, call.Refuse(stage, call.ServerUnavailable, "server %s: %s", s.spec.Alias, s.secrets.mask(err.Error())).Again()
}

// SetLevel tells the servers from which level on a client wants their log: those
// that have a connection to it alone. Others keep their own level.
func (m *Manager) SetLevel(ctx context.Context, c *call.Client, level string) {
	params, err := json.Marshal(map[string]string{"level": level})
	if err != nil {
		return
	}
	for _, s := range m.order {
		if mcpwire.Lookup(m.Capabilities(s.spec.Alias), "logging") == nil {
			continue
		}
		conn, _, err := s.connFor(ctx, c, true)
		if err == nil && conn != nil && !conn.Server().Modern {
			// A server that does not want to be told is no reason to fail.
			_, _ = conn.Call(ctx, "logging/setLevel", params)
		}
	}
}

// Capabilities are what a server says it can do; nil while it is not there.
func (m *Manager) Capabilities(alias string) jsontext.Value {
	s := m.servers[alias]
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return nil
	}
	return s.conn.Server().Capabilities()
}

var _ call.Forwarder = (*Manager)(nil)

func (s *server) forward(ctx context.Context, f *call.Forward) (jsontext.Value, error) {
	stateful := f.Method == methodSubscribe || f.Method == methodUnsubscribe
	conn, capabilities, err := s.connFor(ctx, f.Client, stateful)
	if err != nil {
		return nil, err
	}
	if stateful && (conn == nil || conn.Server().Modern) {
		return s.watch(ctx, f)
	}
	r := mcpwire.Request{Method: f.Method, Params: f.Params, Capabilities: capabilities}
	if f.OnNotify != nil {
		r.OnNotification = func(n mcpwire.Notification) { f.OnNotify(n.Method, s.secrets.maskJSON(n.Params)) }
	}
	return conn.Do(ctx, r)
}

// watch is a resource that is watched by clients of the shared connection.
type watch struct {
	// by counts how often each client watches it, by its key: nobody ends what
	// another began. Clients without a key count as one.
	by   map[string]int
	stop func()
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

// watch begins or ends the watching of a resource on the shared connection. The
// first watcher begins it and the last one ends it.
func (s *server) watch(ctx context.Context, f *call.Forward) (jsontext.Value, error) {
	uri, ok := mcpwire.Text(mcpwire.Lookup(f.Params, "uri"))
	if !ok {
		return nil, &mcpwire.RPCError{Code: -32602, Raw: jsontext.Value(`{"code":-32602,"message":"the params have no uri"}`)}
	}
	conn, err := s.ready(ctx)
	if err != nil {
		return nil, err
	}
	key := ""
	if f.Client != nil {
		key = f.Client.Key
	}
	s.mu.Lock()
	w := s.watched[uri]
	switch {
	case f.Method == methodUnsubscribe:
		if w != nil && w.leave(key) {
			delete(s.watched, uri)
			defer w.stop()
		}
		s.mu.Unlock()
		return jsontext.Value("{}"), nil
	case w != nil:
		w.by[key]++
		s.mu.Unlock()
		return jsontext.Value("{}"), nil
	case len(s.watched) >= maxOwned:
		s.mu.Unlock()
		return nil, call.Refuse(stage, call.ServerUnavailable, "too many resources of server %s are watched", s.spec.Alias)
	}
	quoted, err := json.Marshal(uri)
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	if s.watched == nil {
		s.watched = map[string]*watch{}
	}
	watching, stop := context.WithCancel(s.ctx)
	w = &watch{by: map[string]int{key: 1}, stop: stop}
	params := slices.Concat([]byte(`{"uri":`), quoted, []byte(`}`))
	if !conn.Server().Modern {
		w.stop = func() {
			stop()
			go func() { _, _ = conn.Do(s.ctx, mcpwire.Request{Method: methodUnsubscribe, Params: params}) }()
		}
	}
	s.watched[uri] = w
	s.mu.Unlock()
	if conn.Server().Modern {
		params = slices.Concat([]byte(`{"notifications":{"resourceSubscriptions":[`), quoted, []byte(`]}}`))
		go func() {
			defer stop()
			// Its answer comes when it is over; updates come by the connection.
			_, _ = conn.Do(watching, mcpwire.Request{Method: "subscriptions/listen", Params: params})
		}()
		return jsontext.Value("{}"), nil
	}
	result, err := conn.Do(ctx, mcpwire.Request{Method: methodSubscribe, Params: params})
	if err != nil {
		s.mu.Lock()
		delete(s.watched, uri)
		s.mu.Unlock()
		stop()
	}
	return result, err
}
