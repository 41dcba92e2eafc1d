package approval

import (
	"context"
	"time"

	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/state"
)

// Kept is how long an expired question is kept. The journal keeps every decision.
const Kept = 24 * time.Hour

// Forget deletes questions that expired longer than [Kept] ago and the arguments of
// expired questions, most at a time, and returns their number.
func Forget(ctx context.Context, b *store.Store, now time.Time, most int) (n int, err error) {
	before := now.Add(-Kept).UnixMicro()
	var ids []string
	// A read transaction finds them, so that no writer waits for the search.
	err = b.DB.Read(ctx, func(tx state.Tx) error {
		ids = nil
		return tx.Query(`SELECT id FROM approvals WHERE expires < $1 OR expires <= $2 AND sealed IS NOT NULL LIMIT $3`,
			[]any{before, now.UnixMicro(), int64(most)}, func(row state.Row) error {
				var id string
				err := row.Scan(&id)
				ids = append(ids, id)
				return err
			})
	})
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	err = b.DB.Write(ctx, func(tx state.Tx) error {
		n = 0
		for _, id := range ids {
			gone, err := tx.Exec(`DELETE FROM approvals WHERE id = $1 AND expires < $2`, id, before)
			if err == nil && gone == 0 {
				gone, err = tx.Exec(`UPDATE approvals SET sealed = NULL WHERE id = $1 AND expires <= $2`, id, now.UnixMicro())
			}
			if err != nil {
				return err
			}
			n += int(gone)
		}
		return nil
	})
	return n, err
}
