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

// TestNothingIsAcceptedAfterRotation checks that a queue stops after a rotation of its root key. It
// accepts and runs no intents, and logs once that the process must be restarted.
func TestNothingIsAcceptedAfterRotation(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, place, dir string) {
		r := untended(t, place, dir)
		if got := r.wait(r.submit("before", "").ID); got.State != Done {
			t.Fatalf("intent = %+v, want done", got)
		}
		handOver(t, place, dir)
		_, err := r.Submit(t.Context(), Request{Agent: r.agent, Name: "echo", Text: "after", Principal: "me@local"})
		if stopped, _ := errors.AsType[*call.Refusal](err); stopped == nil || stopped.Code != call.StoreUnavailable || !strings.Contains(stopped.Message, "restart the process") || stopped.Retryable {
			t.Errorf("error = %v, want a refusal that asks for a restart", err)
		}
		for range 2 {
			if err := r.cleanUp(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if r.shared != nil && r.announced() != 0 {
			t.Error("the queue still announces its kinds")
		}
		if want := []string{"the root key has been rotated since this process started, so restart the process; until then every call is refused"}; !slices.Equal(r.log, want) {
			t.Errorf("log = %q, want %q", r.log, want)
		}
	})
}

// TestWaitingIntentIsRefusedAfterRotation checks that after a rotation, the outcome of a running intent is recorded,
// and a waiting intent does not begin. Either the queue or the gateway can notice the rotation first.
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
				t.Error("the journal does not report the rotation of the key")
			}
			close(end)
			if got := r.wait(during.ID); got.State != Done {
				t.Errorf("with the rotation noticed first: %v, the running intent is %+v", seen, got)
			}
			if err := r.run(waits.ID, waits.Digest); err != nil {
				t.Error(err)
			}
			if got := r.wait(waits.ID); got.State != Failed || got.Refusal == nil || got.Refusal.Code != call.StoreUnavailable {
				t.Errorf("with the rotation noticed first: %v, the waiting intent is %+v", seen, got)
			}
		})
	}
}

// TestDoneAfterRotation checks intents that wait while the root key is rotated. A process with the
// next key must run these intents.
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
			t.Errorf("the waiting intent is %+v, want done", got)
		}
	})
}
