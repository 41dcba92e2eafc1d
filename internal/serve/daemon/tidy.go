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
	// tidyEvery is the average pause between two deletions of expired rows. The length of each pause varies randomly by up
	// to 50 percent, so that daemons that share a store do not all delete at the same time.
	tidyEvery = 10 * time.Minute
	// tidyBatch is the maximum number of rows of each kind that one transaction deletes. The number is small because
	// a long deletion would delay calls.
	tidyBatch = 200
)

// Tidier deletes a batch of expired rows. It returns the number of deleted rows and reports whether more expired rows
// may remain.
type Tidier func(ctx context.Context, now time.Time) (deleted int, more bool, err error)

// TidierOf returns a Tidier for the expired approvals, stored answers and register entries of a store.
func TidierOf(s *store.Store) Tidier {
	return func(ctx context.Context, now time.Time) (deleted int, more bool, err error) {
		type forgetter = func(context.Context, *store.Store, time.Time, int) (int, error)
		for _, forget := range []forgetter{approval.Forget, gateway.ForgetAnswers} {
			n, err := forget(ctx, s, now, tidyBatch)
			if err != nil {
				return deleted, false, err
			}
			deleted, more = deleted+n, more || n == tidyBatch
		}
		n, err := s.Authority.Forget(ctx, now)
		return deleted + n, more, err
	}
}

// tidy deletes expired rows periodically until ctx is done.
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
