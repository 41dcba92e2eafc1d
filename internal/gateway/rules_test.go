package gateway

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/gateway/grant"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// meanwhile runs a function after the gate has checked the grants for the first time.
type meanwhile struct {
	gate.Grants
	happens func()
	asked   int
}

func (m *meanwhile) Missing(ctx context.Context, principal string, actions []string) ([]string, error) {
	missing, err := m.Grants.Missing(ctx, principal, actions)
	if m.asked++; m.asked == 1 && m.happens != nil {
		m.happens()
	}
	return missing, err
}

// TestRevokedOnTheWay revokes a grant after the gate has allowed the call. The intent is not stored yet. The call
// must not be made.
func TestRevokedOnTheWay(t *testing.T) {
	statetest.Each(t, func(t *testing.T, store func() state.DB) {
		b := open(t, store())
		grants := grant.Of(b)
		give := func() {
			t.Helper()
			if _, err := grants.Give(t.Context(), grant.Asked{Subject: "me@local", Actions: []string{"tool.a"}}, "owner@local"); err != nil {
				t.Fatal(err)
			}
		}
		a := testAgent(t)
		a.Capabilities = agent.Capabilities{Required: []string{"tool.a"}, Optional: []string{"tool.b"}}
		tool := &recorder{}
		rules := &meanwhile{Grants: grants.For(a.ID)}
		g := New(a, Options{Binding: tool, Store: b, Rules: gate.Rules{Grants: rules}})
		// An intent is stored for a read only if the call has an idempotency key.
		make := func(key string) error {
			rules.asked = 0
			_, err := g.Call(t.Context(), &call.Call{
				Tool: "read", Principal: "me@local", By: "owner@local", IdempotencyKey: key, Held: []string{"memory.read"},
			})
			return err
		}
		give()
		if err := make("1"); err != nil || rules.asked != 2 || len(tool.calls) != 1 {
			t.Fatalf("the grants were checked %d times, want 2: %v", rules.asked, err)
		}
		last, err := b.Journal.Show(t.Context(), journal.Filter{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		if c := last[0].Capabilities; c == nil || !slices.Equal(c.Required, []string{"tool.a"}) || !slices.Equal(c.Optional, []string{"tool.b"}) ||
			!slices.Equal(c.Held, []string{"tool.a"}) || last[0].By != "owner@local" || last[0].Principal != "me@local" {
			t.Errorf("the journal has %+v with the capabilities %+v", last[0], c)
		}
		rules.happens = func() {
			if _, err := grants.Revoke(t.Context(), "me@local", []string{"tool.a"}, "", "owner@local"); err != nil {
				t.Error(err)
			}
		}
		r, ok := errors.AsType[*call.Refusal](make("2"))
		if !ok || r.Code != call.CapabilityMissing || r.Stage != gate.Stage || rules.asked != 2 || len(tool.calls) != 1 {
			t.Errorf("the grants were checked %d times, and %d calls were made: %+v", rules.asked, len(tool.calls), r)
		}
	})
}

// argumentLog is a policy that allows everything and records the arguments of each check.
type argumentLog struct {
	gate.Policy
	judged []string
}

func (l *argumentLog) Judge(_ context.Context, _ *agent.Agent, _ string, _ *agent.Tool, c *call.Call) []call.Reason {
	l.judged = append(l.judged, string(c.Arguments))
	return nil
}

// The policy reads redacted arguments before the transaction in which it checks them.
func TestRedactedArgumentsAreReadBeforeTheWrite(t *testing.T) {
	rules := &argumentLog{}
	g := New(railed(agent.Guardrails{PII: []string{"email"}}), Options{
		Binding: &mouth{says: fine}, Store: open(t, statetest.Open(t)), Rules: gate.Rules{Policy: rules},
	})
	for _, tt := range []struct {
		arguments string
		want      []string
	}{
		{`{"n":1}`, []string{`{"n":1}`, `{"n":1}`}},
		{`{"to":"bob@example.com"}`, []string{`{"to":"bob@example.com"}`, `{"to":"[email]"}`, `{"to":"[email]"}`}},
	} {
		rules.judged = nil
		_, err := g.Call(t.Context(), &call.Call{
			Tool: "tell", Arguments: []byte(tt.arguments), Principal: "me", IdempotencyKey: tt.arguments,
		})
		if err != nil || !slices.Equal(rules.judged, tt.want) {
			t.Errorf("the policy checked %q, want %q: %v", rules.judged, tt.want, err)
		}
	}
}
