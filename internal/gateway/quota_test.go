package gateway

import (
	"errors"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// A principal has one quota for all agents and all processes together.
func TestQuotaCoversAllGateways(t *testing.T) {
	statetest.Each(t, func(t *testing.T, reopen func() state.DB) {
		w := newWorld()
		quotas := &limit.Quotas{Quota: limit.Quota{PerDay: 3}}
		other := behaviorAgent()
		other.Name, other.ID = "Other", "matrix://agent/other"
		one := New(behaviorAgent(), Options{Binding: w, Store: open(t, reopen()), Quotas: quotas})
		two := New(other, Options{Binding: w, Store: open(t, reopen()), Quotas: quotas})
		make := func(g *Gateway, tool, principal string) error {
			_, err := g.Call(t.Context(), &call.Call{Tool: tool, Arguments: []byte(`{}`), Principal: principal})
			return err
		}
		// Calls that the gate refuses do not count towards the quota. Calls to Why do not count
		// either.
		if err := make(one, "do_shell", "ada@local"); err == nil {
			t.Fatal("a call with a denied side effect was allowed")
		}
		for range 5 {
			if ok, reasons := one.Why(t.Context(), &call.Call{Tool: "do_read", Arguments: []byte(`{}`), Principal: "ada@local"}); !ok {
				t.Fatalf("Why denied the call: %+v", reasons)
			}
		}
		for i, step := range []struct {
			gateway *Gateway
			tool    string
		}{{one, "do_read"}, {two, "do_write"}, {one, "fail_read"}} {
			if err := make(step.gateway, step.tool, "ada@local"); err != nil {
				t.Fatalf("call %d: %v", i, err)
			}
		}
		for _, g := range []*Gateway{one, two} {
			stopped, ok := errors.AsType[*call.Refusal](make(g, "do_read", "ada@local"))
			if !ok || stopped.Code != call.RateLimited || stopped.Stage != stageLimit || stopped.Effect != call.NoEffect || !stopped.Retryable {
				t.Errorf("got the refusal %+v", stopped)
			}
			if err := make(g, "do_read", "eve@local"); err != nil {
				t.Errorf("another principal: %v", err)
			}
			for _, arguments := range []string{`{}`, ""} {
				ok, reasons := g.Why(t.Context(), &call.Call{Tool: "do_read", Arguments: []byte(arguments), Principal: "ada@local"})
				if last := reasons[len(reasons)-1]; ok || last.Stage != stageLimit || last.Code != call.RateLimited {
					t.Errorf("Why with the arguments %q returned %v, %+v", arguments, ok, last)
				}
			}
		}
		if n := w.count(); n != 5 {
			t.Errorf("%d calls were made, want 5", n)
		}
		// Every round of a continued call counts.
		before := ""
		for i, want := range []call.Code{"", "", "", call.RateLimited} {
			c := &call.Call{ID: NewID(), Tool: "do_read", Arguments: []byte(`{}`), Principal: "bob@local", Continues: before}
			_, err := one.Call(t.Context(), c)
			if got := codeOf(err); got != want {
				t.Errorf("after %d counted calls, a continued call ended with %q, want %q", i, got, want)
			}
			before = c.ID
		}
		refusals, err := one.store.Journal.Show(t.Context(), journal.Filter{Code: string(call.RateLimited)})
		if err != nil || len(refusals) != 3 {
			t.Errorf("the journal has %d refusals, want 3: %v", len(refusals), err)
		}
	})
}
