package toolserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// patience is how long a call waits while a server starts or is verified again.
const patience = 5 * time.Second

// Act calls a tool on the server that provides it.
func (m *Manager) Act(ctx context.Context, t *agent.Tool, c *call.Call) (result call.Result, err error) {
	s, err := m.providing(t, c.Principal)
	if err != nil {
		return call.Result{}, call.Unsent(err)
	}
	defer func() { err = s.missing(c.Principal, err) }()
	if s.options.Confine != nil {
		seen := s.observed.begin()
		defer func() {
			s.observed.end(seen)
			result.Observed = s.result(seen)
			err = addHint(seen.hint("the call ran"), &result, err)
		}()
	}
	tc := mcpwire.ToolCall{Name: t.Name, Arguments: c.Arguments, Meta: c.Meta, More: c.More}
	if c.OnNotify != nil {
		tc.OnNotification = func(n mcpwire.Notification) { c.OnNotify(n.Method, s.secrets.maskJSON(n.Params)) }
	}
	defer s.keepRunning()()
	start := time.Now()
	var raw jsontext.Value
	for range 2 {
		var conn *mcpwire.Conn
		if conn, tc.Capabilities, err = s.connFor(ctx, c.Client, false); err != nil {
			err = call.Unsent(err)
			break
		}
		if err = s.lacks(t.Name); err != nil {
			break
		}
		raw, err = conn.CallTool(ctx, tc)
		if !errors.Is(err, mcpwire.ErrNotSent) || !errors.Is(err, mcpwire.ErrClosed) {
			break
		}
		// The server exited before it received the call, so send the call again.
	}
	if rpc, ok := errors.AsType[*mcpwire.RPCError](err); ok {
		// The server answered with an error, which becomes the result of the tool call.
		rpc = s.redactError(rpc)
		return call.Result{Raw: failed(rpc), IsError: true, Failure: rpc.Raw, Duration: time.Since(start)}, nil
	}
	if err != nil {
		stopped := error(s.failure(ctx, t, err))
		if errors.Is(err, mcpwire.ErrNotSent) {
			stopped = call.Unsent(stopped)
		}
		return call.Result{}, stopped
	}
	isError := string(rawjson.Lookup(raw, "isError")) == "true"
	return call.Result{Raw: raw, IsError: isError, Duration: time.Since(start)}, nil
}

// Prepare starts the server that provides a tool, if the server is not running. It returns an error if the server cannot
// be used now.
func (m *Manager) Prepare(ctx context.Context, t *agent.Tool, principal string) error {
	s, err := m.providing(t, principal)
	if err != nil {
		return err
	}
	defer s.keepRunning()()
	if _, err = s.ready(ctx); err == nil {
		err = s.lacks(t.Name)
	}
	if err != nil {
		return s.missing(principal, s.failure(ctx, t, err))
	}
	return nil
}

// providing returns the server that provides a tool to a principal.
func (m *Manager) providing(t *agent.Tool, principal string) (*server, error) {
	on, ok := t.Binding.(agent.OnServer)
	s := m.servers[on.Alias]
	if !ok || s == nil {
		return nil, call.Refuse(stage, call.UnknownTool, "no server of this agent provides %s", t.Name)
	}
	return s.of(principal)
}

// ready returns the shared connection for a call. It waits while the server is being started or verified.
func (s *server) ready(ctx context.Context) (*mcpwire.Conn, error) {
	var late <-chan time.Time
	var starting bool
	for {
		conn, why, settled := s.current()
		select {
		case <-settled:
			if conn != nil {
				return conn, nil
			}
			return nil, why
		default:
		}
		if late == nil {
			var wait time.Duration
			wait, starting = s.patience()
			timer := time.NewTimer(wait)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-settled:
			continue
		case <-ctx.Done():
			if !starting {
				return nil, fmt.Errorf("%w: %w", mcpwire.ErrNotSent, ctx.Err())
			}
		case <-late:
		}
		what := "being restarted or verified again"
		if starting {
			what = "still starting"
		}
		return nil, call.Refuse(stage, call.ServerUnavailable, "server %s is %s", s.alias, what).Again()
	}
}

// current returns the shared connection. If there is none, it returns nil and the reason. The third result is a
// channel that is open while a verification is pending. Until the channel is closed, the first two results are not
// final.
func (s *server) current() (*mcpwire.Conn, *call.Refusal, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil && s.conn.Err() != nil {
		s.unsettle() // the connection is closed, but s.supervise has not noticed yet
	}
	if s.called != nil {
		close(s.called)
		s.called = nil
	}
	s.startOnUse()
	why := s.proof.Refusal
	switch {
	case s.resting != nil:
		why = s.resting.refusal(s.alias, s.options.clock.Now())
	case why == nil && s.conn == nil:
		why = call.Refuse(stage, call.ServerUnavailable, "server %s is not running", s.alias).Again()
	}
	return s.conn, why, s.settled
}

// failure converts the error of a failed tool call to a refusal.
func (s *server) failure(ctx context.Context, t *agent.Tool, err error) *call.Refusal {
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		return r // the call was refused before it was sent to the server
	}
	// A call that was not sent, or that only reads, has no effect. Any other call may have taken effect.
	refuse := call.Uncertain
	notSent := errors.Is(err, mcpwire.ErrNotSent)
	if t.SideEffect == agent.Read || notSent {
		refuse = call.Refuse
	}
	switch ctx.Err() {
	case nil:
	case context.DeadlineExceeded:
		return refuse(stage, call.TimedOut, "%s on server %s did not answer in time", t.Name, s.alias).Again()
	default:
		return refuse(stage, call.TimedOut, "the call to %s was cancelled", t.Name)
	}
	if _, answered := errors.AsType[*mcpwire.HTTPError](err); s.remote() && !answered {
		s.requestRecheck() // verify again, because a different server may answer the next call
	}
	what := "stopped answering during the call"
	if notSent {
		what = "could not be reached"
	}
	return refuse(stage, call.ServerUnavailable, "server %s %s: %s", s.alias, what, s.secrets.mask(err.Error())).Again()
}

// redactError removes credential values from an error that a server sent.
func (s *server) redactError(e *mcpwire.RPCError) *mcpwire.RPCError {
	if masked := mcpwire.ReadError(s.secrets.maskJSON(e.Raw)); masked != nil {
		return masked
	}
	return mcpwire.ReadError(fmt.Appendf(nil,
		`{"code":%d,"message":"the server's error is withheld, because its credentials could not be redacted"}`, e.Code))
}

func failed(e *mcpwire.RPCError) jsontext.Value {
	text, err := json.Marshal(e.Error())
	if err != nil {
		text = []byte(`""`)
	}
	return slices.Concat([]byte(`{"content":[{"type":"text","text":`), text,
		[]byte(`}],"isError":true,"_meta":{"ambit/rpc_error":`), e.Raw, []byte(`}}`))
}

const (
	methodSubscribe   = "resources/subscribe"
	methodUnsubscribe = "resources/unsubscribe"
)

// Forward sends a request other than a tool call to a server. Only the gateway calls Forward, after it has allowed
// the request.
func (m *Manager) Forward(ctx context.Context, f *call.Forward) (jsontext.Value, error) {
	s := m.servers[f.Server]
	if s == nil {
		return nil, call.Refuse(stage, call.ServerUnavailable, "the agent has no server %s", f.Server)
	}
	s, err := s.of(f.Principal)
	if err != nil {
		return nil, err
	}
	defer s.keepRunning()()
	raw, err := s.forward(ctx, f)
	err = s.missing(f.Principal, err)
	rpc, isRPC := errors.AsType[*mcpwire.RPCError](err)
	refusal, refused := errors.AsType[*call.Refusal](err)
	switch {
	case err == nil:
		return raw, nil
	case isRPC:
		return nil, &call.Answer{Raw: s.redactError(rpc).Raw}
	case refused:
		return nil, refusal
	case ctx.Err() != nil:
		return nil, call.Refuse(stage, call.TimedOut, "server %s did not answer the request %s in time", s.alias, f.Method)
	}
	return nil, call.Refuse(stage, call.ServerUnavailable, "the request %s to server %s failed: %s",
		f.Method, s.alias, s.secrets.mask(err.Error())).Again()
}

// SetLevel sets the log level of each server that has a separate connection for the client. It sends the requests to
// all servers in parallel, because a slow server must not delay the others.
func (m *Manager) SetLevel(ctx context.Context, c *call.Client, level string) {
	params, err := json.Marshal(map[string]string{"level": level})
	if err != nil {
		return
	}
	m.each(func(s *server) {
		if rawjson.Lookup(m.Capabilities(s.alias), "logging") == nil {
			return
		}
		conn, _, err := s.connFor(ctx, c, true)
		if err == nil && conn != nil && !conn.Server().Modern {
			// Ignore errors, because clients do not depend on the level.
			_, _ = conn.Call(ctx, "logging/setLevel", params)
		}
	})
}

// Capabilities returns the capabilities that a server declared. It returns nil if the server is unavailable.
func (m *Manager) Capabilities(alias string) jsontext.Value {
	s := m.servers[alias]
	if s == nil {
		return nil
	}
	return s.capabilities()
}

var _ call.Forwarder = (*Manager)(nil)

func (s *server) forward(ctx context.Context, f *call.Forward) (jsontext.Value, error) {
	if s.base != nil && f.Method == methodSubscribe {
		return nil, s.errNoWatch()
	}
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

func (s *server) forwardWatching(ctx context.Context, f *call.Forward) (jsontext.Value, error) {
	uri, ok := rawjson.Text(rawjson.Lookup(f.Params, "uri"))
	if !ok {
		return nil, &mcpwire.RPCError{Code: -32602, Raw: jsontext.Value(`{"code":-32602,"message":"params.uri is missing"}`)}
	}
	key := ""
	if f.Client != nil {
		key = f.Client.Key
	}
	if f.Method == methodUnsubscribe && s.unwatch(key, uri, f.Principal) {
		return jsontext.Value("{}"), nil
	}
	conn, _, err := s.connFor(ctx, f.Client, true)
	switch shared, _, _ := s.current(); {
	case err != nil:
		return nil, err
	case conn != nil && conn != shared:
		result, err := conn.Do(ctx, mcpwire.Request{Method: f.Method, Params: f.Params})
		if err == nil {
			s.notePrivate(f, uri)
		}
		return result, err
	case f.Method == methodUnsubscribe:
		return jsontext.Value("{}"), nil // the client had no subscription to the resource
	}
	return s.watch(ctx, key, uri, f)
}
