package daemon

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/store"
)

const (
	// tidyEvery is how often a daemon deletes expired rows. The pause varies by half, so that
	// daemons of one store take turns.
	tidyEvery = 10 * time.Minute
	// tidyBatch is how many rows of each kind one transaction deletes: few enough not to delay
	// calls.
	tidyBatch = 200
)

// Tidier deletes a batch of expired rows. It returns their number and whether there may be more.
type Tidier func(ctx context.Context, now time.Time) (deleted int, more bool, err error)

// TidierOf deletes old approvals and old answers of a store.
func TidierOf(s *store.Store) Tidier {
	return func(ctx context.Context, now time.Time) (deleted int, more bool, err error) {
		for _, forget := range []func(context.Context, *store.Store, time.Time, int) (int, error){approval.Forget, gateway.ForgetAnswers} {
			n, err := forget(ctx, s, now, tidyBatch)
			if err != nil {
				return deleted, false, err
			}
			deleted, more = deleted+n, more || n == tidyBatch
		}
		return deleted, more, nil
	}
}

// tidy deletes expired rows until ctx ends.
func (d *Daemon) tidy(ctx context.Context) {
	if d.options.Tidy == nil {
		return
	}
	for {
		pause := d.options.tidyEvery/2 + rand.N(d.options.tidyEvery)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		for more := true; more && ctx.Err() == nil; {
			var err error
			if _, more, err = d.options.Tidy(ctx, time.Now()); err != nil {
				if ctx.Err() == nil {
					d.options.Log("cannot delete expired rows: %v", err)
				}
				break
			}
		}
	}
}
