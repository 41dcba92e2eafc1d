package store

import (
	"context"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
)

// spentKept is how long a used id is kept after it expired. If a clock was ahead and is
// set back, the id must not become valid again.
const spentKept = 31 * 24 * time.Hour

// Spend records the use of a single-use id and reports whether this was the first use,
// across all processes that share the store. The record is removed long after the id has
// expired.
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

// Spent reports whether an id was used.
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
