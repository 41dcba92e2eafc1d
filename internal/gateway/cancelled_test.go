package gateway

import (
	"context"
	"errors"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/gateway/grant"
	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// A cancelled call ends its requests to the store. The refusal and the journal must not say that the store is
// unavailable, or that the caller lacks something.
func TestCancelledBeforeItIsMade(t *testing.T) {
	statetest.Each(t, func(t *testing.T, store func() state.DB) {
		b := open(t, store())
		for name, c := range map[string]*call.Call{
			"capability": {Tool: "do_read"},
			"remember":   {Tool: "do_read", IdempotencyKey: "1"},
			"quota":      {Tool: "do_read"},
		} {
			a, w := behaviorAgent(), &world{}
			o := Options{Binding: w, Store: b, Name: name}
			ctx, cancel := context.WithCancel(t.Context())
			switch name {
			case "capability":
				a.Capabilities = agent.Capabilities{Required: []string{"tool.a"}}
				o.Rules = gate.Rules{Grants: grant.Of(b).For(a.ID)}
			case "quota":
				o.Quotas = &limit.Quotas{Quota: limit.Quota{PerMinute: 5}}
			}
			cancel()
			c.Principal, c.Arguments = "me", []byte("{}")
			_, err := New(a, o).Call(ctx, c)
			r, _ := errors.AsType[*call.Refusal](err)
			if r == nil || r.Code != call.TimedOut || r.Effect != call.NoEffect || w.count() != 0 {
				t.Errorf("%s: a cancelled call ended with %v", name, err)
			}
			records, err := b.Journal.Show(t.Context(), journal.Filter{Agent: name})
			if err != nil || len(records) != 1 || records[0].Code != string(call.TimedOut) {
				t.Errorf("%s: the journal has %+v, %v", name, records, err)
			}
		}
	})
}
