package host

import (
	"context"
	"time"

	"github.com/ambit-run/ambit/internal/call"
)

// spend takes note that something that is good once was used, for every process
// that shares the store, and reports whether this was the first time.
func (a *Agent) spend(ctx context.Context, id string, until time.Time) (first bool, err error) {
	select {
	case <-a.opened:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	b := a.ownBooks()
	if b == nil {
		return false, call.Refuse("record", call.StoreUnavailable, "%v", a.shut)
	}
	return b.Spend(ctx, id, until)
}
