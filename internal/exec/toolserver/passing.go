package toolserver

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
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
	defer s.use()()
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
		return nil, call.Refuse(stage, call.TimedOut, "%s on server %s was not answered in time", f.Method, s.alias)
	}
	return nil, call.Refuse(stage, call.ServerUnavailable, "server %s: %s", s.alias, s.secrets.mask(err.Error())).Again()
}

// SetLevel tells the servers from which level on a client wants their log: those
// that have a connection to it alone. Others keep their own level. They are told
// together, so that one that does not answer keeps it from no other.
func (m *Manager) SetLevel(ctx context.Context, c *call.Client, level string) {
	params, err := json.Marshal(map[string]string{"level": level})
	if err != nil {
		return
	}
	var wg sync.WaitGroup
	for _, s := range m.order {
		if rawjson.Lookup(m.Capabilities(s.alias), "logging") == nil {
			continue
		}
		wg.Go(func() {
			conn, _, err := s.connFor(ctx, c, true)
			if err == nil && conn != nil && !conn.Server().Modern {
				// A server that does not want to be told is no reason to fail.
				_, _ = conn.Call(ctx, "logging/setLevel", params)
			}
		})
	}
	wg.Wait()
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
	if f.Method == methodSubscribe || f.Method == methodUnsubscribe {
		return s.forwardWatching(ctx, f)
	}
	conn, capabilities, err := s.connFor(ctx, f.Client, false)
	if err != nil {
		return nil, err
	}
	r := mcpwire.Request{Method: f.Method, Params: f.Params, Capabilities: capabilities}
	if f.OnNotify != nil {
		r.OnNotification = func(n mcpwire.Notification) { f.OnNotify(n.Method, s.secrets.maskJSON(n.Params)) }
	}
	return conn.Do(ctx, r)
}

// forwardWatching begins or ends the watching of a resource.
func (s *server) forwardWatching(ctx context.Context, f *call.Forward) (jsontext.Value, error) {
	uri, ok := rawjson.Text(rawjson.Lookup(f.Params, "uri"))
	if !ok {
		return nil, &mcpwire.RPCError{Code: -32602, Raw: jsontext.Value(`{"code":-32602,"message":"the params have no uri"}`)}
	}
	key := ""
	if f.Client != nil {
		key = f.Client.Key
	}
	if f.Method == methodUnsubscribe && s.unwatch(key, uri) {
		return jsontext.Value("{}"), nil
	}
	conn, _, err := s.connFor(ctx, f.Client, true)
	switch shared, _, _ := s.current(); {
	case err != nil:
		return nil, err
	case conn != nil && conn != shared:
		result, err := conn.Do(ctx, mcpwire.Request{Method: f.Method, Params: f.Params})
		if err == nil {
			s.noteApart(f.Client, f.Method, uri)
		}
		return result, err
	case f.Method == methodUnsubscribe:
		return jsontext.Value("{}"), nil // it was not watched
	}
	return s.watch(ctx, key, uri)
}
