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

// owned is a connection to a remote server for one client alone.
type owned struct {
	opened chan struct{} // closed when conn or err is set
	conn   *mcpwire.Conn
	err    error
}

const (
	// maxOwned bounds the separate connections to one server.
	maxOwned = 1000
	// ownTimeout bounds the time to open a separate connection.
	ownTimeout = 30 * time.Second
)

// owner returns the one client that the server's connection belongs to, or nil.
func (s *server) owner(ctx context.Context) *call.Client {
	if s.options.Owner == nil {
		return nil
	}
	if c := s.options.Owner(ctx); c != nil {
		return s.allowed(c)
	}
	return nil
}

// allowed returns the client as the server may use it: without capabilities if the server may not ask.
func (s *server) allowed(c *call.Client) *call.Client {
	if s.mayNotAsk {
		return &call.Client{Key: c.Key, Notify: c.Notify}
	}
	return c
}

// ownerCanBeAsked reports whether the server's connection declared any capability.
func (s *server) ownerCanBeAsked() bool {
	if s.options.Owner == nil || s.mayNotAsk {
		return false
	}
	// The owner is known by now, so this does not wait.
	c := s.options.Owner(s.ctx)
	return c != nil && declaresAny(c.Capabilities)
}

func declaresAny(capabilities jsontext.Value) bool {
	return len(bytes.Trim(capabilities, " \t\r\n{}")) > 0
}

// relay passes a server's requests to the client that owns the connection.
func relay(owner *call.Client) func(context.Context, string, jsontext.Value) (jsontext.Value, error) {
	return func(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error) {
		capability := call.CapabilityFor(method)
		if owner.Asker == nil || capability == "" || rawjson.Lookup(owner.Capabilities, capability) == nil {
			return nil, &mcpwire.RPCError{Code: -32601, Message: "the client does not support this request"}
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

// connFor returns the connection for a client's request, and the capabilities to declare with it where the
// protocol supports that. A stateful request changes the connection, so it never uses a shared one; the
// connection is nil if there is no other.
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
	case s.remote() && c != nil && c.Asker != nil && (stateful || s.owns(c)):
		own, err := s.own(ctx, c)
		return own, nil, err
	case stateful:
		return nil, nil, nil
	}
	return conn, nil, nil
}

// owns reports whether a client has, or needs, its own connection.
func (s *server) owns(c *call.Client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owned[c.Key] != nil || declaresAny(c.Capabilities) && !s.mayNotAsk
}

// own returns a client's own connection and opens it if necessary.
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
			return nil, call.Refuse(stage, call.ServerUnavailable,
				"too many clients have a connection to server %s", s.alias).Again()
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

// connectFor opens a client's own connection and checks its tools.
func (s *server) connectFor(c *call.Client, o *owned) {
	defer close(o.opened)
	ctx, cancel := context.WithTimeout(s.ctx, ownTimeout)
	defer cancel()
	transport, err := s.transport()
	if err != nil {
		o.err = err
		return
	}
	options := s.wire(limited(s.log), s.allowed(c))
	options.Legacy, options.Modern = true, false
	options.OnGap = func(forgotten bool) { s.gapOf(c.Key, forgotten) }
	conn := mcpwire.New(transport, options)
	if _, err = conn.Negotiate(ctx); err == nil {
		err = s.checkTools(ctx, conn)
	}
	if err != nil {
		conn.Close()
		o.err = err
		return
	}
	o.conn = conn
}

// checkTools compares the tools of a client's own connection with the proven tools. Additional tools are
// allowed, but cannot be called.
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
			s.doubt()
			return call.Refuse(stage, call.ServerDrifted,
				"server %s gives this client another definition of %s than was proven", s.alias, diag.Quote(name))
		}
	}
	return nil
}

// Release ends a client's own connections and subscriptions.
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

// releaseAll ends the own connections of every client.
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

// end closes the connection as soon as it is open.
func (o *owned) end() {
	<-o.opened
	if o.conn != nil {
		o.conn.Close()
	}
}
