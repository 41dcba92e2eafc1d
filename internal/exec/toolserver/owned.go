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
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// ownedConn is one client's separate connection to a remote server.
type ownedConn struct {
	opened chan struct{} // closed when conn or err is set
	conn   *mcpwire.Conn
	err    error
}

const (
	// maxOwned is the maximum number of separate client connections to one server. It is also the maximum number of
	// watched resources on one server.
	maxOwned = 1000
	// ownTimeout is the time limit for opening a separate connection.
	ownTimeout = 30 * time.Second
)

// owner returns the client to which the server's connection belongs. It returns nil if clients share the
// connection.
func (s *server) owner(ctx context.Context) *call.Client {
	if s.options.Owner == nil {
		return nil
	}
	if c := s.options.Owner(ctx); c != nil {
		return s.restricted(c)
	}
	return nil
}

// restricted returns the client unchanged if the server is allowed to send requests to clients. Otherwise, it returns
// a copy of the client without capabilities, so that the server cannot send requests.
func (s *server) restricted(c *call.Client) *call.Client {
	if s.mayNotAsk {
		return &call.Client{Key: c.Key, Notify: c.Notify}
	}
	return c
}

// ownerCanBeAsked reports whether the server can send requests to the owner of its connection. The owner must have
// declared at least one capability.
func (s *server) ownerCanBeAsked() bool {
	if s.options.Owner == nil || s.mayNotAsk {
		return false
	}
	// The owner is already known, so this call returns immediately.
	c := s.options.Owner(s.ctx)
	return c != nil && declaresAny(c.Capabilities)
}

func declaresAny(capabilities jsontext.Value) bool {
	return len(bytes.Trim(capabilities, " \t\r\n{}")) > 0
}

// relay returns a handler that passes the server's requests to the owner of the connection.
func (s *server) relay(owner *call.Client) func(context.Context, string, jsontext.Value) (jsontext.Value, error) {
	return func(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error) {
		capability := call.CapabilityFor(method)
		if owner.Asker == nil || capability == "" || rawjson.Lookup(owner.Capabilities, capability) == nil {
			return nil, &mcpwire.RPCError{Code: -32601, Message: "the client does not support this request"}
		}
		result, err := owner.Asker.Ask(call.WithAsking(ctx, s.alias), method, params)
		if answer, ok := errors.AsType[*call.Answer](err); ok {
			if rpc := mcpwire.ReadError(answer.Raw); rpc != nil {
				return nil, rpc
			}
		}
		return result, err
	}
}

// connFor returns the connection for a client's request. In the newer protocol generation, it also returns the
// capabilities to send with the request. A stateful request changes the state of its connection, so it must not use a
// connection that clients share. If the client has no separate connection for a stateful request, the returned
// connection is nil.
func (s *server) connFor(ctx context.Context, c *call.Client, stateful bool) (*mcpwire.Conn, jsontext.Value, error) {
	conn, err := s.ready(ctx)
	if err != nil {
		return nil, nil, err
	}
	hello := conn.Server()
	switch {
	case hello.Modern && c != nil && !s.mayNotAsk:
		return conn, c.Capabilities, nil
	case hello.Modern || s.options.Owner != nil:
		return conn, nil, nil
	case s.remote() && c != nil && c.Asker != nil && (stateful || s.needsOwnConn(c)):
		own, err := s.ownConn(ctx, c)
		return own, nil, err
	case stateful:
		return nil, nil, nil
	}
	return conn, nil, nil
}

// needsOwnConn reports whether a client needs a separate connection or already has one.
func (s *server) needsOwnConn(c *call.Client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owned[c.Key] != nil || declaresAny(c.Capabilities) && !s.mayNotAsk
}

// ownConn returns a client's separate connection to the server. It opens the connection if necessary.
func (s *server) ownConn(ctx context.Context, c *call.Client) (*mcpwire.Conn, error) {
	s.mu.Lock()
	o := s.owned[c.Key]
	if o != nil && o.over() {
		delete(s.owned, c.Key)
		o = nil
	}
	if o == nil {
		if len(s.owned) >= maxOwned {
			s.mu.Unlock()
			return nil, call.Refuse(stage, call.ServerUnavailable,
				"the limit of %d client connections to server %s is reached", maxOwned, s.alias).Again()
		}
		o = &ownedConn{opened: make(chan struct{})}
		if s.owned == nil {
			s.owned = map[string]*ownedConn{}
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

func (o *ownedConn) over() bool {
	select {
	case <-o.opened:
		return o.err != nil || o.conn.Err() != nil
	default:
		return false
	}
}

// connectFor opens a separate connection for a client and checks the tools that the server advertises there.
func (s *server) connectFor(c *call.Client, o *ownedConn) {
	defer close(o.opened)
	conn, err := s.connOf(c)
	if err == nil {
		o.conn = conn
		return
	}
	o.err = err
	if conn != nil {
		conn.Close()
	}
}

// connOf is like connectFor, but returns the connection. After an error, the caller must close the connection if it is
// not nil.
func (s *server) connOf(c *call.Client) (conn *mcpwire.Conn, err error) {
	defer s.contain(&err)
	ctx, cancel := context.WithTimeout(s.ctx, ownTimeout)
	defer cancel()
	transport, err := s.transport()
	if err != nil {
		return nil, err
	}
	options := s.connOptions(s.logOutput, s.restricted(c))
	options.Legacy, options.Modern = true, false
	options.OnGap = func(forgotten bool) { s.handleClientGap(c.Key, forgotten) }
	conn = mcpwire.New(transport, options)
	if _, err = conn.Negotiate(ctx); err != nil {
		return conn, err
	}
	return conn, s.checkTools(ctx, conn)
}

// checkTools lists the tools on a separate connection. It returns an error if a verified tool is missing or has a
// different definition. Additional tools are allowed, but they cannot be called.
func (s *server) checkTools(ctx context.Context, conn *mcpwire.Conn) error {
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
			s.requestRecheck()
			return call.Refuse(stage, call.ServerDrifted,
				"server %s sends this client a definition of the tool %s that differs from the verified one",
				s.alias, diag.Quote(name))
		}
	}
	return nil
}

// Release closes a client's separate connections and cancels the client's subscriptions.
func (m *Manager) Release(key string) {
	m.each(func(s *server) {
		s.release(key)
		s.callers.each(func(own *server) { own.release(key) })
	})
}

func (s *server) release(key string) {
	s.mu.Lock()
	o := s.owned[key]
	delete(s.owned, key)
	s.unwatchAll(key)
	s.mu.Unlock()
	if o != nil {
		o.close()
	}
}

func (s *server) releaseAll() {
	s.mu.Lock()
	all := s.owned
	s.owned = nil
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, o := range all {
		wg.Go(o.close)
	}
	wg.Wait()
}

// close closes the connection. If the connection is still being opened, close first waits for the result.
func (o *ownedConn) close() {
	<-o.opened
	if o.conn != nil {
		o.conn.Close()
	}
}
