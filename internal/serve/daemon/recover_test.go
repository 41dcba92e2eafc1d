package daemon

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// One search serves all agents. The agents of the abandoned calls take the calls over, and if none of them is running,
// one other agent does. An error of the search does not end it.
func TestAbandonedCallsAreTakenOver(t *testing.T) {
	searches := make(chan []string) // the result of each search; nil means an error
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha"), "beta.json": matrix("beta"), "idle.json": matrix("idle")},
		func(_ *rig, o *Options) {
			o.recoverEvery = time.Millisecond
			o.Abandoned = func(ctx context.Context) ([]string, error) {
				select {
				case names := <-searches:
					if names == nil {
						return nil, errors.New("the store is busy")
					}
					return names, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
		})
	for _, name := range []string{"alpha", "beta"} { // idle is never started
		_, leave, _ := r.fleet.current.Load().byName[name].enter()
		leave()
	}
	l, _, err := r.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Serve(ctx, l) }()
	searches <- nil
	searches <- []string{}
	for _, tt := range []struct {
		names       string
		alpha, beta int64
	}{{"beta", 0, 1}, {"idle missing", 1, 1}, {"alpha beta idle", 2, 2}} {
		searches <- strings.Fields(tt.names)
		searches <- []string{} // the daemon takes this result only after it has used the one before
		if a, b := r.agent("alpha").recovered.Load(), r.agent("beta").recovered.Load(); a != tt.alpha || b != tt.beta {
			t.Errorf("after calls of %s were found, alpha took over %d times and beta %d times, want %d and %d",
				tt.names, a, b, tt.alpha, tt.beta)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.started) != 2 || !strings.Contains(r.log.String(), "have exited: the store is busy") {
		t.Errorf("%d agents were started; the log is %s", len(r.started), r.log.String())
	}
}
