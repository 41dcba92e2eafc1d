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
	// tidyEvery is how often a daemon looks for what the store need not keep any
	// longer, give or take a half, so that daemons of one store take turns.
	tidyEvery = 10 * time.Minute
	// tidyBatch is how much of each kind it deletes in one transaction: few
	// enough that calls do not notice.
	tidyBatch = 200
)

// Tidier deletes a batch of what is past its time, and tells how much that was
// and whether there may be more.
type Tidier func(ctx context.Context, now time.Time) (deleted int, more bool, err error)

// TidierOf is that of a store: old questions to people, and old answers.
func TidierOf(b *store.Store) Tidier {
	return func(ctx context.Context, now time.Time) (deleted int, more bool, err error) {
		for _, forget := range []func(context.Context, *store.Store, time.Time, int) (int, error){approval.Forget, gateway.ForgetAnswers} {
			n, err := forget(ctx, b, now, tidyBatch)
			if err != nil {
				return deleted, false, err
			}
			deleted, more = deleted+n, more || n == tidyBatch
		}
		return deleted, more, nil
	}
}

// tidy tidies up now and then, until ctx ends.
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
					d.options.Log("what is past its time could not be deleted: %v", err)
				}
				break
			}
		}
	}
}
