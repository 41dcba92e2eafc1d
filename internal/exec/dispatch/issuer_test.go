package dispatch

import (
	"context"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/state"
)

// TestIssuerIsSealed checks that changing the principal of a waiting intent in the store has no effect. Otherwise, an
// attacker with access to the store could change what the intent is allowed to do.
func TestIssuerIsSealed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, place, dir string) {
		begun, end := make(chan struct{}), make(chan struct{})
		seen := make(chan call.Call, 1)
		r := newRig(t, place, dir, echo(agent.NetworkOff, 0), func(ctx context.Context, c *call.Call) (call.Result, error) {
			if strings.HasPrefix(textOf(c), "first") {
				close(begun)
				<-end
			} else {
				seen <- *c
			}
			return answer(ctx, c)
		}, Options{Concurrency: 1})
		r.submit("first", "")
		<-begun
		i, err := r.Submit(t.Context(), Request{Agent: r.agent, Name: "echo", Text: "second", Principal: "me@local", By: "owner@local"})
		if err != nil {
			t.Fatal(err)
		}
		err = r.store.DB.Write(t.Context(), func(tx state.Tx) error {
			_, err := tx.Exec(`UPDATE intents SET principal = 'root@local' WHERE id = $1`, i.ID)
			return err
		})
		close(end)
		if err != nil {
			t.Fatal(err)
		}
		r.wait(i.ID)
		if c := <-seen; c.Principal != "me@local" || c.By != "owner@local" {
			t.Errorf("the intent ran for %s, made by %s; want the original principal", c.Principal, c.By)
		}
	})
}
