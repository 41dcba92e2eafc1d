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

// patience is how long a call waits for a server that is being started or
// proven again.
const patience = 5 * time.Second

// Act calls a tool on its server.
func (m *Manager) Act(ctx context.Context, t *agent.Tool, c *call.Call) (call.Result, error) {
	on, ok := t.Binding.(agent.OnServer)
	s := m.servers[on.Alias]
	if !ok || s == nil {
		return call.Result{}, call.Unsent(call.Refuse(stage, call.UnknownTool, "%s is on no server of this agent", t.Name))
	}
	tc := mcpwire.ToolCall{Name: t.Name, Arguments: c.Arguments, Meta: c.Meta, More: c.More}
	if c.OnNotify != nil {
		tc.OnNotification = func(n mcpwire.Notification) { c.OnNotify(n.Method, s.secrets.maskJSON(n.Params)) }
	}
	defer s.use()()
	start := time.Now()
	var raw jsontext.Value
	var err error
	for range 2 {
		var conn *mcpwire.Conn
		if conn, tc.Capabilities, err = s.connFor(ctx, c.Client, false); err != nil {
			err = call.Unsent(err)
			break
		}
		raw, err = conn.CallTool(ctx, tc)
		if !errors.Is(err, mcpwire.ErrNotSent) || !errors.Is(err, mcpwire.ErrClosed) {
			break
		}
		// The server ended just now and never received the call: once more.
	}
	if rpc, ok := errors.AsType[*mcpwire.RPCError](err); ok {
		// The server answered, with a no of its own: that is the tool's result.
		rpc = s.hushed(rpc)
		return call.Result{Raw: failed(rpc), IsError: true, Failure: rpc.Raw, Duration: time.Since(start)}, nil
	}
	if err != nil {
		stopped := error(s.failure(ctx, t, err))
		if errors.Is(err, mcpwire.ErrNotSent) {
			stopped = call.Unsent(stopped)
		}
		return call.Result{}, stopped
	}
	return call.Result{Raw: raw, IsError: isError(raw), Duration: time.Since(start)}, nil
}

// ready is the connection for a call. It waits while it is being found out
// whether the server is still what it was.
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
		case <-ctx.Done():
			if starting {
				return nil, s.stillStarting()
			}
			return nil, fmt.Errorf("%w: %w", mcpwire.ErrNotSent, ctx.Err())
		case <-late:
			if starting {
				return nil, s.stillStarting()
			}
			return nil, call.Refuse(stage, call.ServerUnavailable, "server %s is being started or proven again", s.alias).Again()
		}
	}
}

// stillStarting refuses a call that waited for a lazy server's start.
func (s *server) stillStarting() *call.Refusal {
	return call.Refuse(stage, call.ServerUnavailable, "server %s is still being started", s.alias).Again()
}

// current is the connection in use, or why there is none, and what tells that
// this holds.
func (s *server) current() (*mcpwire.Conn, *call.Refusal, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil && s.conn.Err() != nil {
		s.unsettle() // it has gone, and whoever starts it again is about to notice
	}
	if s.called != nil {
		close(s.called)
		s.called = nil
	}
	s.ask()
	why := s.proof.Refusal
	switch {
	case s.resting != nil:
		why = s.resting.refusal(s.alias, s.options.clock.Now())
	case why == nil && s.conn == nil:
		why = call.Refuse(stage, call.ServerUnavailable, "server %s is not running", s.alias)
	}
	return s.conn, why, s.settled
}

// failure says what became of a call that got no answer.
func (s *server) failure(ctx context.Context, t *agent.Tool, err error) *call.Refusal {
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		return r // it was refused on its way out
	}
	// Reading twice does no harm, and what was not sent was not done; anything
	// else may have been.
	refuse := call.Uncertain
	notSent := errors.Is(err, mcpwire.ErrNotSent)
	if t.SideEffect == agent.Read || notSent {
		refuse = call.Refuse
	}
	if ctx.Err() != nil {
		return s.waitedFor(ctx, t, refuse)
	}
	if _, answered := errors.AsType[*mcpwire.HTTPError](err); s.remote() && !answered {
		s.doubt() // who knows who answers there the next time
	}
	what := "went away during the call"
	if notSent {
		what = "could not be reached"
	}
	return refuse(stage, call.ServerUnavailable, "server %s %s: %s", s.alias, what, s.secrets.mask(err.Error())).Again()
}

// waitedFor is the refusal of a call whose time is over or that is not wanted
// any more.
func (s *server) waitedFor(ctx context.Context, t *agent.Tool, refuse func(string, call.Code, string, ...any) *call.Refusal) *call.Refusal {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return refuse(stage, call.TimedOut, "%s on server %s did not answer in time", t.Name, s.alias).Again()
	}
	return refuse(stage, call.TimedOut, "the call of %s was cancelled", t.Name)
}

// hushed is a server's error without the values of its credentials.
func (s *server) hushed(e *mcpwire.RPCError) *mcpwire.RPCError {
	if masked := mcpwire.ReadError(s.secrets.maskJSON(e.Raw)); masked != nil {
		return masked
	}
	return &mcpwire.RPCError{Code: e.Code, Message: "the server's error is not told", Raw: fmt.Appendf(nil, `{"code":%d,"message":"the server's error is not told"}`, e.Code)}
}

// failed is a result that tells of the server's own error, and holds it.
func failed(e *mcpwire.RPCError) jsontext.Value {
	text, err := json.Marshal(e.Error())
	if err != nil {
		text = []byte(`""`)
	}
	return slices.Concat([]byte(`{"content":[{"type":"text","text":`), text,
		[]byte(`}],"isError":true,"_meta":{"ambit/rpc_error":`), e.Raw, []byte(`}}`))
}

// isError reads the one field of a result that the door needs.
func isError(raw jsontext.Value) bool {
	return string(rawjson.Lookup(raw, "isError")) == "true"
}
