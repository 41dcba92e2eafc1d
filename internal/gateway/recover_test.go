package gateway

import (
	"context"
	"fmt"
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

// TestRecover kills the owner of a call under way, and lets another process
// find it.
func TestRecover(t *testing.T) {
	tests := []struct {
		tool, digest string // of the agent that the second process serves
		crashes      int    // of owners, before the one that recovers
		absent       bool   // no process can repeat it
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
				dies := New(clerk(), Options{Binding: w, Books: first})
				doors := []*Gateway{dies}
				defer func() {
					free()
					dead.Wait()
					for _, d := range doors {
						d.Close()
					}
				}()
				dead.Go(func() {
					_, _ = dies.Call(context.Background(), &call.Call{Tool: tt.tool, IdempotencyKey: "k", Principal: "me"})
				})
				<-w.began
				next := func(digest string) *Gateway {
					db := connect()
					a := clerk()
					a.Digest = digest
					var binding call.Binding = w
					if tt.absent {
						binding = absent{}
					}
					doors = append(doors, New(a, Options{Binding: binding, Books: &store.Store{DB: db, Keys: first.Keys, Journal: journal.New(db, first.Keys.Signer(), "test")}}))
					return doors[len(doors)-1]
				}
				g := next(tt.digest)
				if err := g.Recover(t.Context()); err != nil || w.count() != 1 {
					t.Fatalf("the call of a living process was taken over: sent %d times, %v", w.count(), err)
				}
				if err := first.DB.Close(); err != nil { // the end of its process, as far as others can see
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
					t.Errorf("kept: %s\nwant: %s", got, tt.kept)
				}
				if w.count() != tt.sent {
					t.Errorf("sent %d times, want %d", w.count(), tt.sent)
				}
			})
		})
	}
}

// absent is a server that is not there, so that surely nothing was sent.
type absent struct{}

func (absent) Act(context.Context, *agent.Tool, *call.Call) (call.Result, error) {
	return call.Result{}, call.Unsent(call.Refuse(stageAct, call.ServerUnavailable, "the server is not there"))
}

// orphaned leaves a call of an idempotent tool under way, whose owner is gone. It was
// made in another's name, as part of a call.
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

// TestRecoverLeavesIntents shows that a call with a participant is not sent again
// by recovery: the queue begins it again.
func TestRecoverLeavesIntents(t *testing.T) {
	w := newWorld()
	g := newGateway(t, w)
	defer g.Close()
	g.participants = []Participant{nil}
	orphaned(t, g)
	if err := g.Recover(t.Context()); err != nil || w.count() != 0 || kept(t, g) != "call unknown, leaf unknown" {
		t.Errorf("sent %d times, kept: %s, %v", w.count(), kept(t, g), err)
	}
}

// TestResentAsItWas: the record of a call that was sent again says in whose name it was
// made, and what it was part of.
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
		t.Errorf("%+v, %v", entries, err)
	}
}

// TestOrphansAreFoundByTheirIndex: everybody looks for them, all the time.
func TestOrphansAreFoundByTheirIndex(t *testing.T) {
	g := newGateway(t, newWorld())
	defer g.Close()
	for query, args := range map[string][]any{selectOwners: nil, selectOrphans: {"somebody"}} {
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
			t.Errorf("%s: %q, %v", query, plan, err)
		}
	}
}

// TestResendRecordedLater: what became of a call that was sent again is unknown
// once the store works again, if it could not be recorded.
func TestResendRecordedLater(t *testing.T) {
	g := newGateway(t, newWorld())
	defer g.Close()
	orphaned(t, g)
	broken := &brokenStore{DB: g.store.DB, writes: 1} // it is taken over, and that is all
	g.store.DB = broken
	if err := g.Recover(t.Context()); err != nil || kept(t, g) != "call resending" {
		t.Fatalf("kept: %s, %v", kept(t, g), err)
	}
	broken.mend()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for kept(t, g) != "call unknown, leaf unknown" {
		if ctx.Err() != nil {
			t.Fatalf("kept: %s", kept(t, g))
		}
		g.waitForChange(ctx)
	}
}

// gone is a server that is found absent when the call's time is over.
type gone struct{ release chan struct{} }

func (g gone) Act(ctx context.Context, tool *agent.Tool, c *call.Call) (call.Result, error) {
	<-g.release
	return absent{}.Act(ctx, tool, c)
}

// TestResendNotSentLate: if a call was not resent, the outcome of the first attempt stays
// unknown, even if the refusal comes after the timeout.
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
	g.Close() // which waits for what is late
	if got := kept(t, g); got != "call unknown, leaf unknown" {
		t.Errorf("kept: %s", got)
	}
}

// first answers once, and is absent from then on.
type first struct{ answered bool }

func (f *first) Act(ctx context.Context, tool *agent.Tool, c *call.Call) (call.Result, error) {
	if f.answered {
		return absent{}.Act(ctx, tool, c)
	}
	f.answered = true
	return call.Result{Raw: jsontext.Value(fine)}, nil
}

// TestContinuationGivesNothingBack: what was counted when a call began is not
// given back when its continuation is not sent.
func TestContinuationGivesNothingBack(t *testing.T) {
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
		t.Errorf("60 of 100 are spent, and 60 more ended with %v", err)
	}
}
