package gateway

import (
	"errors"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// tamper changes the store as someone does who has no root key.
func tamper(t *testing.T, b *store.Store, statement string) {
	t.Helper()
	err := b.DB.Write(t.Context(), func(tx state.Tx) error {
		_, err := tx.Exec(statement)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestChangedCallIsNotResent changes the row of an unfinished call. Recovery must not send the changed call, because
// the gateway never admitted it.
func TestChangedCallIsNotResent(t *testing.T) {
	tests := []struct{ agent, digest, change string }{ // the agent that made the call, and the change of its row
		{"desk", "sha256:d1", `id = 'another'`},
		{"desk", "sha256:d1", `tool = 'do_asked'`},
		{"desk", "sha256:d1", `tool = 'fail_idempotent'`},
		{"desk", "sha256:d1", `principal = 'boss'`},
		{"desk", "sha256:d1", `idem = 'k'`},
		{"desk", "sha256:d1", `record = NULL`},
		{"other", "sha256:d1", `agent = 'desk'`},
		{"desk", "sha256:d2", `digest = 'sha256:d1'`},
	}
	for _, tt := range tests {
		t.Run(tt.change, func(t *testing.T) {
			statetest.Each(t, func(t *testing.T, connect func() state.DB) {
				w, b := newWorld(), open(t, connect())
				a := careful()
				a.Digest = tt.digest
				made := New(a, Options{Name: tt.agent, Binding: w, Store: b})
				defer made.Close()
				g := New(careful(), Options{Name: "desk", Binding: w, Store: b})
				defer g.Close()
				orphaned(t, made)
				tamper(t, b, `UPDATE calls SET `+tt.change)
				if err := g.Recover(t.Context()); err != nil || w.count() != 0 || kept(t, g) != "call unknown, leaf unknown" {
					t.Errorf("sent %d times; the store has: %s; error %v", w.count(), kept(t, g), err)
				}
			})
		})
	}
}

// TestOnlyIdempotentCallsAreResent recovers a call of a tool that is not idempotent any more.
func TestOnlyIdempotentCallsAreResent(t *testing.T) {
	w := newWorld()
	g := newGateway(t, w)
	defer g.Close()
	orphaned(t, g)
	for i := range g.agent.Tools {
		g.agent.Tools[i].Policy.Idempotent = false
	}
	if err := g.Recover(t.Context()); err != nil || w.count() != 0 || kept(t, g) != "call unknown, leaf unknown" {
		t.Errorf("sent %d times; the store has: %s; error %v", w.count(), kept(t, g), err)
	}
}

// TestMovedAnswerIsNotReplayed copies a stored answer to the row of another call. The other caller must not get it.
func TestMovedAnswerIsNotReplayed(t *testing.T) {
	tests := []struct{ name, agent, principal, key string }{ // whose answer is copied
		{"principal", "desk", "alice", "k"},
		{"key", "desk", "mallory", "another"},
		{"agent", "other", "mallory", "k"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			statetest.Each(t, func(t *testing.T, connect func() state.DB) {
				w, b := newWorld(), open(t, connect())
				do := func(agent, principal, key string) (call.Result, error) {
					g := New(behaviorAgent(), Options{Name: agent, Binding: w, Store: b})
					defer g.Close()
					return g.Call(t.Context(), &call.Call{Tool: "do_write", IdempotencyKey: key, Principal: principal})
				}
				if _, err := do("desk", "mallory", "k"); err != nil {
					t.Fatal(err)
				}
				if _, err := do(tt.agent, tt.principal, tt.key); err != nil {
					t.Fatal(err)
				}
				for _, column := range []string{"sealed", "call"} { // the second change completes the copy
					tamper(t, b, `UPDATE answers SET `+column+` = (SELECT `+column+` FROM answers
WHERE agent = '`+tt.agent+`' AND principal = '`+tt.principal+`' AND idem = '`+tt.key+`')
WHERE agent = 'desk' AND principal = 'mallory' AND idem = 'k'`)
					if got, err := do("desk", "mallory", "k"); codeOf(err) != call.OutcomeUnknown || w.count() != 2 {
						t.Errorf("after copying %s, the caller got %s, %v; sent %d times", column, got.Raw, err, w.count())
					}
				}
			})
		})
	}
}

// TestForgedCallIsNotJournaled writes or changes the row of an unfinished call without the root key. The records that
// ambit signs must not repeat the row, neither when the call is recovered nor when a person settles it.
func TestForgedCallIsNotJournaled(t *testing.T) {
	tests := []struct {
		name, change string
		args         []any
	}{
		{"unchanged", `sealed = NULL`, nil},
		{"record", `record = $1`, []any{[]byte(`{"principal":"boss","tool":"do_write"}`)}},
		{"principal", `principal = 'boss'`, nil},
		{"no proof", `mac = NULL`, nil},
		{"the proof of another row", `id = 'forged'`, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			statetest.Each(t, func(t *testing.T, connect func() state.DB) {
				b := open(t, connect())
				g := New(careful(), Options{Name: "desk", Binding: newWorld(), Store: b})
				defer g.Close()
				orphaned(t, g)
				tamper(t, b, `UPDATE calls SET sealed = NULL`) // so that the call is not sent again
				err := b.DB.Write(t.Context(), func(tx state.Tx) error {
					_, err := tx.Exec(`UPDATE calls SET `+tt.change, tt.args...)
					return err
				})
				if err := errors.Join(err, g.Recover(t.Context())); err != nil {
					t.Fatal(err)
				}
				recovered, err := b.Journal.Show(t.Context(), journal.Filter{Limit: 1})
				if err != nil {
					t.Fatal(err)
				}
				if err := Settle(t.Context(), b, recovered[0].Record.Call, true, "owner@local"); err != nil {
					t.Fatal(err)
				}
				entries, err := b.Journal.Show(t.Context(), journal.Filter{})
				if err != nil || len(entries) != 2 {
					t.Fatalf("got %d records, %v", len(entries), err)
				}
				for _, e := range entries {
					proven := e.Principal == "me" && e.Tool == "do_idempotent" && e.Agent == "desk"
					warned := e.Principal == "" && e.Tool == "" && strings.Contains(e.Detail, "something other than ambit")
					if original := tt.name == "unchanged"; proven != original || warned == original {
						t.Errorf("the record is %+v", e.Record)
					}
				}
			})
		})
	}
}
