package gateway

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/action"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// The function till returns the gateway of an agent with the tools "pay" and "ask". Both tools send requests to
// the given address. The tool "pay" may spend 100 a day. The tool "ask" may be called twice an hour.
func till(t *testing.T, address string) *Gateway {
	t.Helper()
	a := &agent.Agent{Name: "Till", ID: "matrix://agent/till", Digest: "sha256:d1"}
	for name, policy := range map[string]agent.ToolPolicy{
		"pay": {Spend: &agent.Cap{PerDay: "100"}},
		"ask": {Rate: &agent.Rate{Count: 2, Per: time.Hour}},
	} {
		a.Tools = append(a.Tools, agent.Tool{
			Name: name, SideEffect: agent.Read, Policy: policy,
			Binding: agent.HTTP{Method: "GET", URL: address + "/" + name, Host: "127.0.0.1"},
		})
	}
	client := egress.New(egress.Switches{LoopbackHTTP: true})
	t.Cleanup(client.Close)
	g := New(a, Options{Binding: action.New(a, action.Options{Egress: client}), Store: open(t, statetest.Open(t))})
	t.Cleanup(g.Close)
	return g
}

var limited = map[string]call.Code{"pay": call.AmountExceeded, "ask": call.RateLimited}

// A read that was sent counts towards its limits, even if its caller has gone.
func TestSentCounts(t *testing.T) {
	arrived := make(chan struct{}, 1)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	g := till(t, s.URL)
	for tool, limit := range limited {
		use := func() error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, err := g.Call(ctx, &call.Call{Tool: tool, Arguments: jsontext.Value(`{"amount":50}`), Principal: "me"})
				ended <- err
			}()
			select {
			case err := <-ended: // the call ended before it was sent
				return err
			case <-arrived:
				cancel()
				return <-ended
			}
		}
		for range 2 {
			if err := use(); codeOf(err) != call.TimedOut {
				t.Fatalf("%s: the call ended with %v", tool, err)
			}
		}
		if err := use(); codeOf(err) != limit {
			t.Errorf("%s: the third call, after two that were sent, ended with %v", tool, err)
		}
	}
}

// A call that cannot reach its server does not count towards the limits.
func TestUnsentDoesNotCount(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	g := till(t, "http://"+closed.Addr().String())
	for tool := range limited {
		for range 3 {
			_, err := g.Call(t.Context(), &call.Call{Tool: tool, Arguments: jsontext.Value(`{"amount":50}`), Principal: "me"})
			if codeOf(err) != call.ServerUnavailable {
				t.Fatalf("%s: the call ended with %v", tool, err)
			}
		}
	}
}

// A GET request by a tool with write effects is not a read. If the server does not answer the request, the effect
// is unknown. The idempotency key then prevents a second request.
func TestChangeByGetIsMadeOnce(t *testing.T) {
	var made atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		made.Add(1)
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(s.Close)
	g := till(t, s.URL)
	for i := range g.agent.Tools {
		g.agent.Tools[i].SideEffect = agent.Write
	}
	for _, want := range []call.Code{call.ServerUnavailable, call.OutcomeUnknown} {
		_, err := g.Call(t.Context(), &call.Call{Tool: "ask", Principal: "me", IdempotencyKey: "k"})
		if codeOf(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if n := made.Load(); n != 1 {
		t.Errorf("the request was made %d times, want 1", n)
	}
}

// says is a binding that refuses every call with the same refusal.
type says struct{ refusal *call.Refusal }

func (s says) Act(context.Context, *agent.Tool, *call.Call) (call.Result, error) {
	return call.Result{}, s.refusal
}

// The charge for a refused call is refunded only if the refusal has Unsent set. The charge for a continued call
// is never refunded, because only its first round was charged.
func TestGivenBack(t *testing.T) {
	refuse := func(effect call.Effect, unsent bool) *call.Refusal {
		r := call.Refuse("act", call.ServerUnavailable, "no")
		r.Effect, r.Unsent = effect, unsent
		return r
	}
	for name, tt := range map[string]struct {
		refusal   *call.Refusal
		continues string
		taken     int
		want      call.Code
	}{
		"not sent":            {refuse(call.NoEffect, true), "", 2, call.ServerUnavailable},
		"sent without effect": {refuse(call.NoEffect, false), "", 2, call.AmountExceeded},
		"unknown effect":      {refuse(call.EffectUnknown, true), "", 2, call.AmountExceeded},
		"a continuation":      {refuse(call.NoEffect, true), "1", 0, call.AmountExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t, says{tt.refusal})
			defer g.Close()
			pay := func(continues string) call.Code {
				_, err := g.Call(t.Context(), &call.Call{Tool: "do_capped", Arguments: jsontext.Value(`{"amount":50}`), Principal: "me", Continues: continues})
				return codeOf(err)
			}
			if tt.continues != "" { // make two first rounds, which are charged
				g.options.Binding = newWorld()
				pay("")
				pay("")
				g.options.Binding = says{tt.refusal}
				pay(tt.continues)
			}
			for range tt.taken {
				if got := pay(""); got != call.ServerUnavailable {
					t.Fatalf("got %q, want %q", got, call.ServerUnavailable)
				}
			}
			if got := pay(""); got != tt.want {
				t.Errorf("the next call ended with %s, want %s", got, tt.want)
			}
		})
	}
}
