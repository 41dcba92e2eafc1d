package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/store"
)

// A daemon deletes expired rows in batches, and continues after an error.
func TestDaemonDeletesExpiredRows(t *testing.T) {
	var kept *store.Store
	done := make(chan struct{})
	runs := 0
	r := newRig(t, nil, func(r *rig, o *Options) {
		kept = r.store
		tidy := TidierOf(kept)
		o.tidyEvery = time.Millisecond
		o.Tidy = func(ctx context.Context, now time.Time) (int, bool, error) {
			runs++
			if runs == 1 {
				return 0, true, errors.New("the store is busy")
			}
			n, more, err := tidy(ctx, now)
			if err == nil && n > 0 && !more {
				close(done)
			}
			if n > 2*tidyBatch {
				t.Errorf("one batch deleted %d rows, want at most %d", n, 2*tidyBatch)
			}
			return n, more, err
		}
	})
	old := time.Now().Add(-2 * approval.Kept)
	for i := range tidyBatch + 7 {
		// Each question has a different principal, because the number of questions per principal is
		// limited.
		_, err := approval.Ask(t.Context(), kept, &approval.Question{
			ID: fmt.Sprint("q", i), Agent: "a", Digest: "sha256:d", Tool: "pay", Principal: fmt.Sprint("p", i), Arguments: []byte(`{}`), Asked: old, Expires: old.Add(time.Hour),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	l, _, err := r.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Serve(ctx, l) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Error("the daemon does not delete expired rows")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	// The test can read the counter without a lock, because Serve returns only after the last deletion.
	if runs < 3 {
		t.Errorf("rows were deleted %d times, want at least 3: an error and two batches", runs)
	}
	if _, err := approval.Get(t.Context(), kept, "q0"); !errors.Is(err, approval.ErrUnknown) {
		t.Errorf("an old question was not deleted: %v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !strings.Contains(r.log.String(), "cannot delete expired rows: the store is busy") {
		t.Errorf("the log is %s", r.log.String())
	}
}
