package gateway

import (
	"context"
	"crypto/ed25519"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// handOver lets another key take over, as another process does that rotates the
// root.
func handOver(t *testing.T, b *store.Store, db state.DB) {
	t.Helper()
	_, next, err := ed25519.GenerateKey(nil)
	if err == nil {
		_, err = journal.New(db, b.Keys.Signer(), "test").HandOver(t.Context(), next, "ada@local", nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// refusedAfterRotation checks how a call ended that could not be recorded.
func refusedAfterRotation(t *testing.T, what string, err error) {
	t.Helper()
	r, _ := errors.AsType[*call.Refusal](err)
	if r == nil || r.Code != call.StoreUnavailable || r.Effect != call.NoEffect || !strings.Contains(r.Message, "restart it") || !strings.Contains(r.Hint, "restart the daemon") || r.Retryable {
		t.Errorf("%s ended with %+v", what, err)
	}
}

// TestNothingIsSentAfterRotation: what would have an effect is refused from the
// first call on, and everything else as soon as this process has seen it.
func TestNothingIsSentAfterRotation(t *testing.T) {
	for name, see := range map[string]func(*testing.T, *Gateway){
		"by a call": func(t *testing.T, g *Gateway) {
			_, err := g.Call(t.Context(), &call.Call{Tool: "do_write", Principal: "me"})
			refusedAfterRotation(t, "the first call", err)
		},
		"by looking for calls of others": func(t *testing.T, g *Gateway) {
			if err := g.Recover(t.Context()); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			statetest.Each(t, func(t *testing.T, connect func() state.DB) {
				b, w, s := open(t, connect()), newWorld(), &shelf{}
				g := New(clerk(), Options{Binding: w, Books: b, Expose: Exposed{Resources}})
				defer g.Close()
				shop := New(clerk(), Options{Binding: s, Books: b, Expose: Exposed{Resources}})
				defer shop.Close()
				if _, err := g.Call(t.Context(), &call.Call{Tool: "do_write", Principal: "me"}); err != nil {
					t.Fatal(err)
				}
				handOver(t, b, connect())
				see(t, g)
				for _, tool := range []string{"do_read", "do_write"} {
					_, err := g.Call(t.Context(), &call.Call{Tool: tool, Principal: "me"})
					refusedAfterRotation(t, tool, err)
				}
				_, err := shop.Forward(t.Context(), &call.Forward{Server: "s", Method: "resources/read", Principal: "me"})
				refusedAfterRotation(t, "a request", err)
				_, err = g.Prompt(t.Context(), "me", "p", func(context.Context, string) (jsontext.Value, error) {
					t.Error("a prompt was made")
					return nil, nil
				})
				refusedAfterRotation(t, "a prompt", err)
				if w.count() != 1 || s.asked != nil || strings.Contains(kept(t, g), "call ") {
					t.Errorf("sent %d calls, and %q; kept: %s", w.count(), s.asked, kept(t, g))
				}
			})
		})
	}
}

// meanwhileDB does something when the store was first read.
type meanwhileDB struct {
	state.DB
	then func()
}

func (m meanwhileDB) Read(ctx context.Context, f func(state.Tx) error) error {
	defer m.then()
	return m.DB.Read(ctx, f)
}

// TestNothingIsSentAgainAfterRotation: a call of a dead process is left to those
// who have the new key.
func TestNothingIsSentAgainAfterRotation(t *testing.T) {
	for _, late := range []bool{false, true} {
		statetest.Each(t, func(t *testing.T, connect func() state.DB) {
			b, w := open(t, connect()), newWorld()
			g := New(clerk(), Options{Binding: w, Books: b})
			defer g.Close()
			orphaned(t, g)
			rotate := sync.OnceFunc(func() { handOver(t, b, connect()) })
			if late {
				b.DB = meanwhileDB{b.DB, rotate}
			} else {
				rotate()
			}
			if err := g.Recover(t.Context()); late != errors.Is(err, journal.ErrHandedOver) {
				t.Errorf("late %v: %v", late, err)
			}
			if got := kept(t, g); w.count() != 0 || got != "call sending, leaf " {
				t.Errorf("late %v: sent %d times, kept: %s", late, w.count(), got)
			}
		})
	}
}

// TestKeyIsNotWaitedForAfterRotation: this process cannot recover the call that had the
// key, so it does not wait for an answer.
func TestKeyIsNotWaitedForAfterRotation(t *testing.T) {
	db := statetest.Open(t)
	b := open(t, db)
	g := New(clerk(), Options{Binding: newWorld(), Books: b})
	defer g.Close()
	again := &call.Call{Tool: "do_write", IdempotencyKey: "k", Principal: "me", Arguments: jsontext.Value(`{}`)}
	p := &inflight{Call: again}
	if stopped := admit(g, t.Context(), p); stopped != nil {
		t.Fatal(stopped)
	}
	if stopped := resolveStage(g, t.Context(), p); stopped != nil {
		t.Fatal(stopped)
	}
	if _, err := g.Call(t.Context(), &call.Call{Tool: "do_write", Principal: "me"}); err != nil {
		t.Fatal(err)
	}
	orphaned(t, g)
	err := db.Write(t.Context(), func(tx state.Tx) error {
		_, err := tx.Exec(`INSERT INTO answers (agent, principal, idem, call, mac, done) SELECT $1, $2, $3, id, $4, 0 FROM calls`, g.name, "me", "k", g.keyMAC(p))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	handOver(t, b, db)
	_, err = g.Call(t.Context(), again)
	refusedAfterRotation(t, "the call of the same key", err)
	if r, _ := errors.AsType[*call.Refusal](err); r != nil && r.Stage != stageRemember {
		t.Errorf("it was stopped at %s", r.Stage)
	}
}
