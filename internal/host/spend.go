package host

import (
	"context"
	"time"

	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/state"
)

// spend takes note that something that is good once was used, for every process
// that shares the store, and reports whether this was the first time.
func (a *Agent) spend(ctx context.Context, id string, until time.Time) (first bool, err error) {
	select {
	case <-a.opened:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	b := a.options.Books
	if b == nil {
		b = a.books
	}
	if b == nil {
		return false, call.Refuse("record", call.StoreUnavailable, "%v", a.shut)
	}
	err = b.DB.Write(ctx, func(tx state.Tx) error {
		if _, err := tx.Exec(`DELETE FROM spent WHERE until < $1`, time.Now().UnixMicro()); err != nil {
			return err
		}
		n, err := tx.Exec(`INSERT INTO spent (id, until) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING`, id, until.UnixMicro())
		first = n == 1
		return err
	})
	return first, err
}
