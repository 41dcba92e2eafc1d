package toolserver

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/mcpwire"
)

// act calls a tool on this server.
func (s *server) act(ctx context.Context, t *agent.Tool, c *call.Call) (call.Result, error) {
	s.mu.Lock()
	conn, why := s.conn, s.proof.Refusal
	s.mu.Unlock()
	if conn == nil {
		if why == nil {
			why = call.Refuse(stage, call.ServerUnavailable, "server %s is not running", s.spec.Alias).Again()
		}
		return call.Result{}, why
	}
	tc := mcpwire.ToolCall{Name: t.Name, Arguments: c.Arguments}
	if c.OnNotify != nil {
		tc.OnNotification = func(n mcpwire.Notification) { c.OnNotify(n.Method, n.Params) }
	}
	start := time.Now()
	raw, err := conn.CallTool(ctx, tc)
	if rpc, ok := errors.AsType[*mcpwire.RPCError](err); ok {
		// The server answered, with a no of its own: that is the tool's result.
		raw, err = failed(rpc), nil
	}
	if err != nil {
		return call.Result{}, s.failure(ctx, t, err)
	}
	return call.Result{Raw: raw, IsError: isError(raw), Duration: time.Since(start)}, nil
}

// failure says what became of a call that got no answer.
func (s *server) failure(ctx context.Context, t *agent.Tool, err error) *call.Refusal {
	if errors.Is(err, mcpwire.ErrNotSent) {
		return call.Refuse(stage, call.ServerUnavailable, "server %s could not be reached: %v", s.spec.Alias, err).Again()
	}
	// Reading twice does no harm; anything else may have been done.
	refuse := call.Uncertain
	if t.SideEffect == agent.Read {
		refuse = call.Refuse
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return refuse(stage, call.TimedOut, "%s on server %s did not answer in time", t.Name, s.spec.Alias).Again()
	case ctx.Err() != nil:
		return refuse(stage, call.TimedOut, "the call of %s was cancelled", t.Name)
	}
	return refuse(stage, call.ServerUnavailable, "server %s went away during the call: %v", s.spec.Alias, err).Again()
}

// refusal is the typed form of why a server could not be brought up.
func (s *server) refusal(ctx context.Context, err error) *call.Refusal {
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		return r
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return call.Refuse(stage, call.TimedOut, "server %s did not start within %v", s.spec.Alias, s.options.StartTimeout)
	}
	return call.Refuse(stage, call.ServerUnavailable, "server %s did not start: %v", s.spec.Alias, err)
}

// failed is a result that tells of the server's own error.
func failed(e *mcpwire.RPCError) jsontext.Value {
	b, err := json.Marshal(map[string]any{
		"content": []any{map[string]any{"type": "text", "text": e.Error()}},
		"isError": true,
	})
	if err != nil {
		return jsontext.Value(`{"content":[],"isError":true}`)
	}
	return b
}

// isError reads the one field of a result that the door needs.
func isError(raw jsontext.Value) bool {
	var r struct {
		IsError bool `json:"isError"`
	}
	return json.Unmarshal(raw, &r) == nil && r.IsError
}
