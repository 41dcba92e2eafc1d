package gateway

import (
	"context"
	"time"

	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/state"
)

// AnswersKept is how long an idempotency key is remembered once its call was
// answered. A call with the same key after that is another call.
const AnswersKept = 30 * 24 * time.Hour

// ForgetAnswers deletes answers older than [AnswersKept], most at a time, and returns
// their number. It never deletes the key of a call that was not answered.
func ForgetAnswers(ctx context.Context, b *store.Store, now time.Time, most int) (n int, err error) {
	before := now.Add(-AnswersKept).UnixMicro()
	type key struct{ agent, principal, idem string }
	var keys []key
	// A read transaction finds them, so that no writer waits for the search.
	err = b.DB.Read(ctx, func(tx state.Tx) error {
		keys = nil
		return tx.Query(`SELECT agent, principal, idem FROM answers WHERE done > 0 AND done < $1 LIMIT $2`,
			[]any{before, int64(most)}, func(row state.Row) error {
				var k key
				err := row.Scan(&k.agent, &k.principal, &k.idem)
				keys = append(keys, k)
				return err
			})
	})
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	err = b.DB.Write(ctx, func(tx state.Tx) error {
		n = 0
		for _, k := range keys {
			gone, err := tx.Exec(`DELETE FROM answers WHERE agent = $1 AND principal = $2 AND idem = $3 AND done > 0 AND done < $4`,
				k.agent, k.principal, k.idem, before)
			if err != nil {
				return err
			}
			n += int(gone)
		}
		return nil
	})
	return n, err
}
