package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// TestRecover ends a process with an unfinished call. It then checks how another process recovers the call.
func TestRecover(t *testing.T) {
	tests := []struct {
		tool, digest string // the digest of the manifest that the recovering process serves
		crashes      int    // how many processes crash before a process recovers the call
		absent       bool   // the server is unreachable when the call is resent
		sent         int
		kept         string
	}{
		{"wait_write", "sha256:d1", 1, false, 1, "call unknown, key claimed, leaf unknown"},
		{"wait_write", "sha256:d2", 1, false, 1, "call unknown, key claimed, leaf unknown"},
		{"wait_idempotent", "sha256:d1", 1, false, 2, "key answered, leaf allow"},
		{"wait_idempotent", "sha256:d2", 1, false, 1, "call sending, key claimed"},
		{"wait_idempotent", "sha256:d1", 2, false, 2, "call unknown, key claimed, leaf unknown"},
		{"wait_idempotent", "sha256:d1", 1, true, 1, "call unknown, key claimed, leaf unknown"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.tool, tt.digest, tt.crashes, tt.absent), func(t *testing.T) {
			statetest.Each(t, func(t *testing.T, connect func() state.DB) {
				first := open(t, connect())
				w := newWorld()
				free := sync.OnceFunc(func() { close(w.release) })
				var dead sync.WaitGroup
				dies := New(behaviorAgent(), Options{Binding: w, Store: first})
				gateways := []*Gateway{dies}
				defer func() {
					free()
					dead.Wait()
					for _, d := range gateways {
						d.Close()
					}
				}()
				dead.Go(func() {
					_, _ = dies.Call(context.Background(), &call.Call{Tool: tt.tool, IdempotencyKey: "k", Principal: "me"})
				})
				<-w.began
				next := func(digest string) *Gateway {
					db := connect()
					a := behaviorAgent()
					a.Digest = digest
					var binding call.Binding = w
					if tt.absent {
						binding = absent{}
					}
					gateways = append(gateways, New(a, Options{Binding: binding, Store: store.New(db, first.Keys, nil)}))
					return gateways[len(gateways)-1]
				}
				g := next(tt.digest)
				if err := g.Recover(t.Context()); err != nil || w.count() != 1 {
					t.Fatalf("another process took over the call of a running process: sent %d times, %v", w.count(), err)
				}
				if err := first.DB.Close(); err != nil { // from now on, the owner looks dead to other processes
					t.Fatal(err)
				}
				for range tt.crashes - 1 {
					dying := g
					dead.Go(func() { _ = dying.Recover(context.Background()) })
					<-w.began
					g.store.DB.Close()
					g = next(tt.digest)
				}
				recovered := make(chan error)
				go func() { recovered <- g.Recover(context.Background()) }()
				if tt.sent > tt.crashes {
					<-w.began
					free()
				}
				if err := <-recovered; err != nil {
					t.Fatal(err)
				}
				if got := kept(t, g); got != tt.kept {
					t.Errorf("the store has: %s\nwant: %s", got, tt.kept)
				}
				if w.count() != tt.sent {
					t.Errorf("the call was sent %d times, want %d", w.count(), tt.sent)
				}
			})
		})
	}
}

// absent is a server that cannot be reached, so a call is certainly not sent.
type absent struct{}

func (absent) Act(context.Context, *agent.Tool, *call.Call) (call.Result, error) {
	return call.Result{}, call.Unsent(call.Refuse(stageAct, call.ServerUnavailable, "the server cannot be reached"))
}

// orphaned stores an unfinished call to an idempotent tool. The owner of the call is a dead process. The call
// was made by owner@local on behalf of another principal, and has a parent call.
func orphaned(t *testing.T, g *Gateway) {
	t.Helper()
	p := &inflight{Call: &call.Call{ID: NewID(), Tool: "do_idempotent", Principal: "me", By: "owner@local", Parent: "above"}, start: time.Now()}
	if stopped := resolveStage(g, t.Context(), p); stopped != nil {
		t.Fatal(stopped)
	}
	err := g.store.DB.Write(t.Context(), func(tx state.Tx) error {
		if err := g.writeIntent(tx, p); err != nil {
			return err
		}
		_, err := tx.Exec(`UPDATE calls SET owner = 'a dead process'`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAbandoned checks that the agents of unfinished calls are found only if the process that made the calls is dead.
func TestAbandoned(t *testing.T) {
	g := newGateway(t, newWorld())
	defer g.Close()
	orphaned(t, g)
	found, err := Abandoned(t.Context(), g.store)
	if err != nil || !slices.Equal(found, []string{g.name}) {
		t.Errorf("calls of a dead process: %v, %v", found, err)
	}
	err = g.store.DB.Write(t.Context(), func(tx state.Tx) error {
		_, err := tx.Exec(`UPDATE calls SET owner = $1`, g.store.DB.Owner())
		return err
	})
	if found, e := Abandoned(t.Context(), g.store); err != nil || e != nil || len(found) != 0 {
		t.Errorf("calls of a running process: %v, %v", found, errors.Join(err, e))
	}
}

// TestRecoverLeavesIntents checks that recovery does not resend calls if the gateway has participants. The queue of
// intents repeats such calls.
func TestRecoverLeavesIntents(t *testing.T) {
	w := newWorld()
	g := newGateway(t, w)
	defer g.Close()
	g.options.Participants = []Participant{nil}
	orphaned(t, g)
	if err := g.Recover(t.Context()); err != nil || w.count() != 0 || kept(t, g) != "call unknown, leaf unknown" {
		t.Errorf("sent %d times; the store has: %s; error %v", w.count(), kept(t, g), err)
	}
}

// TestResentAsItWas checks that the record of a resent call names the parent call and who made the call.
func TestResentAsItWas(t *testing.T) {
	w := newWorld()
	g := newGateway(t, w)
	defer g.Close()
	orphaned(t, g)
	if err := g.Recover(t.Context()); err != nil || w.count() != 1 {
		t.Fatalf("sent %d times, %v", w.count(), err)
	}
	entries, err := g.store.Journal.Show(t.Context(), journal.Filter{})
	if err != nil || len(entries) != 1 || entries[0].By != "owner@local" || entries[0].Parent != "above" {
		t.Errorf("the journal has %+v, %v", entries, err)
	}
}

// TestOrphansAreFoundByTheirIndex checks that the queries for orphans use the index, because every process runs them
// often.
func TestOrphansAreFoundByTheirIndex(t *testing.T) {
	g := newGateway(t, newWorld())
	defer g.Close()
	for query, args := range map[string][]any{selectOwners: nil, selectOrphans: {"owner"}} {
		var plan []string
		err := g.store.DB.Read(t.Context(), func(tx state.Tx) error {
			return tx.Query(`EXPLAIN QUERY PLAN `+query, args, func(row state.Row) error {
				var n int64
				var how string
				err := row.Scan(&n, &n, &n, &how)
				plan = append(plan, how)
				return err
			})
		})
		if err != nil || !strings.Contains(strings.Join(plan, "; "), "USING INDEX calls_open") {
			t.Errorf("the plan of %s does not use the index calls_open: %q, %v", query, plan, err)
		}
	}
}

// TestResendRecordedLater resends a call while the store cannot record the outcome. The outcome must become
// unknown when the store works again.
func TestResendRecordedLater(t *testing.T) {
	g := newGateway(t, newWorld())
	defer g.Close()
	orphaned(t, g)
	broken := &brokenStore{DB: g.store.DB, writes: 1} // only the write that takes over the call succeeds
	g.store.DB = broken
	if err := g.Recover(t.Context()); err != nil || kept(t, g) != "call resending" {
		t.Fatalf("the store has: %s, %v", kept(t, g), err)
	}
	broken.repair()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for kept(t, g) != "call unknown, leaf unknown" {
		if ctx.Err() != nil {
			t.Fatalf("the store has: %s", kept(t, g))
		}
		g.waitForChange(ctx)
	}
}

// The type gone is an unreachable server. It reports this only after the call has timed out.
type gone struct{ release chan struct{} }

func (g gone) Act(ctx context.Context, tool *agent.Tool, c *call.Call) (call.Result, error) {
	<-g.release
	return absent{}.Act(ctx, tool, c)
}

// TestResendNotSentLate resends a call, and the resend fails after the timeout. The outcome of the call must stay
// unknown. The first attempt may have had an effect.
func TestResendNotSentLate(t *testing.T) {
	away := gone{make(chan struct{})}
	g := newGateway(t, away)
	for i := range g.agent.Tools {
		g.agent.Tools[i].Timeout = time.Millisecond
	}
	orphaned(t, g)
	if err := g.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(away.release)
	g.Close() // wait for the late refusal
	if got := kept(t, g); got != "call unknown, leaf unknown" {
		t.Errorf("the store has: %s", got)
	}
}

// The type first is a server that answers only the first call. After that call the server is
// unreachable.
type first struct{ answered bool }

func (f *first) Act(ctx context.Context, tool *agent.Tool, c *call.Call) (call.Result, error) {
	if f.answered {
		return absent{}.Act(ctx, tool, c)
	}
	f.answered = true
	return call.Result{Raw: jsontext.Value(fine)}, nil
}

// TestContinuationKeepsTheCharge checks the amount that was charged at the start of a call. The amount is
// not given back if the continuation of the call cannot be sent.
func TestContinuationKeepsTheCharge(t *testing.T) {
	g := newGateway(t, &first{})
	defer g.Close()
	pay := func(continues string) (id string, err error) {
		c := &call.Call{ID: NewID(), Tool: "do_capped", Arguments: jsontext.Value(`{"amount":60}`), Principal: "me", Continues: continues}
		_, err = g.Call(t.Context(), c)
		return c.ID, err
	}
	began, err := pay("")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pay(began); codeOf(err) != call.ServerUnavailable {
		t.Fatalf("the continuation ended with %v", err)
	}
	if _, err := pay(""); codeOf(err) != call.AmountExceeded {
		t.Errorf("60 of 100 are spent, but a call for 60 more ended with %v", err)
	}
}
