package action

import (
	"context"
	"net/http"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// TestUnsent checks that a refusal is marked as unsent if no request was sent.
func TestUnsent(t *testing.T) {
	unset := func(r *rig) { r.o.Credentials = token("") }
	other := func(b agent.Binding) func(*rig) { return func(r *rig) { r.agent.Tools[0].Binding = b } }
	for name, tt := range map[string]struct {
		http  agent.HTTP
		alter func(*rig)
		code  call.Code
	}{
		"credential missing": {agent.HTTP{AuthRef: "token"}, unset, call.CredentialMissing},
		"value missing":      {agent.HTTP{URL: "https://api.example.com/{x}"}, func(*rig) {}, call.InputInvalid},
		"no HTTP client":     {agent.HTTP{}, func(r *rig) { r.o.Egress = nil }, call.ServerUnavailable},
		"prompt":             {agent.HTTP{}, other(agent.Prompt{Template: "{x}"}), call.InputInvalid},
		"no action":          {agent.HTTP{}, other(nil), call.UnknownTool},
		"no other agents":    {agent.HTTP{}, other(agent.Compose{Agent: "b", Tool: "t"}), call.ServerUnavailable},
		"a cycle":            {agent.HTTP{}, func(r *rig) { other(agent.Compose{Agent: "reporter", Tool: "tool"})(r); r.o.Agents = callers(nil) }, call.PolicyDenied},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tt.http, answering(http.StatusOK, "text/plain", "fine"))
			tt.alter(r)
			_, err := r.call(t, `{}`)
			if got := wantCode(t, err, tt.code, call.NoEffect); !got.Unsent || len(r.requests()) != 0 {
				t.Errorf("refusal = %+v after %d requests, want Unsent after 0", got, len(r.requests()))
			}
		})
	}
}

// TestComposeKeepsUnsent checks refused calls to another agent. The refusal must keep the other agent's value
// of Unsent.
func TestComposeKeepsUnsent(t *testing.T) {
	for _, unsent := range []bool{true, false} {
		agents := callers(func(context.Context, string, *call.Call) (call.Result, error) {
			r := call.Refuse("act", call.TimedOut, "too late")
			r.Unsent = unsent
			return call.Result{}, r
		})
		tool := &agent.Tool{Name: "t", SideEffect: agent.Read, Binding: agent.Compose{Agent: "b", Tool: "t"}}
		_, err := New(&agent.Agent{Name: "a"}, Options{Agents: agents}).Act(t.Context(), tool, &call.Call{ID: "1"})
		if r := wantCode(t, err, call.TimedOut, call.NoEffect); r.Unsent != unsent {
			t.Errorf("Unsent = %t, want %t", r.Unsent, unsent)
		}
	}
}
