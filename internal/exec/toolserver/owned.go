package toolserver

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// owned is a connection to a remote server that one client has to itself.
type owned struct {
	opened chan struct{} // closed when conn or err is there
	conn   *mcpwire.Conn
	err    error
}

const (
	// maxOwned bounds the connections of single clients to one server.
	maxOwned = 1000
	// ownTimeout bounds the making of one.
	ownTimeout = 30 * time.Second
)

// owner is the one client that the server's connection belongs to, if there is
// only one and the server may ask it.
func (s *server) owner(ctx context.Context) *call.Client {
	if s.options.Owner == nil {
		return nil
	}
	c := s.options.Owner(ctx)
	if c != nil && s.plain {
		return &call.Client{Key: c.Key, Notify: c.Notify}
	}
	return c
}

// asksOwner reports whether the server was told of something to ask.
func (s *server) asksOwner() bool {
	if s.options.Owner == nil || s.plain {
		return false
	}
	// It has been asked for before, so this does not wait.
	c := s.options.Owner(s.ctx)
	return c != nil && asksAnything(c.Capabilities)
}

func asksAnything(capabilities jsontext.Value) bool {
	return len(bytes.Trim(capabilities, " \t\r\n{}")) > 0
}

// relay takes a server's questions to the client that owns the connection.
func relay(owner *call.Client) func(context.Context, string, jsontext.Value) (jsontext.Value, error) {
	return func(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error) {
		capability := call.CapabilityFor(method)
		if owner.Asker == nil || capability == "" || rawjson.Lookup(owner.Capabilities, capability) == nil {
			return nil, &mcpwire.RPCError{Code: -32601, Message: "the client cannot be asked that"}
		}
		result, err := owner.Asker.Ask(ctx, method, params)
		if answer, ok := errors.AsType[*call.Answer](err); ok {
			if rpc := mcpwire.ReadError(answer.Raw); rpc != nil {
				return nil, rpc
			}
		}
		return result, err
	}
}

// connFor is the connection for a client's request, and what is declared with
// the request where the protocol does that. A stateful request changes what the
// connection does from then on, so it is not made on one that others share; the
// connection is nil if there is no other.
func (s *server) connFor(ctx context.Context, c *call.Client, stateful bool) (*mcpwire.Conn, jsontext.Value, error) {
	conn, err := s.ready(ctx)
	if err != nil {
		return nil, nil, err
	}
	hello := conn.Server()
	switch {
	case hello.Modern && c != nil && !s.plain:
		return conn, c.Capabilities, nil
	case hello.Modern || s.options.Owner != nil:
		return conn, nil, nil
	case s.remote() && c != nil && c.Asker != nil && (stateful || s.owns(c)):
		own, err := s.own(ctx, c)
		return own, nil, err
	case stateful:
		return nil, nil, nil
	}
	return conn, nil, nil
}

// owns reports whether a client has, or is to have, a connection of its own.
func (s *server) owns(c *call.Client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owned[c.Key] != nil || asksAnything(c.Capabilities) && !s.plain
}

// own is the connection that a client has to itself, made if there is none.
func (s *server) own(ctx context.Context, c *call.Client) (*mcpwire.Conn, error) {
	s.mu.Lock()
	o := s.owned[c.Key]
	if o != nil && o.over() {
		delete(s.owned, c.Key)
		o = nil
	}
	if o == nil {
		if len(s.owned) >= maxOwned {
			s.mu.Unlock()
			return nil, call.Refuse(stage, call.ServerUnavailable, "too many clients have a connection to server %s", s.alias).Again()
		}
		o = &owned{opened: make(chan struct{})}
		if s.owned == nil {
			s.owned = map[string]*owned{}
		}
		s.owned[c.Key] = o
		go s.connectFor(c, o)
	}
	s.mu.Unlock()
	select {
	case <-o.opened:
		return o.conn, o.err
	case <-ctx.Done():
		return nil, errors.Join(mcpwire.ErrNotSent, ctx.Err())
	}
}

// over reports whether a connection failed or has ended.
func (o *owned) over() bool {
	select {
	case <-o.opened:
		return o.err != nil || o.conn.Err() != nil
	default:
		return false
	}
}

// connectFor makes a client's connection and holds it to what was proven.
func (s *server) connectFor(c *call.Client, o *owned) {
	defer close(o.opened)
	ctx, cancel := context.WithTimeout(s.ctx, ownTimeout)
	defer cancel()
	transport, err := mcpwire.HTTP(s.spec.Endpoint, mcpwire.HTTPOptions{Header: s.headers, RoundTripper: s.spec.RoundTripper})
	if err != nil {
		o.err = err
		return
	}
	client := c
	if s.plain {
		client = &call.Client{Key: c.Key, Notify: c.Notify}
	}
	options := s.wire(limited(s.log), client)
	options.Legacy, options.Modern = true, false
	options.OnGap = func(forgotten bool) { s.gapOf(c.Key, forgotten) }
	conn := mcpwire.New(transport, options)
	if _, err = conn.Negotiate(ctx); err == nil {
		err = s.matches(ctx, conn)
	}
	if err != nil {
		conn.Close()
		o.err = err
		return
	}
	o.conn = conn
}

// matches holds the tools of a client's own connection to those that were
// proven. Tools beyond them are for clients that can be asked, and cannot be
// called.
func (s *server) matches(ctx context.Context, conn *mcpwire.Conn) error {
	advertised, err := conn.ListTools(ctx)
	if err != nil {
		return err
	}
	now := make(map[string][]byte, len(advertised))
	for _, t := range advertised {
		now[t.Name] = t.Raw
	}
	s.mu.Lock()
	proven := s.tools
	s.mu.Unlock()
	for name, raw := range proven {
		was, err1 := pack.LockTool(raw)
		is, err2 := pack.LockTool(now[name])
		if now[name] == nil || err1 != nil || err2 != nil || was.Hash != is.Hash {
			s.doubt()
			return call.Refuse(stage, call.ServerDrifted, "server %s has another definition of %s for this client than it was proven with", s.alias, quoteAll([]string{name}))
		}
	}
	return nil
}

// Release ends the connections that a client has to itself, and what it watches.
func (m *Manager) Release(key string) {
	var wg sync.WaitGroup
	for _, s := range m.order {
		wg.Go(func() { s.release(key) })
	}
	wg.Wait()
}

func (s *server) release(key string) {
	s.mu.Lock()
	o := s.owned[key]
	delete(s.owned, key)
	s.unwatchAll(key)
	s.mu.Unlock()
	if o != nil {
		o.end()
	}
}

// releaseAll ends the connections of every client.
func (s *server) releaseAll() {
	s.mu.Lock()
	all := s.owned
	s.owned = nil
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, o := range all {
		wg.Go(o.end)
	}
	wg.Wait()
}

// end closes a connection, once it is there.
func (o *owned) end() {
	<-o.opened
	if o.conn != nil {
		o.conn.Close()
	}
}
