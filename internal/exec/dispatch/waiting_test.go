package dispatch

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/state"
)

// asker returns a queue that runs no intents: it has no worker, or the test holds its only
// turn.
func asker(t *testing.T, place, dir string) *rig {
	t.Helper()
	if urlOf(place) != "" {
		return newRig(t, place, dir, echo(agent.NetworkOff, 0), nil, Options{})
	}
	r := newRig(t, place, dir, echo(agent.NetworkOff, 0), answer, Options{Concurrency: 1})
	done, err := r.Turn(t.Context(), r.agent, High)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	return r
}

// ask submits an intent and returns its refusal, or nil.
func (r *rig) ask(principal, text string) *call.Refusal {
	r.t.Helper()
	_, err := r.Submit(r.t.Context(), Request{Agent: r.agent, Name: "echo", Text: text, Principal: principal})
	stopped, ok := errors.AsType[*call.Refusal](err)
	if err != nil && !ok {
		r.t.Fatal(err)
	}
	return stopped
}

// waiting writes n waiting intents of the given size to the store.
func (r *rig) waiting(principal string, n, size int) {
	r.t.Helper()
	sealed := make([]byte, size)
	err := r.store.DB.Write(r.t.Context(), func(tx state.Tx) error {
		for m := range n {
			args := []any{
				fmt.Sprintf("%032x", m), r.agent.ID, r.agent.Digest, "echo", principal, "", "normal", int64(2), int64(0), int64(1), sealed,
				string(Queued), "", "", int64(1),
			}
			if _, err := tx.Exec(insertIntent, args...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// TestWaitingLimit checks a principal with too many waiting intents. Every process of the store
// refuses the principal's new intents. Other principals are not affected.
func TestWaitingLimit(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ n, size int }{
		"many":  {maxWaiting - 1, 1},
		"large": {64, maxWaitingBytes/64 - 16}, // small enough for a busy machine to insert
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, place, dir string) {
				r, other := asker(t, place, dir), asker(t, place, dir)
				r.waiting("me@local", tt.n, tt.size)
				text := strings.Repeat("x", 600)
				if stopped := r.ask("me@local", text); stopped != nil {
					t.Fatal(stopped)
				}
				for _, r := range []*rig{r, other} {
					if stopped := r.ask("me@local", text); stopped == nil || stopped.Code != call.RateLimited || !stopped.Retryable || stopped.Effect != call.NoEffect {
						t.Errorf("refusal = %v, want a retryable rate_limited without effect", stopped)
					}
					if stopped := r.ask("you@local", text); stopped != nil {
						t.Error(stopped)
					}
				}
				if err := other.Cancel(t.Context(), strings.Repeat("0", 32)); err != nil {
					t.Fatal(err)
				}
				if stopped := r.ask("me@local", text); stopped != nil {
					t.Error(stopped)
				}
			})
		})
	}
}

// TestLongText checks that Submit and the gateway have the same limit for the length of a
// task.
func TestLongText(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := asker(t, filepath.Join(dir, "state.db"), dir)
	long := strings.Repeat("x", maxArguments+1)
	least := len(`{"priority":"normal","text":""}`)
	if stopped := r.ask("me@local", long[least:]); stopped == nil || stopped.Code != call.InputTooLong {
		t.Errorf("refusal = %v, want input_too_long", stopped)
	}
	if found, err := r.List(t.Context(), Filter{Limit: 1}); err != nil || len(found) != 0 {
		t.Errorf("error %v, %d intents are stored; want 0", err, len(found))
	}
	if stopped := r.ask("me@local", long[least+1:]); stopped != nil {
		t.Error(stopped)
	}
	// Below the limit, the gateway refuses the call for another reason.
	for n, want := range []call.Code{call.InputTooLong, call.InputInvalid} {
		_, err := r.gate.Call(t.Context(), &call.Call{ID: gateway.NewID(), Tool: "echo", Principal: "me@local", Arguments: jsontext.Value(long[n:])})
		if stopped, ok := errors.AsType[*call.Refusal](err); !ok || stopped.Code != want {
			t.Errorf("the gateway returned %v, want %s", err, want)
		}
	}
}
