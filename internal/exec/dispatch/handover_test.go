package dispatch

import (
	"context"
	"crypto/ed25519"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
)

// handOver rotates the root key, as another process would.
func handOver(t *testing.T, place, dir string) {
	t.Helper()
	_, next, err := ed25519.GenerateKey(nil)
	if err == nil {
		_, err = openStore(t, place, dir).Journal.HandOver(t.Context(), next, "ada@local", nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestNothingIsAcceptedAfterRotation: a queue whose key was handed over accepts and runs
// no intent, and logs once that the process must be restarted.
func TestNothingIsAcceptedAfterRotation(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, place, dir string) {
		r := untended(t, place, dir)
		if got := r.wait(r.submit("before", "").ID); got.State != Done {
			t.Fatalf("%+v", got)
		}
		handOver(t, place, dir)
		_, err := r.Submit(t.Context(), Request{Agent: r.agent, Name: "echo", Text: "after", Principal: "me@local"})
		if stopped, _ := errors.AsType[*call.Refusal](err); stopped == nil || stopped.Code != call.StoreUnavailable || !strings.Contains(stopped.Message, "restart it") || stopped.Retryable {
			t.Errorf("the intent was accepted: %v", err)
		}
		for range 2 {
			if err := r.cleanUp(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if r.shared != nil && r.announced() != 0 {
			t.Error("the queue still announces its kinds")
		}
		if want := []string{"the root key was rotated since this process started: restart it; until then every call is refused"}; !slices.Equal(r.log, want) {
			t.Errorf("it says %q", r.log)
		}
	})
}

// TestWaitingIntentIsRefusedAfterRotation: running intents are recorded and waiting ones
// do not begin, whether the queue or the gateway notices the rotation first.
func TestWaitingIntentIsRefusedAfterRotation(t *testing.T) {
	t.Parallel()
	for _, seen := range []bool{false, true} {
		each(t, func(t *testing.T, place, dir string) {
			begun, end := make(chan struct{}), make(chan struct{})
			r := newRig(t, place, dir, echo(agent.NetworkOff, 0), func(ctx context.Context, c *call.Call) (call.Result, error) {
				switch text, _, _ := strings.Cut(textOf(c), " "); text {
				case "during":
					close(begun)
					<-end
				case "after":
					t.Error("the waiting intent began")
				}
				return answer(ctx, c)
			}, Options{Concurrency: 1})
			r.wait(r.submit("before", "").ID)
			during := r.submit("during", "")
			<-begun
			waits := r.submit("after", "")
			handOver(t, place, dir)
			if seen && !errors.Is(r.store.DB.Read(t.Context(), r.store.Journal.InForce), journal.ErrHandedOver) {
				t.Error("the key is still in force")
			}
			close(end)
			if got := r.wait(during.ID); got.State != Done {
				t.Errorf("seen %v: the running intent is %+v", seen, got)
			}
			if err := r.run(waits.ID, waits.Digest); err != nil {
				t.Error(err)
			}
			if got := r.wait(waits.ID); got.State != Failed || got.Refusal == nil || got.Refusal.Code != call.StoreUnavailable {
				t.Errorf("seen %v: the waiting intent is %+v", seen, got)
			}
		})
	}
}

// TestDoneAfterRotation: a process with the next key runs the intents that were waiting
// when the root key was rotated.
func TestDoneAfterRotation(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, place, dir string) {
		before := newRig(t, place, dir, echo(agent.NetworkOff, 0), nil, Options{})
		waits := before.submit("waits", "")
		root := filepath.Join(dir, "root")
		next, err := identity.NextKeys(root)
		if err == nil {
			_, err = openStore(t, place, dir).Journal.HandOver(t.Context(), next.Signer(), "ada@local", nil)
		}
		if err == nil {
			err = identity.AdoptNext(root)
		}
		if err != nil {
			t.Fatal(err)
		}
		after := newRig(t, place, dir, echo(agent.NetworkOff, 0), answer, Options{})
		if got := after.wait(waits.ID); got.State != Done {
			t.Errorf("the waiting intent is %+v", got)
		}
	})
}
