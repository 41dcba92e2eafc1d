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

// handOver replaces the key that signs the journal, as if another process had rotated the root key.
func handOver(t *testing.T, b *store.Store, db state.DB) {
	t.Helper()
	_, next, err := ed25519.GenerateKey(nil)
	if err == nil {
		_, err = journal.New(db, b.Keys.Signer(), "ambit").HandOver(t.Context(), next, "ada@local", nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// refusedAfterRotation checks that err is the refusal of a call that cannot be recorded after a key rotation.
func refusedAfterRotation(t *testing.T, what string, err error) {
	t.Helper()
	r, _ := errors.AsType[*call.Refusal](err)
	if r == nil || r.Code != call.StoreUnavailable || r.Effect != call.NoEffect || !strings.Contains(r.Message, "restart the process") || !strings.Contains(r.Hint, "restart the daemon") || r.Retryable {
		t.Errorf("%s ended with %+v", what, err)
	}
}

// TestNothingIsSentAfterRotation checks that requests are refused after a rotation. A call with an effect is
// refused at once. Every other request is refused as soon as this process has noticed the rotation.
func TestNothingIsSentAfterRotation(t *testing.T) {
	for name, see := range map[string]func(*testing.T, *Gateway){
		"by a call": func(t *testing.T, g *Gateway) {
			_, err := g.Call(t.Context(), &call.Call{Tool: "do_write", Principal: "me"})
			refusedAfterRotation(t, "the first call", err)
		},
		"by recovery": func(t *testing.T, g *Gateway) {
			if err := g.Recover(t.Context()); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			statetest.Each(t, func(t *testing.T, connect func() state.DB) {
				b, w, s := open(t, connect()), newWorld(), &shelf{}
				g := New(behaviorAgent(), Options{Binding: w, Store: b, Expose: Exposed{Resources}})
				defer g.Close()
				shop := New(behaviorAgent(), Options{Binding: s, Store: b, Expose: Exposed{Resources}})
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
				_, err = g.Prompt(t.Context(), &call.Forward{Method: "prompts/get", Principal: "me"}, "p", func(context.Context, string) (jsontext.Value, error) {
					t.Error("the prompt was fetched")
					return nil, nil
				})
				refusedAfterRotation(t, "a prompt", err)
				if w.count() != 1 || s.asked != nil || strings.Contains(kept(t, g), "call ") {
					t.Errorf("%d calls were sent, want 1; forwarded %q; the store has: %s", w.count(), s.asked, kept(t, g))
				}
			})
		})
	}
}

// meanwhileDB is a database that runs a function after every read.
type meanwhileDB struct {
	state.DB
	then func()
}

func (m meanwhileDB) Read(ctx context.Context, f func(state.Tx) error) error {
	defer m.then()
	return m.DB.Read(ctx, f)
}

// TestNothingIsSentAgainAfterRotation checks that a process with the old key does not recover the call of a dead
// process. Only processes with the new key may recover the call.
func TestNothingIsSentAgainAfterRotation(t *testing.T) {
	for _, late := range []bool{false, true} {
		statetest.Each(t, func(t *testing.T, connect func() state.DB) {
			b, w := open(t, connect()), newWorld()
			g := New(behaviorAgent(), Options{Binding: w, Store: b})
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
				t.Errorf("late %v: sent %d times; the store has: %s", late, w.count(), got)
			}
		})
	}
}

// TestKeyIsNotWaitedForAfterRotation checks that a repeated call does not wait for an earlier unfinished call with the
// same idempotency key, because this process cannot recover the earlier call.
func TestKeyIsNotWaitedForAfterRotation(t *testing.T) {
	db := statetest.Open(t)
	b := open(t, db)
	g := New(behaviorAgent(), Options{Binding: newWorld(), Store: b})
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
	refusedAfterRotation(t, "the call with the same key", err)
	if r, _ := errors.AsType[*call.Refusal](err); r != nil && r.Stage != stageRemember {
		t.Errorf("the call was stopped at stage %s", r.Stage)
	}
}
