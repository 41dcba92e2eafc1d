package gateway

import (
	"context"
	"fmt"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// TestFleet runs 32 clients against two gateways that share one store. A rate limit, a spending cap and an approval
// must be enforced exactly across both gateways.
func TestFleet(t *testing.T) {
	const clients = 32
	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		w := newWorld()
		a := behaviorAgent()
		tool := func(name string, p agent.ToolPolicy) {
			a.Tools = append(a.Tools, agent.Tool{Name: name, SideEffect: agent.Write, Policy: p, Binding: agent.OnServer{Alias: "s"}})
		}
		tool("do_rate", agent.ToolPolicy{Rate: &agent.Rate{Count: 10, Per: time.Minute}})
		tool("do_spend", agent.ToolPolicy{Spend: &agent.Cap{PerDay: "100.00"}})
		tool("do_once", agent.ToolPolicy{HumanApproval: true})
		first := open(t, connect())
		gateways := []*Gateway{New(a, Options{Binding: w, Store: first})}
		db := connect()
		gateways = append(gateways, New(a, Options{Binding: w, Store: store.New(db, first.Keys, nil)}))

		// together makes one call from every client at the same time and returns how many succeed.
		together := func(tool, args string, ctx context.Context, want call.Code, notify func(string, jsontext.Value)) (passed int) {
			t.Helper()
			var mu sync.Mutex
			var wg sync.WaitGroup
			for i := range clients {
				wg.Go(func() {
					_, err := gateways[i%2].Call(ctx, &call.Call{Tool: tool, Arguments: jsontext.Value(args), Principal: "me", OnNotify: notify})
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						passed++
					} else if codeOf(err) != want {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			return passed
		}
		if n := together("do_rate", `{}`, t.Context(), call.RateLimited, nil); n != 10 {
			t.Errorf("a rate of 10/minute allowed %d calls", n)
		}
		spent := new(big.Rat)
		for range 2 {
			for range together("do_spend", `{"amount":3.37}`, t.Context(), call.AmountExceeded, nil) {
				spent.Add(spent, big.NewRat(337, 100))
			}
		}
		if spent.FloatString(2) != "97.73" { // 29 calls fit; a 30th would bring the total to 101.10
			t.Errorf("spent %s of 100.00", spent.FloatString(2))
		}

		ctx, cancel := context.WithCancel(t.Context())
		waiting := make(chan struct{}, clients)
		go func() {
			for range clients {
				<-waiting
			}
			list, err := approval.List(t.Context(), first, time.Now())
			if err != nil || len(list) != 1 {
				t.Errorf("got %d pending approvals for identical calls, want 1: %v", len(list), err)
				cancel()
				return
			}
			if err := approval.Decide(t.Context(), first, list[0].ID, true, "boss@local", ""); err != nil {
				t.Error(err)
				cancel()
			}
		}()
		before := w.count()
		n := together("do_once", `{"n":1}`, ctx, call.ApprovalExpired, func(string, jsontext.Value) { waiting <- struct{}{} })
		cancel()
		if n != 1 || w.count()-before != 1 {
			t.Errorf("one approval admitted %d calls; %d were sent", n, w.count()-before)
		}
		if report, err := first.Journal.Verify(t.Context(), journal.Check{}); err != nil || !report.OK {
			t.Error(fmt.Sprintf("%+v", report), err)
		}
	})
}
