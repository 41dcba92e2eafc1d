package dispatch

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

// TestKeyEndsWhileItWaits checks that a waiting intent does not run if its caller's key or
// token is no longer valid. The worker reads the state of the key from the store.
func TestKeyEndsWhileItWaits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, place, dir string) {
		begun, end := make(chan struct{}), make(chan struct{})
		var done atomic.Int64
		worker := newRig(t, place, dir, echo(agent.NetworkOff, 0), func(ctx context.Context, c *call.Call) (call.Result, error) {
			if strings.HasPrefix(textOf(c), "first") {
				close(begun)
				<-end
			} else {
				done.Add(1)
			}
			return answer(ctx, c)
		}, Options{Concurrency: 1})
		worker.submit("first", "")
		<-begun
		submitter := worker
		if urlOf(place) != "" {
			submitter = newRig(t, place, dir, worker.agent, nil, Options{})
		}
		keys := identity.NewAPIKeys(submitter.store.Authority)
		change := func(query string) func(id string) error {
			return func(id string) error {
				return submitter.store.DB.Write(t.Context(), func(tx state.Tx) error { _, err := tx.Exec(query, id); return err })
			}
		}
		tests := []struct {
			name  string
			end   func(id string) error // changes the key before the intent runs; if nil, the intent is submitted without a key
			until time.Time
			says  string // how the refusal begins; if empty, the intent runs
		}{
			{"revoked", func(id string) error { _, err := keys.Revoke(t.Context(), id); return err }, time.Time{}, "the intent was not run, because the key has been revoked"},
			{"expired", change(`UPDATE api_keys SET expires = 1 WHERE id = $1`), time.Time{}, "the intent was not run, because the key has expired"},
			{"deleted", change(`DELETE FROM api_keys WHERE id = $1`), time.Time{}, "the intent was not run, because the key is unknown"},
			{"a good key", func(string) error { return nil }, time.Time{}, ""},
			{"an expired token", nil, time.Now(), "the intent was not run, because the token has expired"},
			{"a valid token", nil, time.Now().Add(time.Hour), ""},
			{"an intent from the command line", nil, time.Time{}, ""},
		}
		ids := make([]string, len(tests))
		good := int64(0)
		for n, tt := range tests {
			r := Request{Agent: submitter.agent, Name: "echo", Text: tt.name, Principal: "me@local", Until: tt.until}
			if tt.end != nil {
				k, _, err := keys.New(t.Context(), identity.KeySpec{})
				if err != nil {
					t.Fatal(err)
				}
				r.Key = k.ID
			}
			i, err := submitter.Submit(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			ids[n] = i.ID
			if tt.end != nil {
				if err := tt.end(r.Key); err != nil {
					t.Fatal(err)
				}
			}
			if tt.says == "" {
				good++
			}
		}
		close(end)
		for n, tt := range tests {
			switch got := submitter.wait(ids[n]); {
			case tt.says == "":
				if got.State != Done {
					t.Errorf("%s: intent = %+v, want done", tt.name, got)
				}
			case got.State != Failed || got.Attempts != 0 || got.Refusal == nil || got.Refusal.Code != call.ApprovalDenied ||
				got.Refusal.Effect != call.NoEffect || !strings.HasPrefix(got.Refusal.Message, tt.says):
				t.Errorf("%s: intent = %+v, refusal %v; want %q", tt.name, got, got.Refusal, tt.says)
			case !slices.Equal(decisions(t, submitter.store, ids[n]), []journal.Decision{journal.Deny}):
				t.Errorf("%s: the journal has the decisions %v", tt.name, decisions(t, submitter.store, ids[n]))
			}
		}
		if done.Load() != good {
			t.Errorf("%d intents ran, want %d", done.Load(), good)
		}
	})
}

// An attacker with write access to the store cannot make another agent run an intent.
func TestIntentIsBoundToItsAgent(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, place, dir string) {
		begun, end := make(chan struct{}), make(chan struct{})
		r := newRig(t, place, dir, echo(agent.NetworkOff, 0), func(ctx context.Context, c *call.Call) (call.Result, error) {
			close(begun)
			<-end
			return answer(ctx, c)
		}, Options{Concurrency: 1})
		defer close(end)
		r.submit("first", "")
		<-begun
		second := r.submit("second", "")
		c, _, err := r.readCall(second.ID, "sha256:other")
		if c != nil || !errors.Is(err, errOtherAgent) {
			t.Fatalf("for another agent, readCall returned %v, %v", c, err)
		}
		if got := r.wait(second.ID); got.State != Failed || got.Attempts != 0 {
			t.Errorf("the intent is %+v, want failed", got)
		}
	})
}
