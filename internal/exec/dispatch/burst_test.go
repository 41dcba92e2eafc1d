package dispatch

import (
	"sync"
	"testing"

	"github.com/ambit-run/ambit/agent"
)

// TestBurst checks several queues that submit many intents concurrently while intents run. All
// intents must be stored. Conflicts of serializable transactions must be retried, and never
// returned to a caller.
func TestBurst(t *testing.T) {
	t.Parallel()
	const openings, each = 4, 64
	onPostgres(t, func(t *testing.T, place, dir string) {
		a := echo(agent.NetworkOff, 1_000_000) // the agent has a budget, so that Submit also reads the used credits
		var rigs [openings]*rig
		for n := range rigs {
			rigs[n] = newRig(t, place, dir, a, answer, Options{Concurrency: 2})
		}
		var mu sync.Mutex
		asked := map[string]*rig{}
		var askers sync.WaitGroup
		begin := make(chan struct{})
		for n := range openings * each {
			r := rigs[n%openings]
			askers.Go(func() {
				<-begin
				i, err := r.Submit(t.Context(), Request{Agent: a, Name: "echo", Text: "x", Principal: "me@local"})
				if err != nil {
					t.Errorf("Submit: %v", err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				asked[i.ID] = r
			})
		}
		close(begin)
		askers.Wait()
		if len(asked) != openings*each {
			t.Errorf("%d of %d intents were stored", len(asked), openings*each)
		}
		for id, r := range asked {
			if i := r.wait(id); i.State != Done {
				t.Errorf("intent %s is %s, want done: %v", id, i.State, i.Refusal)
			}
		}
	})
}
