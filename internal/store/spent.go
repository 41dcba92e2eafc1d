package store

import (
	"context"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
)

// spentKept is how long what has expired is still known to be used: a clock that
// was ahead and is set back must not make it good again.
const spentKept = 31 * 24 * time.Hour

// Spend takes note that something that is good once was used, for every process
// that shares the store, and reports whether this was the first time. It is
// forgotten long after it would have expired anyway.
func (b *Store) Spend(ctx context.Context, id string, until time.Time) (first bool, err error) {
	err = b.DB.Write(ctx, func(tx state.Tx) error {
		if _, err := tx.Exec(`DELETE FROM spent WHERE until < $1`, time.Now().Add(-spentKept).UnixMicro()); err != nil {
			return err
		}
		n, err := tx.Exec(`INSERT INTO spent (id, until) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING`, id, until.UnixMicro())
		first = n == 1
		return err
	})
	return first, err
}

// Spent reports whether something was used.
func (b *Store) Spent(ctx context.Context, id string) (spent bool, err error) {
	err = b.DB.Read(ctx, func(tx state.Tx) error {
		spent = false
		var n int64
		return tx.Query(`SELECT until FROM spent WHERE id = $1`, []any{id}, func(r state.Row) error {
			spent = true
			return r.Scan(&n)
		})
	})
	return spent, err
}
